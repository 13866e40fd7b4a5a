"""The real engine: a queue in front of the one thread that runs the model.

Who touches what. `_changed` guards the schedule, `_jobs` and `_closed`; it is held for operations on short lists, never
during a forward pass, so an event loop that takes it waits microseconds. Each job's outcome is a
`concurrent.futures.Future`: its move from waiting to running is atomic against its cancellation, and
`asyncio.wrap_future` brings the outcome home to whichever loop asked, or drops it if that loop is gone.
`_running_since_s` is written by the worker only.
"""

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Self

from serve_app.config import EngineSettings, WeightsSettings
from serve_app.engine.schedule import Pending, Policy, Schedule, default_batch
from serve_app.engine.types import AudioChunk, EngineInfo, Segment, check_segment
from serve_app.errors import EngineUnavailable, Internal, SpeechError
from serve_app.metrics import (
    BATCH_SEGMENTS,
    BUSY_S,
    INFO,
    NO_RECORDER,
    QUEUE_DEPTH,
    QUEUE_WAIT_S,
    SEGMENTS_CANCELLED,
    THIS_INSTALLATION,
    Recorder,
)

if TYPE_CHECKING:  # the queue is imported and tested without the seconds that torch takes
    from serve_app.engine.model import Synthesizer

logger = logging.getLogger(__name__)

WARMUP_PHONEME_IDS = (50, 83, 54, 156, 31, 16, 81, 156, 86, 123, 4)
"""həlˈO ðˈɛɹ."""


@dataclass(frozen=True, slots=True, eq=False)
class _Job:
    pending: Pending
    submitted_s: float
    outcome: "Future[AudioChunk]" = field(default_factory=Future)


