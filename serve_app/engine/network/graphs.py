"""Replaying a stage as a recorded CUDA graph: a forward pass is some 2 500 kernel launches, each 5 to 10 us of one CPU
core, whatever the batch; a graph is one.

A graph has fixed shapes and fixed memory. So there is one for each shape that comes often, with its own input tensors,
into which the caller's are copied.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

log = logging.getLogger(__name__)

Stage = Callable[..., tuple[Tensor, ...]]


class Replay(Protocol):
    """Compute the outputs again from what the inputs hold now."""

    def __call__(self) -> None: ...


Record = Callable[[Stage, Sequence[Tensor]], tuple[Replay, tuple[Tensor, ...]]]
"""Run a stage on its inputs so that it can be replayed; gives the replay and the tensors that it writes to."""


@dataclass(frozen=True, slots=True, eq=False)
class _Recording:
    inputs: tuple[Tensor, ...]
    replay: Replay
    outputs: tuple[Tensor, ...]


class Graphs:
    """Runs stages, and replays those whose shapes come again.

    A shape's first run is an ordinary one, its second is recorded: a shape that never returns costs no memory. What
    cannot be recorded, or finds no room, runs as it would without graphs, and the log says so once.

    Args:
        record: see `Record`.
        has_room: may more memory be taken for one more recording?
    """

    def __init__(self, record: Record, has_room: Callable[[], bool]) -> None:
        self._record = record
        self._has_room = has_room
        self._recordings: dict[tuple[object, ...], _Recording | None] = {}  # None: seen once
        self._eager: set[tuple[object, ...]] = set()
        self._full = False

    def run(self, stage: Stage, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """The stage's outputs; they are the caller's to keep."""
        key = (stage, *((tensor.shape, tensor.dtype) for tensor in inputs))
        if key in self._eager:
            return stage(*inputs)
        if key not in self._recordings:
            self._recordings[key] = None
            return stage(*inputs)
        recording = self._recordings[key] or self._recorded(key, stage, inputs)
        if recording is None:
            return stage(*inputs)
        for static, tensor in zip(recording.inputs, inputs, strict=True):
            static.copy_(tensor)
        recording.replay()
        # Another graph may overwrite them: all share one pool of memory.
        return tuple(output.clone() for output in recording.outputs)

    def _recorded(self, key: tuple[object, ...], stage: Stage, inputs: Sequence[Tensor]) -> _Recording | None:
        shapes = [list(tensor.shape) for tensor in inputs]
        if self._full or not self._has_room():
            if not self._full:
                log.warning("no memory is left for CUDA graphs beside %d; others run without", len(self._recordings))
            self._full = True
            return None
        static = tuple(tensor.clone() for tensor in inputs)
        try:
            replay, outputs = self._record(stage, static)
        except Exception as exc:  # whatever the driver or a library refuses, the stage itself can still run
            log.warning("no CUDA graph for inputs %s (%s: %s); they run without", shapes, type(exc).__name__, exc)
            self._eager.add(key)
            return None
        recording = self._recordings[key] = _Recording(static, replay, outputs)
        return recording


class CudaRecorder:
    """`Record` on the current GPU; all graphs share one pool, as only one of them runs at a time."""

    def __init__(self) -> None:
        self._pool = torch.cuda.graph_pool_handle()

    def __call__(self, stage: Stage, inputs: Sequence[Tensor]) -> tuple[Replay, tuple[Tensor, ...]]:
        # Outside of the recording, on a stream of its own: libraries choose algorithms and make plans on a first run.
        side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            stage(*inputs)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool):
            outputs = stage(*inputs)
        return graph.replay, outputs


def memory_for_graphs(reserve_share: float = 0.2) -> bool:
    """Whether more than this share of the GPU's memory is free."""
    free, total = torch.cuda.mem_get_info()
    return free > reserve_share * total
