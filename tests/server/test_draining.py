"""The end of a gateway before its server is stopped: nothing new, what is in hand whole."""

import asyncio
import json

from serve_app.engine.fake import FakeEngine
from serve_app.metrics import SESSIONS_ENDED
from tests.asgi import http, turns_until, websocket
from tests.fakes import CountingRecorder, app_over

PATH = "/invocations-bidirectional-stream"
HANG_S = 10.0
"""Bounds a hang."""


def test_sessions_finish_the_message_in_hand_and_close_with_1001_before_the_drain_is_over():
    async def scenario():
        engine = FakeEngine(gated=True)
        app = app_over(engine, recorder)
        async with websocket(app, PATH) as speaking, websocket(app, PATH) as idle:
            await speaking.next()
            await idle.next()
            speaking.say({"text": "One is here.", "request_id": "in hand"})
            await turns_until(lambda: engine.started)
            draining = asyncio.create_task(app.drain(HANG_S))
            assert await idle.frame() == {"type": "closed", "code": 1001}
            await idle.ended()
            assert not draining.done()
            engine.allow(1)
            complete, audio = await speaking.until("synthesis_complete")
            assert (complete["request_id"], bool(audio)) == ("in hand", True)
            assert await speaking.frame() == {"type": "closed", "code": 1001}
            await speaking.ended()
            await draining

    recorder = CountingRecorder()
    asyncio.run(scenario())
    assert recorder.outcomes(SESSIONS_ENDED) == ["shutdown", "shutdown"]


def test_a_message_that_takes_too_long_ends_in_an_error_before_the_session_closes():
    async def scenario():
        engine = FakeEngine(gated=True)
        app = app_over(engine)
        async with websocket(app, PATH) as session:
            await session.next()
            session.say({"text": "One is here.", "request_id": "in hand"})
            session.say({"type": "text_delta", "text": "Two waits", "request_id": "waiting"})
            await turns_until(lambda: engine.started)
            await app.drain(0.0)
            errors = [(await session.until("error"))[0] for _ in range(2)]
            assert [(error["request_id"], error["code"]) for error in errors] == [
                ("waiting", "engine_unavailable"),
                ("in hand", "engine_unavailable"),
            ]
            assert await session.frame() == {"type": "closed", "code": 1001}
            await session.ended()

    asyncio.run(scenario())


def test_a_request_in_hand_is_answered_whole():
    async def scenario():
        engine = FakeEngine(gated=True)
        app = app_over(engine)
        async with http(app, "/invocations", {"text": "One is here.", "format": "pcm"}) as request:
            await turns_until(lambda: engine.started)
            draining = asyncio.create_task(app.drain(HANG_S))
            engine.allow(1)
            status, _, body = await request.response()
            assert (status, bool(body)) == (200, True)
            await request.ended()
            await draining

    asyncio.run(scenario())


def test_a_server_that_leaves_refuses_sessions_and_answers_requests():
    async def scenario():
        app = app_over(FakeEngine())
        app.leave(HANG_S)
        async with websocket(app, PATH) as session:
            assert (await session.next())["status"] == 503
        async with http(app, "/invocations", {"text": "Hi.", "format": "pcm"}) as request:
            assert (await request.response())[0] == 200

    asyncio.run(scenario())


def test_what_comes_later_is_refused_as_something_to_retry_elsewhere():
    async def scenario():
        app = app_over(FakeEngine())
        await app.drain(HANG_S)
        async with http(app, "/ping", method="GET") as ping, http(app, "/invocations", {"text": "Hi."}) as request:
            for exchange in (ping, request):
                status, headers, body = await exchange.response()
                assert (status, json.loads(body)["code"]) == (503, "engine_unavailable")
                assert int(headers["retry-after"]) >= 1
        async with websocket(app, PATH) as session:
            assert (await session.next())["status"] == 503

    asyncio.run(scenario())
