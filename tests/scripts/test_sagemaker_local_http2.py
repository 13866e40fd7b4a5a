"""The local endpoint's HTTP/2 side against callers that do as no SDK does: slow, rude, unsigned, broken."""

import asyncio
import json
from contextlib import AsyncExitStack, suppress

import pytest
from websockets.asyncio.server import ServerConnection
from websockets.exceptions import ConnectionClosed

from scripts.local_endpoint.bidirectional import Account
from scripts.local_endpoint.endpoint import local_endpoint
from tests.scripts.local_containers import PATH, echo, raw_connection, websocket_container

FLOOD_FRAMES, FRAME_BYTES = 500, 64 * 1024
FLOOD_BYTES = FLOOD_FRAMES * FRAME_BYTES
"""32 MB: far more than every buffer on the way together."""


def test_a_caller_that_reads_nothing_slows_its_own_stream_only() -> None:
    sent = 0

    async def container(socket: ServerConnection) -> None:
        nonlocal sent
        if await socket.recv() == b"flood":
            for _ in range(FLOOD_FRAMES):
                await socket.send(bytes(FRAME_BYTES))
                sent += 1
        else:
            await echo(socket)

    async def scenario() -> None:
        async with (
            websocket_container(container) as url,
            local_endpoint(url) as endpoint,
            raw_connection(endpoint) as connection,
        ):
            slow = await connection.request()
            slow.reading = False
            await slow.send(await slow.signed(b"flood"))
            await slow.until(lambda: slow.unread_bytes >= 65535)
            brisk = await connection.request()
            await brisk.send(await brisk.signed(b"echo"))
            for at in range(1, 21):
                await brisk.send(await brisk.signed(bytes(100_000)))
                await brisk.until(lambda at=at: len(brisk.data) > at * 100_000)
            assert sent < FLOOD_FRAMES
            slow.read_on()
            await slow.finished()
            assert sum(len(message.payload) for message in slow.messages()) == FLOOD_BYTES

    asyncio.run(scenario())


def test_a_container_that_reads_nothing_slows_its_own_caller_only() -> None:
    released = asyncio.Event()
    received = 0

    async def container(socket: ServerConnection) -> None:
        nonlocal received
        if await socket.recv() == b"slow":
            await released.wait()
            async for frame in socket:
                received += len(frame)
        else:
            await echo(socket)

    async def scenario() -> None:
        async with (
            websocket_container(container) as url,
            local_endpoint(url) as endpoint,
            raw_connection(endpoint) as connection,
        ):
            slow = await connection.request()
            await slow.send(await slow.signed(b"slow"))

            async def flood() -> None:
                for _ in range(FLOOD_FRAMES):
                    await slow.send(await slow.signed(bytes(FRAME_BYTES)))
                await slow.send(await slow.signed(None), end=True)

            flooding = asyncio.create_task(flood())
            brisk = await connection.request()
            await brisk.send(await brisk.signed(b"echo"))
            for at in range(1, 21):
                await brisk.send(await brisk.signed(bytes(100_000)))
                await brisk.until(lambda at=at: len(brisk.data) > at * 100_000)
            assert not flooding.done()
            released.set()
            await flooding
            await slow.finished()
            assert received == FLOOD_BYTES

    asyncio.run(scenario())


@pytest.mark.parametrize("manner", ["vanishes", "resets the stream"])
def test_a_caller_that_goes_away_closes_the_containers_socket(manner: str) -> None:
    left = asyncio.Event()

    async def container(socket: ServerConnection) -> None:
        with suppress(ConnectionClosed):
            while True:
                await socket.send(bytes(FRAME_BYTES))
        left.set()

    async def scenario() -> None:
        ended: asyncio.Queue[Account] = asyncio.Queue()
        async with (
            websocket_container(container) as url,
            local_endpoint(url, ended=ended.put_nowait) as endpoint,
            raw_connection(endpoint) as connection,
        ):
            stream = await connection.request()
            await stream.until(lambda: len(stream.data) > FRAME_BYTES)
            if manner == "vanishes":
                connection.writer.transport.abort()
            else:
                connection.h2.reset_stream(stream.id)
                connection.flush()
            await left.wait()
            assert (await ended.get()).error is None

    asyncio.run(scenario())


