"""The WebSocket client and servers that misbehave; test_both_ways.py has what it shares with other transports."""

import asyncio
import json
from contextlib import aclosing

import pytest
from websockets.asyncio.server import ServerConnection

from serve_app.client.errors import BrokenAnswer, UnexpectedAnswer, Unreachable
from serve_app.client.websocket import WebSocketClient
from serve_app.errors import EngineUnavailable, QueueSaturated
from tests.client.endpoints import socket_server
from tests.client.hostile import Exchange, collected, http_server, joined
from tests.client.streams import PCM

TEXT = "Hello there. How are you?"


def ask_hostile(frames: list[dict[str, object] | bytes], *, close_code: int | None = 1000) -> bytes:
    """The audio from a server that answers one message with these frames; without a close code it just goes away."""

    async def scenario() -> bytes:
        async def serve_one(socket: ServerConnection) -> None:
            request_id = json.loads(await socket.recv())["request_id"]
            for frame in frames:
                await socket.send(frame if isinstance(frame, bytes) else json.dumps({"request_id": request_id} | frame))
            if close_code is None:
                socket.transport.abort()
            else:
                await socket.close(close_code)

        async with socket_server(serve_one) as url:
            return joined(await collected(WebSocketClient(url).synthesize(TEXT)))

    return asyncio.run(scenario())


START: dict[str, object] = {"type": "synthesis_start"}
COMPLETE: dict[str, object] = {"type": "synthesis_complete", "total_duration_s": 0.1, "elapsed_s": 0.1}


def test_binary_frames_of_odd_length_keep_every_sample() -> None:
    slices: list[dict[str, object] | bytes] = [PCM[:1], PCM[1:4], PCM[4:4067], PCM[4067:4069], PCM[4069:]]
    assert ask_hostile([START, *slices, COMPLETE]) == PCM


@pytest.mark.parametrize("close_code", [None, 1000, 1001, 1011])
def test_a_connection_that_ends_in_the_middle_is_an_error(close_code: int | None) -> None:
    with pytest.raises(BrokenAnswer):
        ask_hostile([START, PCM], close_code=close_code)


def test_an_utterance_that_somebody_else_cancelled_is_an_error() -> None:
    with pytest.raises(BrokenAnswer):
        ask_hostile([START, PCM, {"type": "synthesis_cancelled", "sent_duration_s": 0.0}])


def test_an_error_frame_is_the_exception_of_its_code() -> None:
    with pytest.raises(EngineUnavailable, match="stuck"):
        ask_hostile([START, PCM, {"type": "error", "code": "engine_unavailable", "message": "the engine is stuck"}])


def test_closing_early_closes_the_connection() -> None:
    async def scenario() -> None:
        gone = asyncio.Event()

        async def serve_one(socket: ServerConnection) -> None:
            request_id = json.loads(await socket.recv())["request_id"]
            await socket.send(json.dumps(START | {"request_id": request_id}))
            await socket.send(PCM)
            await socket.wait_closed()
            gone.set()

        async with socket_server(serve_one) as url:
            async with aclosing(WebSocketClient(url).synthesize(TEXT)) as chunks:
                assert (await anext(chunks)).data == PCM
            await gone.wait()

    asyncio.run(scenario())


def test_a_full_server_is_asked_again_when_it_says_so_and_not_for_ever() -> None:
    async def scenario() -> tuple[int, int]:
        async def busy(exchange: Exchange) -> None:
            body = b'{"error": "all sessions are taken", "code": "queue_saturated", "request_id": "unknown"}'
            headers = {"Retry-After": "0"} if "/again/" in exchange.head else {}
            headers |= {"Connection": "close"}
            await exchange.answer("application/json", [body], status="503 Busy", headers=headers, whole=True)
            exchange.writer.close()

        async with http_server(busy) as server:
            with pytest.raises(QueueSaturated, match="all sessions are taken"):
                await collected(WebSocketClient(server.url).synthesize(TEXT))
            once = len(server.seen)
            with pytest.raises(QueueSaturated):
                await collected(WebSocketClient(f"{server.url}/again").synthesize(TEXT))
            return once, len(server.seen) - once

    assert asyncio.run(scenario()) == (1, 3)


def test_a_server_without_websockets_is_told_apart_from_none(server: str) -> None:
    with pytest.raises(UnexpectedAnswer, match="status"):
        asyncio.run(collected(WebSocketClient(f"{server}/elsewhere").synthesize(TEXT)))

    async def scenario() -> str:
        async def reply(exchange: Exchange) -> None:
            exchange.writer.write(b"220 this is mail\r\n")
            exchange.writer.close()

        async with http_server(reply) as mail:
            with pytest.raises(UnexpectedAnswer, match="not a WebSocket server"):
                await collected(WebSocketClient(mail.url).synthesize(TEXT))
            return mail.url

    gone = asyncio.run(scenario())
    with pytest.raises(Unreachable):
        asyncio.run(collected(WebSocketClient(gone).synthesize(TEXT)))
