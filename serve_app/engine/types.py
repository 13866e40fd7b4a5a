"""What goes into the engine and what comes out; no torch here, so that servers and clients may import it."""

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from serve_app.errors import Internal

Samples = NDArray[np.float32]
"""Mono audio, shape [n], nominally -1..1."""

MAX_PHONEMES = 510
"""Phoneme tokens in one forward pass, without the two pads (hexgrad/Kokoro-82M: 512 positions)."""


@dataclass(frozen=True, slots=True)
class Segment:
    """The part of an utterance that goes through one forward pass.

    Attributes:
        phoneme_ids: 1..510 ids of the model's vocabulary, without the two zero pads.
        voice: a voice id of the voice store, or a blend of several; see serve_app/blends.py.
        speed: 0.25..4.0, the divisor of the predicted durations.
        index: position in the utterance.
        part: [start, end) of `phoneme_ids`, those that are spoken; the others are the sentence around them, which gives
            the part its durations and its intonation. None: all.
        slack_s: for how long the listener still has something to hear without it, counted from when it is sent; 0 is
            silence now. Relative, because whoever asks and the engine may have different clocks.
    """

    session_id: str
    request_id: str
    index: int
    phoneme_ids: tuple[int, ...]
    voice: str
    speed: float = 1.0
    slack_s: float = 0.0
    part: tuple[int, int] | None = None

    @property
    def spoken_tokens(self) -> int:
        """Phoneme tokens that will be heard."""
        start, end = self.part or (0, len(self.phoneme_ids))
        return end - start

    @property
    def padded_part(self) -> tuple[int, int] | None:
        """The part as tokens with the two pads around them: a pad belongs to the part beside it."""
        if self.part is None:
            return None
        start, end = self.part
        return start + (start > 0), end + 1 + (end == len(self.phoneme_ids))


def check_segment(segment: Segment) -> None:
    """Raise Internal if the segment is none that an engine may be asked for: clients are told earlier, and better."""
    count = len(segment.phoneme_ids)
    if not 1 <= count <= MAX_PHONEMES:
        raise Internal(f"A segment has 1 to {MAX_PHONEMES} phonemes, this one {count}.")
    if segment.part is not None and not 0 <= segment.part[0] < segment.part[1] <= count:
        raise Internal(f"A part is a range of the segment's {count} phonemes, not {segment.part}.")
    if min(segment.phoneme_ids) < 1:
        raise Internal("A segment carries no pads of its own.")
    if not 0.25 <= segment.speed <= 4.0:
        raise Internal("The speed of a segment is 0.25 to 4.0.")
    if not 0.0 <= segment.slack_s < math.inf:
        raise Internal("The slack of a segment is a number of seconds, 0 or more.")


@dataclass(frozen=True, slots=True, eq=False)
class AudioChunk:
    """The audio of one segment.

    Attributes:
        samples: float32 [n] at the model's rate.
        duration_frames: int64 [len(phoneme_ids) + 2], predicted frames of each token, both pads included; 0
            for what was not spoken; sum * hop_samples == n.
        inference_s: wall time of the forward pass.
        waited_s: for which the segment waited before it.
    """

    samples: Samples
    sample_rate: int
    hop_samples: int
    duration_frames: NDArray[np.int64]
    inference_s: float
    waited_s: float = 0.0


@dataclass(frozen=True, slots=True)
class EngineInfo:
    """What a loaded engine can speak with."""

    sample_rate: int
    voices: tuple[str, ...]
    device: str
    weights: str = ""


class Engine(Protocol):
    """One interface over the real engine, the fake one and the one behind a Serve handle."""

    async def synthesize(self, segment: Segment) -> AudioChunk:
        """Speak one segment. Cancelling the await drops it: at once while it waits, at its end while it runs.

        Raises:
            QueueSaturated: first segments (index 0) only, past a bound of the queue.
            UnknownVoice, BadRequest (no such form of a blend), EngineUnavailable, Internal.
        """
        ...

    async def info(self) -> EngineInfo:
        """What is loaded. Raises EngineUnavailable while it can't synthesize. Does no inference."""
        ...
