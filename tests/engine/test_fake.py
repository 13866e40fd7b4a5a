import asyncio

import pytest

from serve_app.engine.fake import HOP_SAMPLES, PAD_FRAMES, FakeEngine, tone
from serve_app.errors import EngineUnavailable, Internal
from tests.engine.contract import MAX_QUEUE, PHONEME_IDS, PROMISES, Promise, ask, keep, segment


@pytest.mark.parametrize("promise", PROMISES, ids=lambda promise: promise.__name__)
def test_the_fake_keeps_the_contract(promise: Promise) -> None:
    keep(promise, FakeEngine(max_queue=MAX_QUEUE))


def test_the_length_of_a_tone_is_known() -> None:
    assert len(tone(segment("a0")).samples) == (len(PHONEME_IDS) + 2 * PAD_FRAMES) * HOP_SAMPLES


def test_the_gate_holds_the_running_segment_until_it_is_allowed() -> None:
    async def scenario(engine: FakeEngine) -> None:
        tasks, ended = await ask(engine, segment("a0"), segment("a1"), segment("b0"))
        for _ in range(5):  # turns of the loop, enough to end a segment that nothing holds
            await asyncio.sleep(0)
        assert (ended, [s.session_id for s in engine.started], engine.queue_depth) == ([], ["a"], 2)
        engine.allow(2)
        await asyncio.gather(tasks[0], tasks[2])
        assert ended == ["a0", "b0"]
        assert not tasks[1].done()
        engine.allow(1)
        await tasks[1]
        assert engine.finished == engine.started

    keep(scenario, FakeEngine(gated=True))


def test_a_fault_fails_one_segment() -> None:
    async def scenario(engine: FakeEngine) -> None:
        engine.fail_next(Internal("scripted"))
        tasks, _ = await ask(engine, segment("a0"), segment("a1"))
        failed, spoken = await asyncio.gather(*tasks, return_exceptions=True)
        assert isinstance(failed, Internal)
        assert len(spoken.samples)

    keep(scenario, FakeEngine())


def test_a_listener_who_leaves_is_counted_and_a_running_segment_ends_unheard() -> None:
    async def scenario(engine: FakeEngine) -> None:
        tasks, _ = await ask(engine, segment("a0"), segment("a1"), segment("b0"))
        tasks[0].cancel()
        tasks[1].cancel()
        await asyncio.gather(*tasks[:2], return_exceptions=True)
        assert (engine.queue_depth, len(engine.cancelled)) == (1, 2)
        engine.allow(2)
        await tasks[2]
        assert [s.session_id for s in engine.started] == ["a", "b"]
        assert [s.session_id for s in engine.finished] == ["b"]

    keep(scenario, FakeEngine(gated=True))


def test_after_a_breakdown_nothing_is_spoken_and_nothing_known() -> None:
    async def scenario(engine: FakeEngine) -> None:
        engine.break_down()
        with pytest.raises(EngineUnavailable):
            await engine.synthesize(segment("a0"))
        with pytest.raises(EngineUnavailable):
            await engine.info()

    keep(scenario, FakeEngine())
