import asyncio
import json

from serve_app.config import LimitSettings
from serve_app.engine.fake import FakeEngine
from serve_app.server.gateway import create_app
from serve_app.server.speech import Speech
from tests.asgi import http, turns_until
from tests.fakes import CountingRecorder, FakePhonemizer, app_over


async def ping(app):
    async with http(app, "/ping", method="GET") as exchange:
        status, _, body = await exchange.response()
    return status, json.loads(body)


def test_ping_is_ok_while_a_synthesis_runs():
    async def scenario():
        engine = FakeEngine(gated=True)
        app = app_over(engine)
        async with http(app, "/invocations", {"text": "Hello."}):
            await turns_until(lambda: engine.started)
            return await ping(app)

    assert asyncio.run(scenario()) == (200, {"status": "ok"})


def test_ping_says_no_once_the_engine_cannot_synthesize():
    engine = FakeEngine()
    engine.break_down()
    status, body = asyncio.run(ping(app_over(engine)))
    assert (status, body["code"]) == (503, "engine_unavailable")


def test_ping_does_not_wait_for_a_part_that_does_not_answer(monkeypatch):
    class Silent(FakePhonemizer):
        async def languages(self):
            return await asyncio.get_running_loop().create_future()

    monkeypatch.setattr("serve_app.server.ping.ANSWER_WITHIN_S", 0.01)
    speech = Speech(Silent(), FakeEngine(), CountingRecorder(), lookahead_segments=2)
    status, body = asyncio.run(ping(create_app(speech, LimitSettings(), CountingRecorder())))
    assert (status, body["code"]) == (503, "engine_unavailable")
