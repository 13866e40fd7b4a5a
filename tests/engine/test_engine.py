import asyncio
import logging
import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence

import pytest

from serve_app.blends import check_voice
from serve_app.config import EngineSettings, WeightsSettings
from serve_app.engine.engine import WARMUP_PHONEME_IDS, KokoroEngine
from serve_app.engine.fake import SAMPLE_RATE, tone
from serve_app.engine.types import AudioChunk, EngineInfo, Segment
from serve_app.errors import EngineUnavailable, Internal, QueueSaturated
from serve_app.metrics import (
    BATCH_SEGMENTS,
    BUSY_S,
    INFO,
    QUEUE_DEPTH,
    QUEUE_WAIT_S,
    SEGMENTS_CANCELLED,
    Metric,
)
from tests.engine.contract import MAX_QUEUE, PROMISES, VOICE, Promise, ask, keep, segment
from tests.fakes import CountingRecorder


class Tones:
    """Stands in for the Synthesizer: tones; each pass waits for `gate` and fails if `faults` says so."""

    def __init__(self, gated: bool = False, faults: Sequence[BaseException | None] = ()) -> None:
        self.info = EngineInfo(SAMPLE_RATE, (VOICE,), "cpu")
        self.passes: queue.Queue[list[str]] = queue.Queue()
        self.gate = threading.Semaphore(0) if gated else None
        self.threads: set[threading.Thread] = set()
        self._faults = iter(faults)
        self.poison: str | None = None

    def check(self, wanted: Segment) -> None:
        check_voice(wanted.voice, self.info.voices)

    def synthesize(self, batch: Sequence[Segment]) -> list[AudioChunk]:
        self.threads.add(threading.current_thread())
        self.passes.put([f"{s.session_id}{s.index}" for s in batch])
        if self.gate is not None:
            assert self.gate.acquire(timeout=30)
        if (fault := next(self._faults, None)) is not None:
            raise fault
        if self.poison in [s.session_id for s in batch]:
            raise ValueError("poisoned")
        return [tone(s) for s in batch]

    async def running(self) -> list[str]:
        """Wait for the next pass to begin; the segments in it."""
        return await asyncio.to_thread(self.passes.get, timeout=30)


class Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


type Build = Callable[..., KokoroEngine]


@pytest.fixture
def build() -> Iterator[Build]:
    """Makes engines and ends their threads."""
    built: list[tuple[KokoroEngine, Tones]] = []

    def make(tones: Tones, clock: Callable[[], float] = time.monotonic, **settings: object) -> KokoroEngine:
        engine = KokoroEngine(tones, EngineSettings.model_validate(settings), clock=clock)
        built.append((engine, tones))
        return engine

    yield make
    for engine, tones in built:
        engine.close()
        if tones.gate is not None:
            tones.gate.release(1000)


@pytest.mark.parametrize("promise", PROMISES, ids=lambda promise: promise.__name__)
def test_the_queue_keeps_the_contract_over_tones(build: Build, promise: Promise) -> None:
    keep(promise, build(Tones(), max_queue=MAX_QUEUE))


@pytest.mark.parametrize("promise", PROMISES, ids=lambda promise: promise.__name__)
def test_the_real_model_keeps_the_contract(build: Build, promise: Promise, synthesizer: object) -> None:
    engine = KokoroEngine(synthesizer, EngineSettings(max_queue=MAX_QUEUE))
    try:
        keep(promise, engine)
    finally:
        engine.close()


def test_one_thread_of_its_own_runs_the_model_and_ends_with_the_engine(build: Build) -> None:
    tones = Tones()
    engine = build(tones)

    async def scenario(engine: KokoroEngine) -> None:
        await asyncio.gather(*(engine.synthesize(segment(f"{name}0")) for name in "abc"))

    keep(scenario, engine)
    (worker,) = tones.threads
    assert worker is not threading.main_thread()
    assert worker.daemon
    engine.close()
    worker.join(timeout=30)
    assert not worker.is_alive()


