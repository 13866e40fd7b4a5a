"""Other limits while the application runs."""

import asyncio

from serve_app.config import LimitSettings
from serve_app.engine.fake import FakeEngine
from tests.asgi import http, websocket
from tests.fakes import app_over

PATH = "/invocations-bidirectional-stream"


async def status_of(app, text):
    async with http(app, "/invocations", {"text": text, "format": "pcm"}) as request:
        return (await request.response())[0]


def test_they_hold_for_what_comes_next_and_open_sessions_keep_theirs():
    async def scenario():
        app = app_over(FakeEngine(), max_sessions=1, max_text_chars=9)
        async with websocket(app, PATH) as first:
            await first.next()
            async with websocket(app, PATH) as refused:
                assert (await refused.next())["status"] == 503
            assert await status_of(app, "Too long here.") == 413
            app.limit(LimitSettings(max_sessions=2, max_text_chars=99))
            async with websocket(app, PATH) as second:
                assert (await second.next())["type"] == "websocket.accept"
            assert await status_of(app, "Too long here.") == 200
            first.say({"text": "Too long here."})
            assert (await first.frame())["code"] == "text_too_long"

    asyncio.run(scenario())
