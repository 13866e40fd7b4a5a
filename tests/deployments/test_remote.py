import asyncio

import pytest
from ray.exceptions import RayActorError
from ray.serve.exceptions import BackPressureError

from serve_app.deployments.kokoro import Kokoro
from serve_app.deployments.remote import RemoteEngine, RemotePhonemizer
from serve_app.engine.fake import FakeEngine, tone
from serve_app.engine.types import Segment
from serve_app.errors import EngineUnavailable, QueueSaturated, UnsupportedLanguage
from tests.engine.contract import MAX_QUEUE, PROMISES, keep

SEGMENT = Segment("session", "request", 0, (1, 2, 3), "af_heart")


class Response:
    """What a handle's call returns, over a coroutine: awaitable, and to be cancelled by its own method."""

    def __init__(self, answer):
        self._task = asyncio.ensure_future(answer)
        self.cancelled = False

    def __await__(self):
        return asyncio.shield(
            self._task
        ).__await__()  # as a call over the network: an await that ends leaves it running

    def cancel(self):
        self.cancelled = True
        self._task.cancel()


class Method:
    def __init__(self, function):
        self._function = function
        self.responses = []

    def remote(self, *arguments):
        self.responses.append(Response(self._function(*arguments)))
        return self.responses[-1]


class Handle:
    """A handle whose methods are coroutine functions in this process."""

    def __init__(self, **functions):
        for name, function in functions.items():
            setattr(self, name, Method(function))


def engine_answering(answer):
    async def synthesize(segment):
        if isinstance(answer, Exception) and not hasattr(answer, "code"):
            raise answer
        return answer

    return RemoteEngine(Handle(synthesize=synthesize, info=synthesize))


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
    keep(promise, RemoteEngine(Handle(synthesize=kokoro.synthesize, info=kokoro.info)))


def test_leaving_cancels_the_call():
    async def scenario():
        async def never(segment):
            await asyncio.get_running_loop().create_future()

        handle = Handle(synthesize=never, info=never)
        asking = asyncio.create_task(RemoteEngine(handle).synthesize(SEGMENT))
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