def test_the_bound_counts_what_waits_and_a_listener_who_leaves_frees_a_place_at_once(build: Build) -> None:
    tones = Tones(gated=True)
    engine = build(tones, max_queue=2)

    async def scenario(_: object) -> None:
        first, _ = await ask(engine, segment("a0"))
        assert await tones.running() == ["a0"]
        waiting, _ = await ask(engine, segment("b0"), segment("c0"))
        assert engine.queue_depth == 2
        with pytest.raises(QueueSaturated):
            await engine.synthesize(segment("d0"))
        waiting[0].cancel()
        (late,), _ = await ask(engine, segment("e0"))
        assert engine.queue_depth == 2
        tones.gate.release(3)
        await asyncio.gather(first[0], waiting[1], late)
        assert [await tones.running(), await tones.running()] == [["c0"], ["e0"]]
        assert engine.queue_depth == 0

    keep(scenario, engine)


def test_who_would_wait_too_long_is_refused_at_once_and_told_when_to_come_back(build: Build) -> None:
    tones, clock = Tones(gated=True), Clock()
    engine = build(tones, clock, max_wait_s=4)

    async def scenario(_: object) -> None:
        for _turn in range(3):  # the first pass does not count: it is slower than what follows
            task = asyncio.create_task(engine.synthesize(segment("z0")))
            await tones.running()
            clock.now_s += 3
            tones.gate.release()
            await task
        running, _ = await ask(engine, segment("a0"))
        await tones.running()
        waiting, _ = await ask(engine, segment("b0"))
        with pytest.raises(QueueSaturated) as refused:
            await engine.synthesize(segment("c0"))
        assert refused.value.retry_after_s == 2  # 6 s of work, of which 4 may be waited for
        clock.now_s += 2
        later, _ = await ask(engine, segment("c0"))
        tones.gate.release(3)
        await asyncio.gather(*running, *waiting, *later)

    keep(scenario, engine)


def test_a_session_that_leaves_frees_the_engine_within_one_segment(build: Build) -> None:
    tones = Tones(gated=True)
    engine = build(tones)

    async def scenario(_: object) -> None:
        leaving, _ = await ask(engine, *(segment(f"a{index}") for index in range(5)))
        assert await tones.running() == ["a0"]
        staying, _ = await ask(engine, segment("b9"))
        for task in leaving:
            task.cancel()
        await asyncio.wait(leaving)
        tones.gate.release(2)
        await asyncio.gather(*staying)
        assert await tones.running() == ["b9"]

    keep(scenario, engine)


def test_a_running_segment_whose_listener_left_is_dropped_at_its_end(build: Build) -> None:
    tones = Tones(gated=True)
    engine = build(tones)

    async def scenario(_: object) -> None:
        (left, stays), ended = await ask(engine, segment("a0"), segment("b0"))
        await tones.running()
        left.cancel()
        with pytest.raises(asyncio.CancelledError):
            await left
        tones.gate.release(2)
        await stays
        assert ended == ["b0"]

    keep(scenario, engine)