def test_leaving_the_endpoint_closes_what_is_open() -> None:
    left = asyncio.Event()

    async def container(socket: ServerConnection) -> None:
        await socket.wait_closed()
        left.set()

    async def scenario() -> None:
        async with websocket_container(container) as url, AsyncExitStack() as callers:
            async with local_endpoint(url) as endpoint:
                connection = await callers.enter_async_context(raw_connection(endpoint))
                stream = await connection.request()
                await stream.until(lambda: stream.status == 200)
            await left.wait()

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("change", "error", "sentence"),
    [
        ({"authorization": None}, "MissingAuthenticationTokenException", "Missing Authentication Token"),
        ({"authorization": "AWS4-HMAC-SHA256 Credential=x"}, "IncompleteSignatureException", "'Signature'"),
        ({"x-amzn-trace-id": "1", "content-type": "text/plain"}, "InvalidSignatureException", "does not match"),
    ],
)
def test_a_request_that_is_not_signed_as_it_should_is_refused_with_403(
    change: dict[str, str | None], error: str, sentence: str
) -> None:
    async def scenario() -> None:
        async with (
            websocket_container(echo) as url,
            local_endpoint(url) as endpoint,
            raw_connection(endpoint) as connection,
        ):
            stream = await (await connection.request(change=change)).finished()
            assert (stream.status, stream.headers["x-amzn-errortype"]) == (403, error)
            assert sentence in json.loads(stream.data)["Message"]

    asyncio.run(scenario())


def test_another_path_is_no_operation() -> None:
    async def scenario() -> None:
        async with (
            websocket_container(echo) as url,
            local_endpoint(url) as endpoint,
            raw_connection(endpoint) as connection,
        ):
            stream = await (await connection.request(path=f"{PATH}/more")).finished()
            assert (stream.status, stream.headers["x-amzn-errortype"]) == (404, "UnknownOperationException")

    asyncio.run(scenario())


@pytest.mark.parametrize("flaw", ["altered", "left out", "not signed at all"])
def test_events_that_break_the_chain_of_signatures_end_the_stream(flaw: str) -> None:
    async def scenario() -> None:
        async with (
            websocket_container(echo) as url,
            local_endpoint(url) as endpoint,
            raw_connection(endpoint) as connection,
        ):
            stream = await connection.request()
            await stream.send(await stream.signed(b"first"))
            await stream.until(lambda: len(stream.data) > 0)
            second, third = await stream.signed(b"second"), await stream.signed(b"third")
            if flaw == "altered":
                other = await (await connection.request()).signed(b"second")
                await stream.send(other)
            elif flaw == "left out":
                await stream.send(third)
            else:
                await stream.send(b"\x00" * len(second))
            await stream.finished()
            first, last = stream.messages()
            assert first.payload == b"first"
            expected = "ValidationException" if flaw == "not signed at all" else "InvalidSignatureException"
            assert (last.headers[":message-type"], last.headers[":error-code"]) == ("error", expected)

    asyncio.run(scenario())


@pytest.mark.parametrize("demanded", [False, True])
def test_an_input_that_ends_without_the_end_frame_is_an_error_where_one_is_demanded(demanded: bool) -> None:
    async def scenario() -> None:
        async with (
            websocket_container(echo) as url,
            local_endpoint(url) as endpoint,
            raw_connection(endpoint) as connection,
        ):
            endpoint.faults.demand_end_frame = demanded
            stream = await connection.request()
            await stream.send(await stream.signed(b"only"), end=True)
            await stream.finished()
            errors = [
                message.headers[":error-code"] for message in stream.messages() if ":error-code" in message.headers
            ]
            assert errors == (["ValidationException"] if demanded else [])

    asyncio.run(scenario())


def test_a_frame_that_breaks_http2_closes_the_connection_and_harms_nobody_else() -> None:
    async def scenario() -> None:
        async with (
            websocket_container(echo) as url,
            local_endpoint(url) as endpoint,
            raw_connection(endpoint) as rude,
            raw_connection(endpoint) as polite,
        ):
            rude.writer.write(bytes(9))  # DATA on stream 0
            await rude.until(lambda: rude.lost)
            stream = await polite.request()
            await stream.send(await stream.signed(b"still here"))
            await stream.until(lambda: b"still here" in stream.data)

    asyncio.run(scenario())
