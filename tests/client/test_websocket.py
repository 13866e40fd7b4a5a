"""The WebSocket client over real sockets: the product's own server, and servers that misbehave."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager

import pytest
from websockets.asyncio.server import ServerConnection, serve

from serve_app.client.errors import BrokenAnswer, UnexpectedAnswer, Unreachable
from serve_app.client.http import HttpClient
from serve_app.client.session import Session, Words
from serve_app.client.types import Chunk
from serve_app.client.websocket import WebSocketClient
from serve_app.errors import EngineUnavailable, NothingToSpeak, QueueSaturated, UnknownVoice
from serve_app.protocol.messages import ErrorFrame, SynthesisCancelled, SynthesisComplete, SynthesisStart
from tests.client.hostile import HANG_S, Exchange, collected, http_server, joined
from tests.client.streams import PCM

TEXT = "Hello there. How are you?"


def ask(server: str, text: str = TEXT, **options: object) -> list[Chunk]:
    """The chunks of one answer."""
    return asyncio.run(collected(WebSocketClient(server).synthesize(text, **options)))  # type: ignore[arg-type]


async def next_of[E](session: Session, kind: type[E]) -> E:
    """Read on to an event of this kind."""
    async with asyncio.timeout(HANG_S):
        async for event in session:
            if isinstance(event, kind):
                return event
    raise AssertionError("the session has ended")


def test_the_websocket_gives_the_same_audio_as_a_request(server: str) -> None:
    over_http = asyncio.run(collected(HttpClient(server).synthesize(TEXT)))
    assert joined(ask(server)) == joined(over_http)


def test_words_come_with_the_audio_they_begin_in(server: str) -> None:
    words = [word for chunk in ask(server, timestamps=True) if chunk.data for word in chunk.words]
    assert " ".join(word.text for word in words) == TEXT
    assert words[0].start_s == 0.05


def test_the_first_sentence_is_heard_before_the_second_one_is_written(server: str) -> None:
    async def scenario() -> None:
        first_heard = asyncio.Event()

        async def written() -> AsyncIterator[str]:
            for piece in ("Hel", "lo there.", " How"):
                yield piece
            await first_heard.wait()
            yield " are you?"

        audio = b""
        async with asyncio.timeout(HANG_S):
            async for chunk in WebSocketClient(server).synthesize(written()):
                first_heard.set()
                audio += chunk.data
        assert audio == joined(await collected(WebSocketClient(server).synthesize(TEXT)))

    asyncio.run(scenario())


def test_a_text_without_a_piece_has_nothing_to_speak(server: str) -> None:
    async def nothing() -> AsyncIterator[str]:
        for piece in ():
            yield piece

    with pytest.raises(NothingToSpeak):
        asyncio.run(collected(WebSocketClient(server).synthesize(nothing())))
    with pytest.raises(NothingToSpeak):
        ask(server, "...")


def test_what_fails_at_the_source_of_a_text_reaches_the_caller(server: str) -> None:
    class ModelFailed(Exception):
        pass

    async def failing() -> AsyncIterator[str]:
        yield "Hello there. How"
        raise ModelFailed

    with pytest.raises(ModelFailed):
        asyncio.run(collected(WebSocketClient(server).synthesize(failing())))


def test_a_refused_message_is_the_exception_of_its_code(server: str) -> None:
    with pytest.raises(UnknownVoice, match="af_heart") as caught:
        ask(server, voice="af_hart", request_id="mine")
    assert caught.value.request_id == "mine"


def test_a_session_goes_on_after_a_cancel_and_after_an_error(server: str) -> None:
    async def scenario() -> None:
        async with WebSocketClient(server).session(voice="af_bella", timestamps=True) as session:
            long = await session.say("This is a sentence. " * 200)
            assert (await next_of(session, SynthesisStart)).request_id == long
            await next_of(session, Chunk)
            await session.cancel()
            assert (await next_of(session, SynthesisCancelled)).request_id == long
            bad = await session.say("Hello.", voice="nobody")
            assert (await next_of(session, ErrorFrame)).request_id == bad
            fed = await session.feed("Good")
            await session.feed("bye.")
            await session.end()
            assert (await next_of(session, Words)).words[0].text == "Goodbye."
            assert (await next_of(session, Chunk)).request_id == fed
            await session.close()
            assert (await next_of(session, SynthesisComplete)).total_duration_s > 0
            assert [event async for event in session] == []
            with pytest.raises(BrokenAnswer):
                await session.say("Too late.")

    asyncio.run(scenario())


@asynccontextmanager
async def socket_server(serve_one: Callable[[ServerConnection], Awaitable[None]]) -> AsyncIterator[str]:
    """A WebSocket server that does as `serve_one` says."""
    async with serve(serve_one, "127.0.0.1", 0) as running, asyncio.timeout(HANG_S):
        yield f"http://127.0.0.1:{next(iter(running.sockets)).getsockname()[1]}"


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
        ask(f"{server}/elsewhere")

    async def scenario() -> str:
        async def reply(exchange: Exchange) -> None:
            exchange.writer.write(b"220 this is mail\r\n")
            exchange.writer.close()

        async with http_server(reply) as mail:
            with pytest.raises(UnexpectedAnswer, match="not a WebSocket server"):
                await collected(WebSocketClient(mail.url).synthesize(TEXT))
            return mail.url

    with pytest.raises(Unreachable):
        ask(asyncio.run(scenario()))