@pytest.mark.parametrize(
    "fault",
    [ValueError("a tensor with secrets"), MemoryError(), SystemExit(1), RuntimeError("CUDA out of memory")],
    ids=lambda fault: type(fault).__name__,
)
def test_a_failed_pass_fails_its_segment_and_the_worker_lives_on(
    build: Build, fault: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    engine = build(Tones(faults=[fault]))

    async def scenario(_: object) -> None:
        (failed, spoken), ended = await ask(engine, segment("a0"), segment("b0"))
        with pytest.raises(Internal) as told:
            await failed
        assert "secrets" not in told.value.message
        assert told.value.__cause__ is None
        await spoken
        assert ended == ["b0"]
        engine.check()

    with caplog.at_level(logging.ERROR):
        keep(scenario, engine)
    assert "a/request-a/0" in caplog.text
    assert "b/request-b/0" not in caplog.text


def test_a_failure_the_model_explains_is_handed_on(build: Build) -> None:
    engine = build(Tones(faults=[Internal("The speech model gave no audio for speakable text.")]))
    with pytest.raises(Internal, match="no audio"):
        asyncio.run(engine.synthesize(segment("a0")))


def test_in_a_batch_only_the_segment_at_fault_fails(build: Build) -> None:
    tones = Tones(gated=True)
    tones.poison = "c"
    engine = build(tones, max_batch=3)

    async def scenario(_: object) -> None:
        first, _ = await ask(engine, segment("a0"))
        assert await tones.running() == ["a0"]
        others, ended = await ask(engine, *map(segment, ("b0", "c0", "d0")))
        tones.gate.release(5)
        outcomes = await asyncio.gather(*first, *others, return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [AudioChunk, AudioChunk, Internal, AudioChunk]
        assert ended == ["b0", "d0"]
        assert await tones.running() == ["b0", "c0", "d0"]

    keep(scenario, engine)


@pytest.mark.parametrize(("device", "together"), [("cuda", ["b0", "c0", "d0"]), ("cpu", ["b0"])])
def test_sessions_share_a_pass_on_a_gpu_unless_the_settings_say_otherwise(
    device: str, together: list[str], build: Build
) -> None:
    tones = Tones(gated=True)
    tones.info = EngineInfo(SAMPLE_RATE, (VOICE,), device)
    engine = build(tones)

    async def scenario(_: object) -> None:
        first, _ = await ask(engine, segment("a0"))
        assert await tones.running() == ["a0"]
        others, _ = await ask(engine, *map(segment, ("b0", "c0", "d0")))
        tones.gate.release(4)
        assert await tones.running() == together
        await asyncio.gather(*first, *others)

    keep(scenario, engine)


def test_an_overdue_pass_is_noticed_and_forgiven_when_it_ends(build: Build) -> None:
    tones, clock = Tones(gated=True), Clock()
    engine = build(tones, clock, job_overdue_s=30)

    async def scenario(_: object) -> None:
        (task,), _ = await ask(engine, segment("a0"))
        await tones.running()
        clock.now_s += 30
        engine.check()
        clock.now_s += 0.5
        with pytest.raises(EngineUnavailable):
            engine.check()
        with pytest.raises(EngineUnavailable):
            await engine.info()
        with pytest.raises(EngineUnavailable):
            await engine.synthesize(segment("b0"))
        tones.gate.release()
        await task
        engine.check()
        assert (await engine.info()).voices == (VOICE,)

    keep(scenario, engine)


def test_an_idle_engine_is_never_overdue(build: Build) -> None:
    clock = Clock()
    engine = build(Tones(), clock, job_overdue_s=30)
    asyncio.run(engine.synthesize(segment("a0")))
    clock.now_s += 3600
    engine.check()


def test_a_dead_worker_is_noticed_and_nobody_waits_for_it(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    tones = Tones(gated=True)
    engine = build(tones)
    monkeypatch.setattr(threading, "excepthook", lambda _: None)

    async def scenario(_: object) -> None:
        (first, second), _ = await ask(engine, segment("a0"), segment("b0"))
        await tones.running()
        monkeypatch.setattr(engine, "_next_batch", lambda: 1 / 0)
        tones.gate.release()
        await first
        with pytest.raises(EngineUnavailable):
            await second
        with pytest.raises(EngineUnavailable):
            engine.check()

    keep(scenario, engine)


def test_closing_refuses_what_waits_and_hands_over_what_runs(build: Build) -> None:
    tones = Tones(gated=True)
    engine = build(tones)

    async def scenario(_: object) -> None:
        (runs, waits), _ = await ask(engine, segment("a0"), segment("b0"))
        await tones.running()
        engine.close()
        with pytest.raises(EngineUnavailable):
            await waits
        with pytest.raises(EngineUnavailable):
            await engine.synthesize(segment("c0"))
        tones.gate.release()
        assert (await runs).samples.size

    keep(scenario, engine)


def test_a_loop_that_closed_in_mid_pass_does_not_harm_the_next_one(build: Build) -> None:
    tones = Tones(gated=True)
    engine = build(tones)

    async def leave() -> None:
        tasks, _ = await ask(engine, segment("a0"))
        await tones.running()
        assert not tasks[0].done()

    loop = asyncio.new_event_loop()
    loop.set_exception_handler(lambda *_: None)  # of the task that is destroyed with its loop
    loop.run_until_complete(leave())
    loop.close()
    tones.gate.release(2)

    async def scenario(_: object) -> None:
        assert (await engine.synthesize(segment("b0"))).samples.size

    keep(scenario, engine)


def test_warm_up_speaks_the_fixed_sentence_and_tells_of_failure(build: Build) -> None:
    tones = Tones()
    build(tones).warm_up()
    assert tones.passes.get_nowait() == ["warm-up0"]
    with pytest.raises(Internal):
        build(Tones(faults=[ValueError()])).warm_up()


def test_what_an_engine_speaks_with_is_recorded_once_it_has_spoken(monkeypatch: pytest.MonkeyPatch) -> None:
    from serve_app.engine.model import Synthesizer

    recorder = CountingRecorder()

    def load(tones: Tones) -> None:
        tones.info = EngineInfo(SAMPLE_RATE, (VOICE,), "cpu", "packaged int8")
        monkeypatch.setattr(Synthesizer, "load", lambda *_: tones)
        KokoroEngine.load(EngineSettings(), WeightsSettings(), recorder).close()

    with pytest.raises(Internal):
        load(Tones(faults=[ValueError()]))
    assert INFO.name not in recorder.values
    load(Tones())
    ((value, info),) = recorder.values[INFO.name]
    assert (value, info["weights"], info["device"]) == (1.0, "packaged int8", "cpu")


def test_the_warm_up_sentence_is_in_the_model_s_symbols() -> None:
    from serve_app.engine.checkpoint import model_config

    assert tuple(model_config()["vocab"][symbol] for symbol in "həlˈO ðˈɛɹ.") == WARMUP_PHONEME_IDS


def test_the_queue_and_the_passes_are_recorded() -> None:
    clock, tones, recorder = Clock(), Tones(gated=True), CountingRecorder()
    engine = KokoroEngine(tones, EngineSettings(max_batch=2), recorder, clock)

    def values(metric: Metric) -> list[float]:
        return [value for value, _ in recorder.values.get(metric.name, [])]

    async def scenario(_: object) -> list[AudioChunk]:
        first, _ = await ask(engine, segment("a0"))
        await tones.running()
        recorder.values.pop(QUEUE_DEPTH.name)
        (leaves, stays, later), _ = await ask(engine, segment("b0"), segment("c0"), segment("d1"))
        leaves.cancel()
        await asyncio.wait([leaves])
        clock.now_s += 2.0
        tones.gate.release(1)
        chunks = await asyncio.gather(*first)
        await tones.running()
        clock.now_s += 1.0
        later.cancel()
        await asyncio.wait([later])
        tones.gate.release(1)
        return [*chunks, await stays]

    chunks: list[AudioChunk] = []

    async def remembered(engine: object) -> None:
        chunks.extend(await scenario(engine))

    keep(remembered, engine)
    engine.close()
    assert values(QUEUE_DEPTH) == [1, 2, 3, 2, 0]
    assert values(BATCH_SEGMENTS) == [1, 2]
    assert [chunk.waited_s for chunk in chunks] == [0.0, 2.0]
    assert recorder.values[QUEUE_WAIT_S.name] == [
        (0.0, {"listener": "silent"}),
        (2.0, {"listener": "silent"}),
        (2.0, {"listener": "hearing"}),
    ]
    assert values(BUSY_S) == [2.0, 1.0]
    assert [tags["stage"] for _, tags in recorder.values[SEGMENTS_CANCELLED.name]] == ["waiting", "running"]
