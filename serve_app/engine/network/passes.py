"""Items in, audio out: the stages over groups of items, on one device."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from serve_app.engine.network.graphs import CudaRecorder, Graphs, Stage, memory_for_graphs
from serve_app.engine.network.grouping import BATCHES, FRAME_SIZES, MAX_TOKENS, TOKEN_SIZES, Buckets, Group, Grouping
from serve_app.engine.network.grouping import alone as each_alone
from serve_app.engine.network.stages import STYLE_SIZE, Kokoro, TextStates, Vocoder, align

_BYTES_OF_A_FRAME = 400_000
"""Device memory that a frame takes in the last stage: about six tensors of 61 kB."""
_MAX_FRAMES = 32_768


@dataclass(frozen=True, slots=True, eq=False)
class Item:
    """One segment for the network.

    Attributes:
        tokens: phoneme ids, both pads included.
        style: float32 [256].
        seed: of its noise, see `serve_app.engine.network.noise`.
    """

    tokens: tuple[int, ...]
    style: Tensor
    speed: float
    seed: int


class Spoken(NamedTuple):
    """Audio [n] in the network's precision, and the frames of each token, [tokens]; n is 600 times their sum."""

    samples: NDArray[np.floating]
    durations: NDArray[np.int64]


class _TextPass(NamedTuple):
    group: Group
    states: TextStates


