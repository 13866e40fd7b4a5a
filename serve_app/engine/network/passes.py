"""Items in, audio out: the stages over groups of items, on one device."""

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from serve_app.engine.network.graphs import CudaRecorder, Graphs, Stage, memory_for_graphs
from serve_app.engine.network.grouping import BATCHES, FRAME_SIZES, MAX_TOKENS, TOKEN_SIZES, Buckets, Group, Grouping
from serve_app.engine.network.grouping import alone as each_alone
from serve_app.engine.network.stages import (
    ENCODED_SIZE,
    HIDDEN_SIZE,
    STYLE_SIZE,
    Cut,
    Kokoro,
    TextStates,
    Vocoder,
    align,
    cut_curve,
)

log = logging.getLogger(__name__)

_BYTES_OF_A_FRAME = 400_000
"""Device memory that a frame takes in the last stage: about six tensors of 61 kB."""
_MAX_FRAMES = 32_768
_TOKEN_BYTES = 8 * (HIDDEN_SIZE + ENCODED_SIZE)
_FRAME_BYTES = 4 * (HIDDEN_SIZE + ENCODED_SIZE) + 8 * 600
"""What a recording keeps: its inputs and outputs."""
_TYPICAL_TOKENS, _TYPICAL_FRAMES = 64, 192
"""A sentence of spoken answers: about 12 words, 4 to 5 s."""
_MOST_AHEAD = 48
"""Of each kind. A recording takes three passes; how long on which card is not known, and the rest is recorded as
it comes."""


@dataclass(frozen=True, slots=True, eq=False)
class Item:
    """One segment for the network.

    Attributes:
        tokens: phoneme ids, both pads included.
        style: float32 [256].
        seed: of its noise, see `serve_app.engine.network.noise`.
        part: [first, last) of the tokens whose audio is wanted; None: all.
    """

    tokens: tuple[int, ...]
    style: Tensor
    speed: float
    seed: int
    part: tuple[int, int] | None = None


class Spoken(NamedTuple):
    """Audio [n] in the network's precision, and the frames of each token that are in it, [tokens]; n is 600 times their
    sum."""

    samples: NDArray[np.floating]
    durations: NDArray[np.int64]


class _TextPass(NamedTuple):
    group: Group
    states: TextStates


class _CurvePass(NamedTuple):
    """Pitch and energy, [B, 2F], of the items in the order of its rows."""

    order: list[int]
    f0: Tensor
    energy: Tensor


class _Frames(NamedTuple):
    """Which frames of an item: from `start` on, `size` of them."""

    start: int
    size: int


def _heard(item: Item, durations: NDArray[np.int64]) -> NDArray[np.int64]:
    """Frames of each token, 0 for what is not wanted."""
    first, last = item.part or (0, len(durations))
    return np.concatenate([np.zeros(first, np.int64), durations[first:last], np.zeros(len(durations) - last, np.int64)])


def _spoken_frames(item: Item, durations: NDArray[np.int64]) -> _Frames:
    first, last = item.part or (0, len(durations))
    return _Frames(int(durations[:first].sum()), int(durations[first:last].sum()))


def _padded(parts: Sequence[Tensor], batch: int) -> Tensor:
    """All in one batch, zeros in the rows that pad it."""
    together = torch.cat(list(parts))
    return F.pad(together, (0, 0) * (together.dim() - 1) + (0, batch - len(together)))


