"""The clients without an event loop, over real sockets."""

import asyncio
import threading

import pytest

from serve_app.client.blocking import BlockingClient
from serve_app.client.http import HttpClient
from serve_app.client.session import SessionClient, Words
from serve_app.client.types import Chunk
from serve_app.client.websocket import WebSocketClient
from serve_app.errors import UnknownVoice
from serve_app.protocol.messages import SynthesisCancelled, SynthesisComplete, SynthesisStart
from tests.client.hostile import HANG_S, Exchange, http_server, joined

TEXT = "Hello there. How are you?"


def test_both_clients_give_the_same_audio(server: str) -> None:
    with BlockingClient(HttpClient(server)) as http, BlockingClient(WebSocketClient(server)) as socket:
        first = joined(http.synthesize(TEXT))
        assert joined(socket.synthesize(TEXT)) == first
        assert joined(http.synthesize(TEXT)) == first


def test_it_works_inside_a_running_event_loop(server: str) -> None:
    async def notebook() -> int:
        with BlockingClient(WebSocketClient(server)) as client:
            return len(joined(client.synthesize(TEXT)))

    assert asyncio.run(notebook()) > 0


def test_a_refusal_is_raised_to_the_caller(server: str) -> None:
    with BlockingClient(HttpClient(server)) as client, pytest.raises(UnknownVoice):
        joined(client.synthesize(TEXT, voice="nobody"))


def test_leaving_a_loop_early_closes_the_connection() -> None:
    async def scenario() -> None:
        gone = threading.Event()

        async def reply(exchange: Exchange) -> None:
            head = "HTTP/1.1 200 OK\r\nContent-Type: audio/pcm\r\nTransfer-Encoding: chunked\r\n\r\n"
            exchange.writer.write(f"{head}2\r\nab\r\n".encode())
            await exchange.hung_up()
            gone.set()

        def listen(url: str) -> bytes:
            with BlockingClient(HttpClient(url)) as client:
                heard = b""
                for chunk in client.synthesize(TEXT):
                    heard += chunk.data
                    break
                assert gone.wait(HANG_S / 2), "not when the client is closed"
                return heard

        async with http_server(reply) as hostile:
            assert await asyncio.to_thread(listen, hostile.url) == b"ab"

    asyncio.run(scenario())


def test_a_generator_that_is_dropped_after_its_client_is_no_error(server: str) -> None:
    with BlockingClient(WebSocketClient(server)) as client:
        chunks = client.synthesize(TEXT)
        next(chunks)
    chunks.close()


def test_a_session_is_fed_by_one_thread_and_heard_by_another(client: SessionClient) -> None:
    with BlockingClient(client) as blocking, blocking.session(timestamps=True) as session:

        def write() -> None:
            for piece in ("Hello ", "there."):
                session.feed(piece)
            session.end()
            session.say("This is a sentence. " * 200, request_id="long")

        writer = threading.Thread(target=write)
        writer.start()
        seen: list[type] = []
        for event in session:
            seen.append(type(event))
            if event == SynthesisStart("long"):
                session.cancel("long")
            if isinstance(event, SynthesisCancelled):
                session.close()
        writer.join(HANG_S)
    assert seen[:4] == [SynthesisStart, Words, Chunk, SynthesisComplete]
    assert seen[-1] is SynthesisCancelled


def test_only_transports_that_go_both_ways_have_sessions() -> None:
    with (
        BlockingClient(HttpClient("http://127.0.0.1:9")) as client,
        pytest.raises(TypeError, match="WebSocketClient"),
        client.session(),
    ):
        pass
