"""An engine without a model: tones of known length, scripted waits and faults. No torch, no thread."""

import asyncio
import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from serve_app.blends import check_voice
from serve_app.engine.schedule import Pending, Policy, Schedule
from serve_app.engine.types import AudioChunk, EngineInfo, Segment, check_segment
from serve_app.errors import EngineUnavailable, SpeechError

SAMPLE_RATE = 24_000
HOP_SAMPLES = 600
PAD_FRAMES = 2
VOICES = ("af_heart", "af_bella", "bf_emma")


@dataclass(frozen=True, slots=True, eq=False)
class _Job:
    pending: Pending
    outcome: "asyncio.Future[AudioChunk]"


class FakeEngine:
    """`Engine` that speaks one segment at a time, in the real engine's order; callbacks of the caller's event loop.

    A phoneme lasts one frame (25 ms) at speed 1, a pad two. Each phoneme id has its own pitch, so that a test can tell
    segments apart by their samples.

    Args:
        cost_s: wall time of one segment.
        gated: a segment ends only when `allow` lets it.
        max_queue, max_wait_s: see EngineSettings.

    Attributes:
        started: segments whose turn came, in order; the last one may be running.
        finished: those of them that were handed over.
        cancelled: segments whose listener left before the end, waiting or running.
    """

    def __init__(
        self,
        *,
        voices: Sequence[str] = VOICES,
        max_queue: int = 64,
        max_wait_s: float = math.inf,
        cost_s: float = 0.0,
        gated: bool = False,
    ) -> None:
        self.started: list[Segment] = []
        self.finished: list[Segment] = []
        self.cancelled: list[Segment] = []
        self._voices = tuple(voices)
        self._cost_s = cost_s
        self._passes: float = 0 if gated else math.inf
        self._at_gate: _Job | None = None
        self._faults: deque[SpeechError] = deque()
        self._broken = False
        self._schedule = Schedule(Policy(1, max_queue, max_wait_s))
        self._jobs: dict[Pending, _Job] = {}  # of all that wait
        self._running: _Job | None = None

    def allow(self, segments: int) -> None:
        """Let so many more segments end; call it in the event loop."""
        self._passes += segments
        if self._at_gate is not None:
            job, self._at_gate = self._at_gate, None
            self._reach_gate(job)

    def fail_next(self, fault: SpeechError) -> None:
        """The next segment to end, ends with `fault`. Calls add up."""
        self._faults.append(fault)

    def break_down(self) -> None:
        """From now on nothing can be spoken, as if the worker were wedged."""
        self._broken = True

    @property
    def queue_depth(self) -> int:
        """Segments that wait; the running one doesn't count."""
        return len(self._schedule)

    def check(self) -> None:
        """Raise EngineUnavailable after `break_down`."""
        if self._broken:
            raise EngineUnavailable("The speech engine is stuck in a synthesis.")

    async def info(self) -> EngineInfo:
        """See `Engine.info`."""
        self.check()
        return EngineInfo(SAMPLE_RATE, self._voices, device="none", weights="tones")

    async def synthesize(self, segment: Segment) -> AudioChunk:
        """See `Engine.synthesize`."""
        check_segment(segment)
        check_voice(segment.voice, self._voices)
        self.check()
        loop = asyncio.get_running_loop()
        job = _Job(self._schedule.submit(segment, loop.time()), loop.create_future())
        self._jobs[job.pending] = job
        self._start_next()
        try:
            return await job.outcome
        except asyncio.CancelledError:
            self.cancelled.append(segment)
            raise
        finally:
            self._schedule.withdraw(job.pending)
            self._jobs.pop(job.pending, None)

    def _start_next(self) -> None:
        if self._running is None and len(self._schedule):
            [pending] = self._schedule.begin(asyncio.get_running_loop().time())
            self._running = job = self._jobs.pop(pending)
            self.started.append(pending.segment)
            job.outcome.get_loop().call_later(self._cost_s, self._reach_gate, job)

    def _reach_gate(self, job: _Job) -> None:
        if self._passes < 1:
            self._at_gate = job
            return
        self._passes -= 1
        fault = self._faults.popleft() if self._faults else None
        if not job.outcome.done():  # else its listener has left
            if fault is None:
                self.finished.append(job.pending.segment)
                job.outcome.set_result(tone(job.pending.segment, self._cost_s))
            else:
                job.outcome.set_exception(fault)
        self._running = None
        self._schedule.end(job.outcome.get_loop().time())
        self._start_next()


def tone(segment: Segment, inference_s: float = 0.0) -> AudioChunk:
    """The audio of a segment: one beep a phoneme, 100 Hz + 10 Hz * id, between two silent pads; of a part, its own."""
    frames = max(1, round(1 / segment.speed))
    beep = np.arange(frames * HOP_SAMPLES, dtype=np.float32) / SAMPLE_RATE
    pitches = 100.0 + 10.0 * np.array(segment.phoneme_ids, dtype=np.float32)
    pad = np.zeros(PAD_FRAMES * HOP_SAMPLES, dtype=np.float32)
    beeps = 0.3 * np.sin(2 * np.pi * pitches[:, None] * beep[None, :]).astype(np.float32)
    durations = np.array([PAD_FRAMES, *[frames] * len(segment.phoneme_ids), PAD_FRAMES], dtype=np.int64)
    samples = np.concatenate([pad, beeps.ravel(), pad])
    first, last = segment.padded_part or (0, len(durations))
    before, after = int(durations[:first].sum()), int(durations[last:].sum())
    durations[:first] = durations[last:] = 0
    samples = samples[before * HOP_SAMPLES : len(samples) - after * HOP_SAMPLES]
    return AudioChunk(samples, SAMPLE_RATE, HOP_SAMPLES, durations, inference_s)
