"""What is recorded, replayed and given up; the graphs are stand-ins that compute on the CPU."""

import logging

import pytest
import torch
from torch import Tensor

from serve_app.engine.network.graphs import Graphs, Replay, Stage


class Recorder:
    """Stands in for CUDA: a replay writes into the tensors of the recording, from the inputs of the recording."""

    def __init__(self, fault: Exception | None = None) -> None:
        self.recorded: list[list[int]] = []
        self.replays = 0
        self.fault = fault

    def __call__(self, stage: Stage, inputs: tuple[Tensor, ...]) -> tuple[Replay, tuple[Tensor, ...]]:
        self.recorded.append(list(inputs[0].shape))
        if self.fault:
            raise self.fault
        outputs = tuple(torch.full_like(output, -1) for output in stage(*inputs))

        def replay() -> None:
            self.replays += 1
            for output, value in zip(outputs, stage(*inputs), strict=True):
                output.copy_(value)

        return replay, outputs


def doubled(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    return 2 * x, x + y


def run(graphs: Graphs, size: int, value: float) -> tuple[Tensor, ...]:
    return graphs.run(doubled, (torch.full((size,), value), torch.ones(size)))


def is_right(outputs: tuple[Tensor, ...], size: int, value: float) -> bool:
    return [output.tolist() for output in outputs] == [[2 * value] * size, [value + 1] * size]


def test_a_shape_is_recorded_when_it_comes_again_and_replayed_from_then_on():
    recorder = Recorder()
    graphs = Graphs(recorder, lambda: True)
    for value in (1.0, 2.0, 3.0):
        assert is_right(run(graphs, 4, value), 4, value)
    assert (recorder.recorded, recorder.replays) == ([[4]], 2)
    assert is_right(run(graphs, 5, 9.0), 5, 9.0)
    assert recorder.recorded == [[4]]


def test_what_a_replay_gave_stays_as_it_was():
    graphs = Graphs(Recorder(), lambda: True)
    kept = [run(graphs, 3, value) for value in (1.0, 2.0, 3.0, 4.0)]
    assert all(is_right(outputs, 3, value) for outputs, value in zip(kept, (1.0, 2.0, 3.0, 4.0), strict=True))


def test_two_stages_of_the_same_shapes_are_two_graphs():
    graphs = Graphs(Recorder(), lambda: True)
    inputs = (torch.ones(2), torch.ones(2))

    def other(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        return (x - y,)

    for _ in range(3):
        assert len(graphs.run(doubled, inputs)) == 2
        assert graphs.run(other, inputs)[0].tolist() == [0, 0]


def test_without_room_the_stage_runs_all_the_same_and_the_log_says_so_once(caplog: pytest.LogCaptureFixture):
    recorder = Recorder()
    graphs = Graphs(recorder, lambda: False)
    with caplog.at_level(logging.WARNING):
        assert all(is_right(run(graphs, size, 5.0), size, 5.0) for size in (1, 2, 1, 2, 1, 2))
    assert recorder.recorded == []
    assert len([record for record in caplog.records if "no memory is left" in record.message]) == 1


def test_what_cannot_be_recorded_runs_without_and_is_not_tried_again(caplog: pytest.LogCaptureFixture):
    recorder = Recorder(RuntimeError("operation not permitted when stream is capturing"))
    graphs = Graphs(recorder, lambda: True)
    with caplog.at_level(logging.WARNING):
        assert all(is_right(run(graphs, 4, value), 4, value) for value in (1.0, 2.0, 3.0))
    assert recorder.recorded == [[4]]
    assert "no CUDA graph for inputs [[4], [4]] (RuntimeError: operation not permitted" in caplog.text
