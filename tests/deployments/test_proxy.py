import asyncio

import pytest

from serve_app.deployments.proxy import DropLateFrames, middlewares


def run(app, incoming, send):
    async def scenario():
        messages = iter(incoming)

        async def receive():
            return next(messages)

        await DropLateFrames(app)({"type": "websocket"}, receive, send)

    asyncio.run(scenario())


async def send_after_the_end(scope, receive, send):
    await send({"type": "websocket.send", "text": "early"})
    while (await receive())["type"] != "websocket.disconnect":
        pass
    await send({"type": "websocket.send", "text": "late"})
    await send({"type": "websocket.close"})


def test_frames_after_the_client_left_go_nowhere():
    sent = []

    async def send(message):
        sent.append(message["type"])

    run(send_after_the_end, [{"type": "websocket.receive"}, {"type": "websocket.disconnect"}], send)
    assert sent == ["websocket.send"]


@pytest.mark.parametrize("failure", [OSError, RuntimeError])
def test_a_frame_that_crosses_the_clients_end_is_not_a_failure(failure):
    calls = []

    async def send(message):
        calls.append(message)
        raise failure("closed")

    run(send_after_the_end, [{"type": "websocket.disconnect"}], send)
    assert len(calls) == 1


def test_http_passes_untouched():
    async def app(scope, receive, send):
        seen.append((scope, receive, send))

    seen: list = []
    scope, receive, send = {"type": "http"}, object(), object()
    asyncio.run(DropLateFrames(app)(scope, receive, send))
    assert seen == [(scope, receive, send)]


def test_the_hook_gives_the_middleware():
    assert [middleware.cls for middleware in middlewares()] == [DropLateFrames]
