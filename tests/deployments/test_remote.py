import asyncio

import pytest
from ray.exceptions import RayActorError
from ray.serve.exceptions import BackPressureError

from serve_app.config import EngineSettings
from serve_app.deployments.kokoro import Kokoro
from serve_app.deployments.remote import RemoteEngine, RemotePhonemizer
from serve_app.engine.fake import FakeEngine, tone
from serve_app.engine.types import Segment
from serve_app.errors import EngineUnavailable, QueueSaturated, UnsupportedLanguage
from tests.deployments.handles import Handle, Method
from tests.engine.contract import MAX_QUEUE, PROMISES, keep

SEGMENT = Segment("session", "request", 0, (1, 2, 3), "af_heart")
SETTINGS = EngineSettings()


def engine_answering(answer):
    async def synthesize(segment):
        if isinstance(answer, Exception) and not hasattr(answer, "code"):
            raise answer
        return answer

    return RemoteEngine(Handle(synthesize=synthesize, info=synthesize), SETTINGS)


@pytest.mark.parametrize(
    ("answer", "raised"),
    [
        (QueueSaturated("full"), QueueSaturated),
        (BackPressureError(num_queued_requests=5, max_queued_requests=5), QueueSaturated),
        (RayActorError(), EngineUnavailable),
    ],
)
def test_refusals_and_lost_replicas_are_errors_of_ours(answer, raised):
    with pytest.raises(raised):
        asyncio.run(_synthesized(lambda: engine_answering(answer)))


async def _synthesized(build):
    return await build().synthesize(SEGMENT)


def test_audio_comes_through_as_it_is():
    chunk = tone(SEGMENT)
    assert asyncio.run(_synthesized(lambda: engine_answering(chunk))) is chunk


@pytest.mark.parametrize("promise", PROMISES, ids=lambda promise: promise.__name__)
def test_the_engine_behind_a_handle_keeps_the_promises_of_every_engine(promise):
    kokoro = Kokoro(FakeEngine(max_queue=MAX_QUEUE))
    keep(promise, RemoteEngine(Handle(synthesize=kokoro.synthesize, info=kokoro.info), SETTINGS))


def test_leaving_cancels_the_call():
    async def scenario():
        async def never(segment):
            await asyncio.get_running_loop().create_future()

        handle = Handle(synthesize=never, info=never)
        asking = asyncio.create_task(RemoteEngine(handle, SETTINGS).synthesize(SEGMENT))
        await asyncio.sleep(0)
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        assert handle.synthesize.responses[0].cancelled

    asyncio.run(scenario())


def test_a_refused_language_is_raised():
    async def pieces(sentence, lang):
        return UnsupportedLanguage("only a")

    async def scenario():
        await RemotePhonemizer(Handle(pieces=pieces, languages=pieces)).pieces("x", "z")

    with pytest.raises(UnsupportedLanguage):
        asyncio.run(scenario())


class Dying:
    """A handle whose replicas die, one after the other, of as many calls as `deaths`; the next one answers."""

    def __init__(self, deaths, before_death=None):
        self.asked, self.begun = [], asyncio.Event()
        self._deaths, self._before_death = deaths, before_death
        self.synthesize = self.info = Method(self._call)

    async def _call(self, segment):
        self.asked.append(segment)
        self.begun.set()
        if len(self.asked) > self._deaths:
            return tone(segment)
        if self._before_death is not None:
            await self._before_death.wait()
        raise RayActorError


def test_a_segment_whose_replica_died_is_spoken_by_another_one():
    handle = Dying(deaths=1)
    chunk = asyncio.run(_synthesized(lambda: RemoteEngine(handle, SETTINGS)))
    assert chunk.samples.tolist() == tone(SEGMENT).samples.tolist()
    assert len(handle.asked) == 2


def test_a_segment_that_replicas_die_of_takes_two_of_them_and_no_more():
    handle = Dying(deaths=100)
    with pytest.raises(EngineUnavailable):
        asyncio.run(_synthesized(lambda: RemoteEngine(handle, SETTINGS)))
    assert len(handle.asked) == 2


def test_a_segment_that_its_replica_was_ended_with_after_a_while_is_not_tried_on_the_next():
    async def scenario():
        loop, wedged_s = asyncio.get_running_loop(), 0.0
        clock = loop.time
        loop.time = lambda: clock() + wedged_s
        ended = asyncio.Event()
        handle = Dying(deaths=1, before_death=ended)
        asking = asyncio.create_task(RemoteEngine(handle, SETTINGS).synthesize(SEGMENT))
        await handle.begun.wait()
        wedged_s = SETTINGS.job_overdue_s + 1.0
        ended.set()
        with pytest.raises(EngineUnavailable):
            await asking
        assert len(handle.asked) == 1

    asyncio.run(scenario())


def test_a_replica_that_is_never_heard_of_again_is_an_error_and_not_a_silence():
    async def scenario():
        async def never(segment):
            await asyncio.get_running_loop().create_future()

        handle = Handle(synthesize=never, info=never)
        impatient = SETTINGS.model_copy(update={"max_wait_s": 0.005, "job_overdue_s": 0.005})
        with pytest.raises(EngineUnavailable):
            await RemoteEngine(handle, impatient).synthesize(SEGMENT)
        assert handle.synthesize.responses[0].cancelled

    asyncio.run(scenario())


def test_a_sentence_whose_replica_died_is_read_by_another_one():
    answers = [RayActorError(), ["pieces"]]

    async def pieces(sentence, lang):
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def scenario():
        return await RemotePhonemizer(Handle(pieces=pieces, languages=pieces)).pieces("x", "a")

    assert asyncio.run(scenario()) == ["pieces"]