class KokoroEngine:
    """`Engine` over a `Synthesizer`. Usable from any number of event loops and threads at once."""

    def __init__(
        self,
        synthesizer: "Synthesizer",
        settings: EngineSettings,
        recorder: Recorder = NO_RECORDER,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Start the worker thread, which alone calls `synthesizer.synthesize`.

        Args:
            recorder: hears of the queue and of every forward pass, from the worker and from the callers' threads.
            clock: seconds; tells when a segment came, and for how long a forward pass has been running.
        """
        self._synthesizer = synthesizer
        max_batch = settings.max_batch or default_batch(synthesizer.info.device)
        self._schedule = Schedule(Policy(max_batch, settings.max_queue, settings.max_wait_s))
        self._job_overdue_s = settings.job_overdue_s
        self._recorder = recorder
        self._clock = clock
        self._changed = threading.Condition()
        self._jobs: dict[Pending, _Job] = {}  # of all that wait
        self._running_since_s: float | None = None
        self._closed = False
        # A daemon, so that a wedged forward pass can't keep the process from ending.
        self._worker = threading.Thread(target=self._work, name="kokoro-engine", daemon=True)
        self._worker.start()

    @classmethod
    def load(cls, settings: EngineSettings, weights: WeightsSettings, recorder: Recorder = NO_RECORDER) -> Self:
        """Load the model and speak once, if the settings say so. Blocks for seconds.

        Raises:
            WeightsError: no usable weights; the message says what to do.
            SpeechError: the model is loaded, but can't speak.
        """
        from serve_app.engine.model import Synthesizer

        synthesizer = Synthesizer.load(settings, weights, recorder)
        engine = cls(synthesizer, settings, recorder)
        if settings.warmup:
            engine.warm_up()
        info = synthesizer.info  # not before: an engine that loads and cannot speak would be there at each restart
        recorder.record(INFO, weights=info.weights, device=info.device, **THIS_INSTALLATION)
        return engine

    async def synthesize(self, segment: Segment) -> AudioChunk:
        """See `Engine.synthesize`."""
        job = self._submit(segment)
        try:
            return await asyncio.wrap_future(job.outcome)
        finally:
            self._drop(job)

    async def info(self) -> EngineInfo:
        """See `Engine.info`."""
        self.check()
        return self._synthesizer.info

    def warm_up(self) -> None:
        """Speak one fixed sentence on the worker thread and wait for it. Raises what `synthesize` raises."""
        voice = self._synthesizer.info.voices[0]
        self._submit(Segment("warm-up", "warm-up", 0, WARMUP_PHONEME_IDS, voice)).outcome.result()

    def check(self) -> None:
        """Raise EngineUnavailable if nothing can be spoken: closed, worker dead, or a forward pass overdue."""
        since_s = self._running_since_s
        if self._closed:
            raise EngineUnavailable("The speech engine is shutting down.")
        if not self._worker.is_alive():
            raise EngineUnavailable("The speech engine's worker has died.")
        if since_s is not None and self._clock() - since_s > self._job_overdue_s:
            raise EngineUnavailable("The speech engine is stuck in a synthesis.")

    @property
    def queue_depth(self) -> int:
        """Segments that wait; the ones in the forward pass don't count."""
        return len(self._schedule)

    def close(self) -> None:
        """Refuse what waits and what comes with EngineUnavailable; what runs is finished and handed over.

        Returns at once; the worker thread ends after its forward pass.
        """
        with self._changed:
            self._closed = True
            left = list(self._jobs.values())
            self._jobs.clear()
            self._schedule.clear()
            self._changed.notify()
        for job in left:
            if job.outcome.set_running_or_notify_cancel():
                job.outcome.set_exception(EngineUnavailable("The speech engine is shutting down."))

    def _submit(self, segment: Segment) -> _Job:
        check_segment(segment)
        self._synthesizer.check(segment)
        with self._changed:
            self.check()
            now_s = self._clock()
            job = _Job(self._schedule.submit(segment, now_s), now_s)
            self._jobs[job.pending] = job
            self._changed.notify()
        self._record_depth()
        return job

    def _drop(self, job: _Job) -> None:
        # Nothing to do after the job's end, nor while it runs: it can't be stopped, and nobody reads its future.
        with self._changed:
            waited = self._schedule.withdraw(job.pending)
            self._jobs.pop(job.pending, None)
        if waited:
            self._record_depth()
        if waited or not job.outcome.done():
            self._recorder.record(SEGMENTS_CANCELLED, stage="waiting" if waited else "running")

    def _record_depth(self) -> None:
        self._recorder.record(QUEUE_DEPTH, self.queue_depth)

    def _record_begun(self, batch: Sequence[_Job], begun_s: float) -> None:
        self._record_depth()
        self._recorder.record(BATCH_SEGMENTS, len(batch))
        for job in batch:
            listener = "silent" if job.pending.silent else "hearing"
            self._recorder.record(QUEUE_WAIT_S, begun_s - job.submitted_s, listener=listener)

    def _work(self) -> None:
        try:
            while batch := self._next_batch():
                begun_s = self._clock()
                self._record_begun(batch, begun_s)
                outcomes = self._speak([job.pending.segment for job in batch])
                ended_s = self._clock()
                with self._changed:  # before anybody hears of it: what is sent in answer counts from then on
                    self._schedule.end(ended_s)
                self._recorder.record(BUSY_S, ended_s - begun_s)
                for job, outcome in zip(batch, outcomes, strict=True):
                    if isinstance(outcome, SpeechError):
                        job.outcome.set_exception(outcome)
                    else:
                        job.outcome.set_result(replace(outcome, waited_s=begun_s - job.submitted_s))
        finally:
            self.close()  # were it to end by a defect, nobody may wait for it

    def _next_batch(self) -> list[_Job]:
        """Wait for work and take it out of the queue; [] once closed."""
        with self._changed:
            while True:
                self._changed.wait_for(lambda: len(self._schedule) or self._closed)
                if self._closed:
                    return []
                planned = [self._jobs.pop(pending) for pending in self._schedule.begin(self._clock())]
                if batch := [job for job in planned if job.outcome.set_running_or_notify_cancel()]:
                    return batch

    def _speak(self, segments: Sequence[Segment]) -> Sequence[AudioChunk | SpeechError]:
        """What becomes of each segment."""
        result = self._run(segments)
        if not isinstance(result, SpeechError):
            return result
        if len(segments) == 1:
            return [result]
        return [outcome for segment in segments for outcome in self._speak([segment])]  # it is the fault of one of them

    def _run(self, segments: Sequence[Segment]) -> Sequence[AudioChunk] | SpeechError:
        """One forward pass, or why it failed."""
        self._running_since_s = self._clock()
        try:
            return self._synthesizer.synthesize(segments)
        except BaseException as exc:  # whatever it is, the thread must outlive it: nobody would restart it
            ids = [f"{segment.session_id}/{segment.request_id}/{segment.index}" for segment in segments]
            logger.error("synthesis failed, session/request/segment: %s", " ".join(ids), exc_info=exc)
            # Neither chained nor traced: that would hold the failed pass's tensors for as long as a client keeps it.
            told = exc if isinstance(exc, SpeechError) else Internal("The speech model failed on a part of the text.")
            return told.with_traceback(None)
        finally:
            self._running_since_s = None