class Passes:
    """The network on its device. Not thread-safe.

    Args:
        network: moved to the device.
        token_groups, frame_groups: which items share a text pass, and which a pass of the later stages. These need not
            be the same items: texts of one length speak for different times.
        graphs: replays passes of repeated shapes; None runs each as it comes.
        vocoder: decode and generate; None for the network's own.

    Attributes:
        padding_frames: what the last run computed beside the frames that are heard.
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

    def record_ahead(self, max_bytes: int) -> None:
        """Record the passes that are expected most often, so that no listener waits for it; nothing without graphs.

        Args:
            max_bytes: what the recordings may keep beside the pool that they share.
        """
        if self._graphs is None:
            return
        tokens, frames = self._token_groups, self._frame_groups
        if not isinstance(tokens, Buckets) or not isinstance(frames, Buckets):
            return
        started_s = time.perf_counter()
        shapes = [
            tokens.most_used(_TYPICAL_TOKENS, _TOKEN_BYTES, max_bytes // 4, _MOST_AHEAD),
            frames.most_used(_TYPICAL_FRAMES, _FRAME_BYTES, max_bytes - max_bytes // 4, _MOST_AHEAD),
        ]
        style = torch.zeros(STYLE_SIZE)
        with torch.inference_mode():
            for _ in range(2):  # a first run is no recording
                for group in shapes[0]:
                    item = Item((0,) * group.size, style, 1.0, 0)
                    self._text([item] * group.batch, replace(group, items=tuple(range(group.batch))))
                for group in shapes[1]:
                    self._frames_of_nothing(group)
        log.info("recorded %d text and %d audio passes in %.1f s", *map(len, shapes), time.perf_counter() - started_s)

    def _frames_of_nothing(self, group: Group) -> None:
        """The stages behind the text's over zeros, in one shape."""

        def zeros(*shape: int) -> Tensor:
            return torch.zeros(group.batch, *shape, dtype=self._dtype, device=self._device)

        whole = torch.full((group.batch,), group.size, device=self._device)
        curves = self._run(self._network.prosody, [zeros(group.size, HIDDEN_SIZE), zeros(STYLE_SIZE), whole], group)
        encoded, seeds = zeros(ENCODED_SIZE, group.size), torch.zeros_like(whole)
        self._run(self._vocode, [encoded, *curves, zeros(STYLE_SIZE), whole, seeds], group)

    def run(self, items: Sequence[Item]) -> list[Spoken]:
        """Speak the items; one result each, in order."""
        with torch.inference_mode():
            lengths = [len(item.tokens) for item in items]
            texts = [_TextPass(group, self._text(items, group)) for group in self._token_groups(lengths)]
            durations = self._durations(items, texts)
            whole = [_Frames(0, int(of_item.sum())) for of_item in durations]
            curves = [
                self._curves(items, texts, whole, group)
                for group in self._frame_groups([frames.size for frames in whole])
            ]
            spoken = [_spoken_frames(item, of_item) for item, of_item in zip(items, durations, strict=True)]
            copies = []
            groups = self._frame_groups([frames.size for frames in spoken])
            self.padding_frames = sum(group.batch * group.size for group in groups) - sum(cut.size for cut in spoken)
            for group in groups:
                order, audio = self._audio(items, texts, curves, spoken, group)
                copies.append((order, audio.shape[1] // group.size, _Copy(audio)))
            samples: dict[int, NDArray[np.floating]] = {}
            for order, hop, copy in copies:  # what was computed first travels while the rest is computed
                rows = copy.result().numpy()
                for row, item in enumerate(order):
                    samples[item] = rows[row, : spoken[item].size * hop].copy()
            return [Spoken(samples[number], _heard(item, durations[number])) for number, item in enumerate(items)]

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

    def _curves(
        self, items: Sequence[Item], texts: Sequence[_TextPass], frames: Sequence[_Frames], group: Group
    ) -> _CurvePass:
        """Pitch and energy of whole items."""
        order: list[int] = []
        aligned = []
        for text in texts:
            if cut := self._cut(text.group.items, group, frames, order):
                aligned.append(align(text.states.hidden, text.states.durations, cut, group.size))
        numbers = self._styles(items, order, group.batch), self._lengths(frames, order, group.batch)
        inputs = [_padded(aligned, group.batch), *(tensor.to(self._device) for tensor in numbers)]
        return _CurvePass(order, *self._run(self._network.prosody, inputs, group))

    def _audio(
        self,
        items: Sequence[Item],
        texts: Sequence[_TextPass],
        curves: Sequence[_CurvePass],
        frames: Sequence[_Frames],
        group: Group,
    ) -> tuple[list[int], Tensor]:
        """Items of the rows, in their order, and audio [batch, 600 * size] on the device."""
        order: list[int] = []
        encoded = []
        for text in texts:
            if cut := self._cut(text.group.items, group, frames, order):
                aligned = align(text.states.encoded, text.states.durations, cut, group.size)
                encoded.append(aligned.transpose(1, 2).contiguous())
        curve_order: list[int] = []
        pitches, energies = [], []
        for curve in curves:
            if cut := self._cut(curve.order, group, frames, curve_order):
                pitches.append(cut_curve(curve.f0, cut, group.size))
                energies.append(cut_curve(curve.energy, cut, group.size))
        places = torch.tensor([curve_order.index(item) for item in order], device=self._device)
        f0, energy = (_padded([torch.cat(parts)[places]], group.batch) for parts in (pitches, energies))
        seeds = torch.zeros(group.batch, dtype=torch.int64)
        seeds[: len(order)] = torch.tensor([items[item].seed for item in order])
        numbers = self._styles(items, order, group.batch), self._lengths(frames, order, group.batch), seeds
        inputs = [_padded(encoded, group.batch), f0, energy, *(tensor.to(self._device) for tensor in numbers)]
        (audio,) = self._run(self._vocode, inputs, group)
        return order, audio

    def _vocode(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        return (self._vocoder(*inputs),)

    def _cut(self, items: Sequence[int], group: Group, frames: Sequence[_Frames], order: list[int]) -> Cut | None:
        """What of a pass, whose rows are these items, belongs to a group; the items are appended to `order`."""
        rows = [row for row, item in enumerate(items) if item in group.items]
        if not rows:
            return None
        order += [items[row] for row in rows]
        own = [frames[items[row]] for row in rows]
        numbers = rows, [cut.start for cut in own], [cut.size for cut in own]
        return Cut(*torch.tensor(numbers, device=self._device))

    def _lengths(self, frames: Sequence[_Frames], order: Sequence[int], batch: int) -> Tensor:
        """[batch]; rows that pad the batch are of one frame."""
        return torch.tensor([*(frames[item].size for item in order), *[1] * (batch - len(order))])

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
