"""POST /invocations over real sockets: the product's own server, and servers that misbehave."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing

import pytest

from serve_app.client.errors import BrokenAnswer, UnexpectedAnswer, Unreachable
from serve_app.client.http import HttpClient, Transport
from serve_app.client.types import Audio, Chunk, Options
from serve_app.errors import NothingToSpeak, QueueSaturated, SpeechError, UnknownVoice
from tests.client.hostile import Exchange, collected, http_server, joined
from tests.client.streams import PCM, error_event, events

TEXT = "Hello there. How are you?"
PCM_24K = "audio/pcm;rate=24000"
SSE = "text/event-stream"
TRANSPORTS: tuple[Transport, ...] = ("binary", "sse")


def ask(server: str, transport: Transport = "binary", text: str = TEXT, **options: object) -> bytes:
    """The audio of one answer."""

    async def scenario() -> bytes:
        async with aclosing(HttpClient(server, transport)) as client:
            return joined(await collected(client.synthesize(text, **options)))  # type: ignore[arg-type]

    return asyncio.run(scenario())


def ask_hostile(reply: Callable[[Exchange], Awaitable[None]], transport: Transport = "binary") -> bytes:
    """The audio of one answer of a server that does as `reply` says."""

    async def scenario() -> bytes:
        async with http_server(reply) as server, aclosing(HttpClient(server.url, transport)) as client:
            return joined(await collected(client.synthesize(TEXT)))

    return asyncio.run(scenario())


def test_binary_and_sse_give_the_same_audio(server: str) -> None:
    binary, sse = (ask(server, transport) for transport in TRANSPORTS)
    assert binary == sse
    assert len(binary) > 24000


def test_a_rate_that_was_asked_for_is_in_the_chunks(server: str) -> None:
    async def scenario(transport: Transport) -> set[Audio]:
        async with aclosing(HttpClient(server, transport)) as client:
            return {chunk.audio for chunk in await collected(client.synthesize(TEXT, sample_rate=8000))}

    assert [asyncio.run(scenario(transport)) for transport in TRANSPORTS] == [{Audio("pcm", 8000)}] * 2


def test_encoded_audio_is_handed_out_as_it_is(server: str) -> None:
    assert ask(server, format="wav").startswith(b"RIFF")
    assert ask(server, "sse", format="flac").startswith(b"fLaC")


def test_words_come_with_their_audio(server: str) -> None:
    async def scenario() -> list[str]:
        async with aclosing(HttpClient(server, "sse")) as client:
            chunks = await collected(client.synthesize(TEXT, timestamps=True))
            return [word.text for chunk in chunks if chunk.data for word in chunk.words]

    assert " ".join(asyncio.run(scenario())) == TEXT


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_refusal_is_the_exception_of_its_code(server: str, transport: Transport) -> None:
    with pytest.raises(UnknownVoice, match="af_heart") as caught:
        ask(server, transport, voice="af_hart", request_id="mine")
    assert caught.value.request_id == "mine"
    with pytest.raises(NothingToSpeak):
        ask(server, transport, text="...")


def test_half_a_character_in_a_text_is_no_reason_to_fail(server: str) -> None:
    assert ask(server, text="Hello \ud83c there.") == ask(server, text="Hello  there.")


def test_a_text_in_pieces_is_sent_as_one(server: str) -> None:
    async def pieces() -> AsyncIterator[str]:
        for character in TEXT:
            yield character

    async def scenario() -> bytes:
        async with aclosing(HttpClient(server)) as client:
            return joined(await collected(client.synthesize(pieces())))

    assert asyncio.run(scenario()) == ask(server)


@pytest.mark.parametrize(
    ("content_type", "stream"), [(SSE, events().replace(b"\n", b"\r\n")), (PCM_24K, PCM[:30])], ids=["sse", "binary"]
)
def test_an_answer_cut_at_every_byte_is_the_same_audio(content_type: str, stream: bytes) -> None:
    async def scenario() -> None:
        async def reply(exchange: Exchange) -> None:
            border = int(json.loads(exchange.body)["text"])
            slices = [bytes([byte]) for byte in stream] if border < 0 else [stream[:border], stream[border:]]
            await exchange.answer(content_type, slices)

        async with http_server(reply) as server, aclosing(HttpClient(server.url)) as client:
            for border in range(-1, len(stream) + 1):
                chunks = await collected(client.synthesize(str(border)))
                assert joined(chunks) == PCM[:30]
                assert all(len(chunk.data) % 2 == 0 for chunk in chunks)
            assert len({exchange.writer for exchange in server.seen}) == 1, "the connection is used again"

    asyncio.run(scenario())


def test_the_content_type_counts_and_not_what_was_asked() -> None:
    assert ask_hostile(lambda exchange: exchange.answer(SSE, [events()]), "binary") == PCM[:30]
    assert ask_hostile(lambda exchange: exchange.answer(PCM_24K, [PCM]), "sse") == PCM
    with pytest.raises(UnexpectedAnswer, match="text/html"):
        ask_hostile(lambda exchange: exchange.answer("text/html", [b"<p>Welcome to the proxy</p>"]))


@pytest.mark.parametrize(("content_type", "stream"), [(SSE, events()), (PCM_24K, PCM)], ids=["sse", "binary"])
def test_a_body_that_breaks_off_is_an_error_and_not_an_end(content_type: str, stream: bytes) -> None:
    async def scenario() -> None:
        heard: list[Chunk] = []
        async with (
            http_server(lambda exchange: exchange.answer(content_type, [stream], whole=False)) as server,
            aclosing(HttpClient(server.url)) as client,
        ):
            with pytest.raises(BrokenAnswer, match="broke off"):
                await collected(client.synthesize(TEXT), heard)
        assert joined(heard) in (PCM, PCM[:30])

    asyncio.run(scenario())


def test_an_error_event_after_audio_is_the_exception_of_its_code() -> None:
    stream = events().partition(b"event: audio_stream_end")[0] + error_event()
    with pytest.raises(QueueSaturated, match="too much is waiting"):
        ask_hostile(lambda exchange: exchange.answer(SSE, [stream]))


def test_a_server_that_hangs_up_before_it_answers_is_not_asked_again() -> None:
    async def scenario() -> int:
        async def reply(exchange: Exchange) -> None:
            exchange.writer.close()

        async with http_server(reply) as server, aclosing(HttpClient(server.url)) as client:
            with pytest.raises(BrokenAnswer, match="before it answered"):
                await collected(client.synthesize(TEXT))
            return len(server.seen)

    assert asyncio.run(scenario()) == 1


def refused_first(times: int, retry_after: str | None) -> tuple[int, SpeechError | bytes]:
    """How often a server is asked that says 503 so many times, and what comes of it."""

    async def scenario() -> tuple[int, SpeechError | bytes]:
        left = times

        async def reply(exchange: Exchange) -> None:
            nonlocal left
            if left:
                left -= 1
                body = b'{"error": "too much is waiting", "code": "queue_saturated", "request_id": "r"}'
                headers = {} if retry_after is None else {"Retry-After": retry_after}
                await exchange.answer("application/json", [body], status="503 Busy", headers=headers)
            else:
                await exchange.answer(PCM_24K, [PCM])

        async with http_server(reply) as server, aclosing(HttpClient(server.url)) as client:
            outcome: SpeechError | bytes
            try:
                outcome = joined(await collected(client.synthesize(TEXT)))
            except SpeechError as exc:
                outcome = exc
            assert len({exchange.body for exchange in server.seen}) == 1
            return len(server.seen), outcome

    return asyncio.run(scenario())


def test_a_busy_server_that_says_when_to_come_back_is_asked_again() -> None:
    assert refused_first(2, "0") == (3, PCM)


@pytest.mark.parametrize(("retry_after", "asked"), [("0", 3), (None, 1), ("3600", 1)])
def test_asking_again_has_a_bound(retry_after: str | None, asked: int) -> None:
    times, outcome = refused_first(100, retry_after)
    assert times == asked
    assert isinstance(outcome, QueueSaturated)


def test_closing_early_closes_the_connection() -> None:
    async def scenario() -> None:
        gone = asyncio.Event()

        async def reply(exchange: Exchange) -> None:
            exchange.writer.write(
                b"HTTP/1.1 200 OK\r\nContent-Type: audio/pcm\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n"
            )
            await exchange.hung_up()
            gone.set()

        async with http_server(reply) as server, aclosing(HttpClient(server.url)) as client:
            async with aclosing(client.synthesize(TEXT)) as chunks:
                assert (await anext(chunks)).data == b"ab"
            await gone.wait()
            gone.clear()
            async with aclosing(client.synthesize(TEXT)) as chunks:
                await anext(chunks)
                waiting = asyncio.ensure_future(anext(chunks))
                await asyncio.sleep(0)
                waiting.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await waiting
            await gone.wait()

    asyncio.run(scenario())


def test_nobody_there_is_unreachable() -> None:
    async def scenario() -> str:
        async with http_server(lambda exchange: exchange.hung_up()) as server:
            return server.url

    with pytest.raises(Unreachable):
        ask(asyncio.run(scenario()))


def test_options_left_out_are_the_servers_choice() -> None:
    async def scenario() -> dict[str, object]:
        async with http_server(lambda exchange: exchange.answer(PCM_24K, [PCM])) as server:
            async with aclosing(HttpClient(server.url, "sse")) as client:
                options: Options = {"voice": "af_bella"}
                await collected(client.synthesize(TEXT, **options))
            fields: dict[str, object] = json.loads(server.seen[0].body)
            return fields

    fields = asyncio.run(scenario())
    assert isinstance(fields.pop("request_id"), str)
    assert fields == {"text": TEXT, "transport": "sse", "format": "pcm", "voice": "af_bella"}