class Passes:
    """The network on its device. Not thread-safe.

    Args:
        network: moved to the device.
        token_groups, frame_groups: which items share a text pass, and which a pass of the later stages. These need not
            be the same items: texts of one length speak for different times.
        graphs: replays passes of repeated shapes; None runs each as it comes.
        vocoder: decode and generate; None for the network's own.

    Attributes:
        padding_frames: what the last run computed beside the frames of its items.
    """

    def __init__(
        self,
        network: Kokoro,
        device: torch.device,
        token_groups: Grouping = each_alone,
        frame_groups: Grouping = each_alone,
        graphs: Graphs | None = None,
        vocoder: Vocoder | None = None,
    ) -> None:
        self._network = network.to(device)
        self._vocoder = vocoder or network.vocode
        self._device = device
        self._dtype = network.bert_encoder.weight.dtype
        self._token_groups, self._frame_groups = token_groups, frame_groups
        self._graphs = graphs
        self.padding_frames = 0

    @classmethod
    def on(cls, device: torch.device, network: Kokoro) -> Self:
        """The way to run that is best on a device; nothing else in the engine asks what it runs on."""
        if device.type != "cuda":
            return cls(network, device)
        # cuDNN would round float32 convolutions to TF32, which moves the pitch; ours are narrow where that is harmless.
        torch.backends.cudnn.allow_tf32 = False
        memory = torch.cuda.get_device_properties(device).total_memory
        return cls(
            network.narrow(torch.float16),
            device,
            Buckets(TOKEN_SIZES, BATCHES, MAX_TOKENS),
            Buckets(FRAME_SIZES, BATCHES, min(_MAX_FRAMES, memory // 2 // _BYTES_OF_A_FRAME)),
            Graphs(CudaRecorder(), memory_for_graphs),
        )

    def run(self, items: Sequence[Item]) -> list[Spoken]:
        """Speak the items; one result each, in order."""
        with torch.inference_mode():
            lengths = [len(item.tokens) for item in items]
            texts = [_TextPass(group, self._text(items, group)) for group in self._token_groups(lengths)]
            durations = self._durations(items, texts)
            frames = [int(of_item.sum()) for of_item in durations]
            copies = []
            groups = self._frame_groups(frames)
            self.padding_frames = sum(group.batch * group.size for group in groups) - sum(frames)
            for group in groups:
                order, audio = self._audio(items, texts, frames, group)
                copies.append((order, audio.shape[1] // group.size, _Copy(audio)))
            samples: dict[int, NDArray[np.floating]] = {}
            for order, hop, copy in copies:  # what was computed first travels while the rest is computed
                rows = copy.result().numpy()
                for row, item in enumerate(order):
                    samples[item] = rows[row, : frames[item] * hop].copy()
            return [Spoken(samples[item], durations[item]) for item in range(len(items))]

    def _text(self, items: Sequence[Item], group: Group) -> TextStates:
        # Rows that pad the batch are texts of one token.
        tokens = torch.zeros(group.batch, group.size, dtype=torch.int64)
        lengths, speed = torch.ones(group.batch, dtype=torch.int64), torch.ones(group.batch, dtype=self._dtype)
        for row, item in enumerate(group.items):
            lengths[row] = len(items[item].tokens)
            tokens[row, : lengths[row]] = torch.tensor(items[item].tokens)
            speed[row] = items[item].speed
        inputs = tokens, lengths, self._styles(items, group.items, group.batch), speed
        return TextStates(*self._run(self._network.text, [tensor.to(self._device) for tensor in inputs], group))

    def _durations(self, items: Sequence[Item], texts: Sequence[_TextPass]) -> list[NDArray[np.int64]]:
        """Frames of each token of each item. Here the host waits for the device, the one time before the audio."""
        of_item: dict[int, NDArray[np.int64]] = {}
        copies = [_Copy(text.states.durations) for text in texts]
        for text, copy in zip(texts, copies, strict=True):
            rows = copy.result().numpy()
            for row, item in enumerate(text.group.items):
                of_item[item] = rows[row, : len(items[item].tokens)].copy()
        return [of_item[item] for item in range(len(items))]

    def _audio(
        self, items: Sequence[Item], texts: Sequence[_TextPass], frames: Sequence[int], group: Group
    ) -> tuple[list[int], Tensor]:
        """Items of the rows, in their order, and audio [batch, 600 * size] on the device."""
        order: list[int] = []
        aligned = []
        for text in texts:
            rows = [row for row, item in enumerate(text.group.items) if item in group.items]
            if rows:
                order += [text.group.items[row] for row in rows]
                aligned.append(align(text.states, torch.tensor(rows, device=self._device), group.size))
        padding = (0, 0, 0, 0, 0, group.batch - len(order))
        hidden, encoded = (F.pad(torch.cat(parts), padding) for parts in zip(*aligned, strict=True))
        lengths, seeds = torch.ones(group.batch, dtype=torch.int64), torch.zeros(group.batch, dtype=torch.int64)
        for row, item in enumerate(order):
            lengths[row], seeds[row] = frames[item], items[item].seed
        numbers = [tensor.to(self._device) for tensor in (self._styles(items, order, group.batch), lengths, seeds)]
        (audio,) = self._run(self._speak, [hidden, encoded, *numbers], group)
        return order, audio

    def _speak(
        self, hidden: Tensor, encoded: Tensor, style: Tensor, frames: Tensor, seeds: Tensor
    ) -> tuple[Tensor, ...]:
        f0, energy = self._network.prosody(hidden, style, frames)
        return (self._vocoder(encoded, f0, energy, style, frames, seeds),)

    def _styles(self, items: Sequence[Item], order: Sequence[int], batch: int) -> Tensor:
        styles = torch.zeros(batch, STYLE_SIZE, dtype=self._dtype)
        for row, item in enumerate(order):
            styles[row] = items[item].style
        return styles

    def _run(self, stage: Stage, inputs: Sequence[Tensor], group: Group) -> tuple[Tensor, ...]:
        if self._graphs is not None and group.repeated:
            return self._graphs.run(stage, inputs)
        return stage(*inputs)


class _Copy:
    """A tensor on its way to the host; the device goes on meanwhile."""

    def __init__(self, tensor: Tensor) -> None:
        self._host, self._arrived = tensor, None
        if tensor.is_cuda:
            self._host = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
            self._host.copy_(tensor, non_blocking=True)
            self._arrived = torch.cuda.Event()  # type: ignore[no-untyped-call]
            self._arrived.record()

    def result(self) -> Tensor:
        if self._arrived is not None:
            self._arrived.synchronize()
        return self._host
