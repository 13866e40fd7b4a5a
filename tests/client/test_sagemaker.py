"""The response stream of SageMaker: the real botocore against a server that speaks the AWS event-stream encoding."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Any

import boto3
import pytest
from botocore.config import Config
from hypothesis import given, settings
from hypothesis import strategies as st

from serve_app.client.errors import BrokenAnswer, UnexpectedAnswer, Unreachable
from serve_app.client.http import Transport
from serve_app.client.sagemaker import SageMakerClient
from serve_app.client.types import Chunk
from serve_app.errors import QueueSaturated
from tests.client.hostile import HANG_S, Exchange, HttpServer, collected, cut, http_server, joined
from tests.client.streams import PCM, aws_error, aws_part, aws_parts, error_event, events

TEXT = "Hello there."
PCM_24K = "audio/pcm;rate=24000"
SSE = "text/event-stream"
EVENT_STREAM = "application/vnd.amazon.eventstream"
ERRORS = ("ModelStreamError", "InternalStreamFailure")


async def stream(exchange: Exchange, content_type: str, slices: Sequence[bytes], *, whole: bool = True) -> None:
    await exchange.answer(EVENT_STREAM, slices, headers={"X-Amzn-SageMaker-Content-Type": content_type}, whole=whole)


def runtime_at(url: str) -> Any:
    return boto3.client(
        "sagemaker-runtime",
        endpoint_url=url,
        region_name="eu-west-1",
        aws_access_key_id="test",
        aws_secret_access_key="test",
        config=Config(retries={"total_max_attempts": 1}),
    )


def client_at(url: str, transport: Transport = "binary") -> SageMakerClient:
    return SageMakerClient("tts", transport, runtime_at(url))


@asynccontextmanager
async def endpoint(
    reply: Callable[[Exchange], Awaitable[None]], transport: Transport = "binary"
) -> AsyncIterator[tuple[HttpServer, SageMakerClient]]:
    async with http_server(reply) as server, aclosing(client_at(server.url, transport)) as client:
        yield server, client


def ask(content_type: str, slices: Sequence[bytes], *, whole: bool = True, heard: list[Chunk] | None = None) -> bytes:
    """The audio from an endpoint whose body comes in these slices of the encoded stream."""

    async def scenario() -> bytes:
        async with endpoint(lambda exchange: stream(exchange, content_type, slices, whole=whole)) as (_, client):
            return joined(await collected(client.synthesize(TEXT), heard))

    return asyncio.run(scenario())


def test_the_request_is_the_contracts_and_goes_to_the_endpoint() -> None:
    async def scenario() -> Exchange:
        async def reply(exchange: Exchange) -> None:
            await stream(exchange, SSE, [aws_part(events())])

        async with endpoint(reply, "sse") as (server, client):
            chunks = await collected(client.synthesize(TEXT, voice="af_bella", request_id="mine"))
            assert {chunk.request_id for chunk in chunks} == {"mine"}
            return server.seen[0]

    exchange = asyncio.run(scenario())
    assert exchange.head.startswith("POST /endpoints/tts/invocations-response-stream ")
    assert json.loads(exchange.body) == {
        "text": TEXT,
        "transport": "sse",
        "format": "pcm",
        "voice": "af_bella",
        "request_id": "mine",
    }


def test_parts_of_odd_length_keep_every_sample() -> None:
    parts = aws_parts([PCM[:1], PCM[1:4], b"", PCM[4:4067], PCM[4067:4069], PCM[4069:]])
    heard: list[Chunk] = []
    assert ask(PCM_24K, [parts], heard=heard) == PCM
    assert all(len(chunk.data) % 2 == 0 for chunk in heard)


@pytest.mark.parametrize("as_event", [False, True])
@pytest.mark.parametrize("name", ERRORS)
def test_two_and_a_half_events_the_rest_and_an_error_are_three_events_and_an_exception(
    name: str, as_event: bool
) -> None:
    whole = events().partition(b"event: audio_stream_end")[0]
    border = len(whole) - 20
    heard: list[Chunk] = []
    with pytest.raises(BrokenAnswer, match=name):
        ask(SSE, [aws_parts([whole[:border], whole[border:]]) + aws_error(name, as_event=as_event)], heard=heard)
    assert [len(chunk.data) for chunk in heard] == [8, 12, 10]
    assert joined(heard) == PCM[:30]


def test_an_error_before_the_first_part_is_raised_too() -> None:
    with pytest.raises(BrokenAnswer, match="ModelStreamError"):
        ask(PCM_24K, [aws_error("ModelStreamError")])


def test_an_error_event_of_the_container_is_the_exception_of_its_code() -> None:
    with pytest.raises(QueueSaturated):
        ask(
            SSE,
            [
                aws_part(events()[:100]),
                aws_part(events()[100:].partition(b"event: audio_stream_end")[0] + error_event()),
            ],
        )


@settings(max_examples=15, deadline=None)
@given(st.lists(st.integers(0, 10_000), max_size=6), st.lists(st.integers(0, 10_000), max_size=6))
def test_neither_the_borders_of_parts_nor_of_reads_matter(parts: list[int], reads: list[int]) -> None:
    assert ask(SSE, cut(aws_parts(cut(events(), parts)), reads)) == PCM[:30]
    assert ask(PCM_24K, cut(aws_parts(cut(PCM, parts)), reads)) == PCM


@pytest.mark.parametrize(("content_type", "body"), [(SSE, events()), (PCM_24K, PCM)], ids=["sse", "binary"])
def test_a_stream_that_breaks_off_is_an_error_and_not_an_end(content_type: str, body: bytes) -> None:
    with pytest.raises(BrokenAnswer):
        ask(content_type, [aws_part(body)[:-5]], whole=False)
    with pytest.raises(BrokenAnswer):
        ask(content_type, [aws_part(body[:-10])], whole=False)


def test_damage_on_the_way_is_noticed() -> None:
    damaged = bytearray(aws_part(PCM))
    damaged[-100] ^= 1
    with pytest.raises(BrokenAnswer):
        ask(PCM_24K, [bytes(damaged)])


def test_an_answer_that_is_no_audio_is_refused() -> None:
    with pytest.raises(UnexpectedAnswer, match="text/html"):
        ask("text/html", [aws_part(b"<p>")])


def refused(status: str, error: str, body: dict[str, object]) -> Exception:
    """What comes of an answer that is an error of the service."""

    async def reply(exchange: Exchange) -> None:
        headers = {"X-Amzn-ErrorType": error}
        await exchange.answer("application/json", [json.dumps(body).encode()], status=status, headers=headers)

    async def scenario() -> Exception:
        async with endpoint(reply) as (server, client):
            with pytest.raises(Exception) as caught:
                await collected(client.synthesize(TEXT))
            assert len(server.seen) == 1
            return caught.value

    return asyncio.run(scenario())


def test_a_refusal_of_the_container_is_the_exception_of_its_code() -> None:
    original = '{"error": "too much is waiting", "code": "queue_saturated", "request_id": "r"}'
    error = refused(
        "424 Failed",
        "ModelError",
        {"Message": "Received 503", "OriginalStatusCode": 503, "OriginalMessage": original},
    )
    assert isinstance(error, QueueSaturated)
    assert (error.message, error.request_id) == ("too much is waiting", "r")


def test_a_refusal_of_the_service_says_what_it_was() -> None:
    error = refused("400 Bad", "ValidationError", {"Message": "Endpoint tts not found"})
    assert isinstance(error, UnexpectedAnswer)
    assert "Endpoint tts not found" in error.message


class WatchedBody:
    """The body of a response; tells when the thread that reads it has gone to wait for the second part."""

    def __init__(self, body: Any) -> None:
        self._body, self._raw_stream, self.close = body, body._raw_stream, body.close
        self.waits = threading.Event()

    def __iter__(self) -> Iterator[Any]:
        parts = iter(self._body)
        yield next(parts)
        self.waits.set()
        yield from parts


class WatchedRuntime:
    def __init__(self, runtime: Any) -> None:
        self._runtime, self.close = runtime, runtime.close
        self.body: WatchedBody | None = None

    def invoke_endpoint_with_response_stream(self, **fields: Any) -> dict[str, Any]:
        response: dict[str, Any] = self._runtime.invoke_endpoint_with_response_stream(**fields)
        self.body = response["Body"] = WatchedBody(response["Body"])
        return response


@pytest.mark.parametrize("reading", [False, True])
def test_closing_early_closes_the_connection_even_while_a_read_waits(reading: bool) -> None:
    async def scenario() -> None:
        gone = asyncio.Event()

        async def reply(exchange: Exchange) -> None:
            lines = f"Content-Type: {EVENT_STREAM}\r\nX-Amzn-SageMaker-Content-Type: audio/pcm\r\n"
            exchange.writer.write(f"HTTP/1.1 200 OK\r\n{lines}Transfer-Encoding: chunked\r\n\r\n".encode())
            part = aws_part(b"ab")
            exchange.writer.write(b"%x\r\n%s\r\n" % (len(part), part))
            await exchange.hung_up()
            gone.set()

        async with http_server(reply) as server:
            runtime = WatchedRuntime(runtime_at(server.url))
            chunks = SageMakerClient("tts", runtime=runtime).synthesize(TEXT)
            assert (await anext(chunks)).data == b"ab"
            if reading:
                next_one = asyncio.ensure_future(anext(chunks))
                assert runtime.body is not None
                assert await asyncio.to_thread(runtime.body.waits.wait, HANG_S)
                next_one.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await next_one
            await chunks.aclose()
            await gone.wait()

    asyncio.run(scenario())


def test_an_answer_that_comes_after_the_caller_has_left_is_hung_up_on() -> None:
    async def scenario() -> None:
        asked, left, gone = asyncio.Event(), asyncio.Event(), asyncio.Event()

        async def reply(exchange: Exchange) -> None:
            asked.set()
            await left.wait()
            lines = f"Content-Type: {EVENT_STREAM}\r\nTransfer-Encoding: chunked\r\n"
            exchange.writer.write(f"HTTP/1.1 200 OK\r\n{lines}\r\n".encode())
            await exchange.hung_up()
            gone.set()

        async with endpoint(reply) as (_, client):
            first = asyncio.ensure_future(anext(client.synthesize(TEXT)))
            await asked.wait()
            first.cancel()
            with pytest.raises(asyncio.CancelledError):
                await first
            left.set()
            await gone.wait()

    asyncio.run(scenario())


def test_nobody_there_is_unreachable() -> None:
    async def scenario() -> None:
        async with http_server(lambda exchange: exchange.hung_up()) as server:
            url = server.url
        async with aclosing(client_at(url)) as client:
            await collected(client.synthesize(TEXT))

    with pytest.raises(Unreachable):
        asyncio.run(scenario())
