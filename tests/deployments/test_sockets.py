"""What a client's WebSocket may have a replica hold: a real server, a real socket, and frames that no library sends."""

import asyncio
import json
import sys
import zlib
from contextlib import asynccontextmanager
from socket import SO_RCVBUF, SO_SNDBUF, SOL_SOCKET

import pytest
import uvicorn.config
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosedError
from websockets.frames import CloseCode, Frame, Opcode

from serve_app.deployments.sockets import MAX_UNREAD_BYTES, TIMES_TOO_LARGE, bound_websockets
from serve_app.engine.fake import FakeEngine
from tests.asgi import turns_until
from tests.fakes import app_over

PATH = "/invocations-bidirectional-stream"
HANG_S = 10.0
"""Bounds a hang."""

MAX_BODY_BYTES = 2_000
DEFLATED = 0x40  # RFC 7692, section 6
UPGRADE = (
    f"GET {PATH} HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: MDEyMzQ1Njc4OTAxMjM0NQ==\r\n\r\n"
).encode()
LARGEST_READ_BYTES = 256 * 1024
"""That asyncio hands to a protocol at once."""


@pytest.fixture(autouse=True)
def limits(monkeypatch):
    """Those in force, which may change. What is changed in uvicorn is put back."""
    monkeypatch.setitem(uvicorn.config.WS_PROTOCOLS, "auto", uvicorn.config.WS_PROTOCOLS["auto"])
    limits = {"max_body_bytes": MAX_BODY_BYTES}
    bound_websockets(lambda: limits["max_body_bytes"])
    return limits


class Server:
    """One of the real routes."""

    def __init__(self, server):
        self._server = server
        self.port = server.servers[0].sockets[0].getsockname()[1]
        self.url = f"ws://127.0.0.1:{self.port}{PATH}"

    @property
    def ends(self):
        """Its ends of the connections that are open."""
        return self._server.server_state.connections

    @property
    def end(self):
        """Of the one that is."""
        (end,) = self.ends
        return end


@asynccontextmanager
async def serving():
    app = app_over(FakeEngine(), max_body_bytes=MAX_BODY_BYTES)
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error"))
    running = asyncio.create_task(server.serve())
    await turns_until(lambda: server.started)
    try:
        yield Server(server)
    finally:
        server.should_exit = True
        await running


def run(scenario):
    async def bounded():
        async with asyncio.timeout(HANG_S), serving() as server:
            await scenario(server)

    asyncio.run(bounded())


def write(socket, *frames):
    """Put frames on the wire as they are."""
    socket.transport.write(b"".join(frame.serialize(mask=True) for frame in frames))


async def answers(socket):
    """Whether the session lives on."""
    await socket.send('{"type": "ping"}')
    return json.loads(await socket.recv()) == {"type": "pong"}


async def ended_with(socket):
    with pytest.raises(ConnectionClosedError) as closed:
        await socket.recv()
    return closed.value.rcvd.code


def test_a_message_that_is_a_little_too_large_is_told_so_in_one_piece_or_many():
    async def scenario(server):
        async with connect(server.url) as socket:
            message = "x" * TIMES_TOO_LARGE * MAX_BODY_BYTES
            for sent in (message, message.encode(), [message[:1000], message[1000:]]):
                await socket.send(sent)
                assert json.loads(await socket.recv())["code"] == "text_too_long"
            assert await answers(socket)

    run(scenario)


def test_a_message_past_that_ends_the_connection_before_it_is_there():
    """Its head alone, which says how long it is."""

    async def scenario(server):
        async with connect(server.url) as socket:
            frame = Frame(Opcode.TEXT, bytes(TIMES_TOO_LARGE * MAX_BODY_BYTES + 1)).serialize(mask=True)
            socket.transport.write(frame[:14])
            assert await ended_with(socket) == CloseCode.MESSAGE_TOO_BIG

    run(scenario)


def test_who_sends_on_past_that_is_told_all_the_same():
    """More than every buffer on the way holds, and read only when all of it has left: no library's client does so."""

    async def scenario(server):
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(UPGRADE)
        assert b" 101 " in await reader.readuntil(b"\r\n\r\n")
        writer.write(Frame(Opcode.TEXT, bytes(20_000_000)).serialize(mask=True))
        await writer.drain()
        head, _, *code = await reader.readexactly(4)
        assert (head & 0x0F, int.from_bytes(code)) == (Opcode.CLOSE, CloseCode.MESSAGE_TOO_BIG)
        writer.close()
        await turns_until(lambda: not server.ends)

    run(scenario)


@pytest.mark.parametrize("fragment_bytes", [1, 1000])
def test_the_bound_holds_for_the_sum_of_the_fragments_of_a_message_that_never_ends(fragment_bytes):
    async def scenario(server):
        async with connect(server.url) as socket:
            fragment = bytes(fragment_bytes)
            write(socket, Frame(Opcode.BINARY, fragment, fin=False))
            held = TIMES_TOO_LARGE * MAX_BODY_BYTES // fragment_bytes - 1
            write(socket, *(Frame(Opcode.CONT, fragment, fin=False) for _ in range(held)))
            await turns_until(lambda: len(server.end.fragments) == TIMES_TOO_LARGE * MAX_BODY_BYTES)
            write(socket, Frame(Opcode.CONT, b"x", fin=False))
            assert await ended_with(socket) == CloseCode.MESSAGE_TOO_BIG

    run(scenario)


def test_fragments_weigh_their_bytes_and_empty_ones_nothing():
    async def scenario(server):
        async with connect(server.url) as socket:
            empty = (Frame(Opcode.CONT, b"", fin=False) for _ in range(5000))
            small = (Frame(Opcode.CONT, b" ", fin=False) for _ in range(1500))
            write(socket, Frame(Opcode.TEXT, b'{"type":', fin=False), *empty, *small)
            await turns_until(lambda: len(server.end.fragments) == 1508)
            assert sys.getsizeof(server.end.fragments) < 2 * 1508
            assert server.end.frames == []
            write(socket, Frame(Opcode.CONT, b'"ping"}'))
            assert json.loads(await socket.recv()) == {"type": "pong"}

    run(scenario)


def test_nothing_is_deflated_whatever_a_client_offers_and_what_is_all_the_same_is_refused():
    async def scenario(server):
        async with connect(server.url, compression="deflate") as socket:
            assert "permessage-deflate" in socket.request.headers["Sec-WebSocket-Extensions"]
            assert "Sec-WebSocket-Extensions" not in socket.response.headers
            assert await answers(socket)
            packer = zlib.compressobj(wbits=-15)
            three_million = packer.compress(bytes(3_000_000)) + packer.flush(zlib.Z_SYNC_FLUSH)
            assert len(three_million) < TIMES_TOO_LARGE * MAX_BODY_BYTES
            frame = bytearray(Frame(Opcode.BINARY, three_million, fin=False).serialize(mask=True))
            frame[0] |= DEFLATED
            socket.transport.write(frame)
            assert await ended_with(socket) == CloseCode.PROTOCOL_ERROR

    run(scenario)


def test_another_limit_holds_for_the_next_connection(limits):
    async def scenario(server):
        message = "x" * (TIMES_TOO_LARGE * MAX_BODY_BYTES + 1)
        async with connect(server.url) as before:
            limits["max_body_bytes"] += 1
            async with connect(server.url) as after:
                await after.send(message)
                assert json.loads(await after.recv())["code"] == "text_too_long"
            await before.send(message)
            assert await ended_with(before) == CloseCode.MESSAGE_TOO_BIG

    run(scenario)


def test_pongs_do_not_pile_up_for_a_client_that_reads_nothing():
    async def scenario(server):
        async with connect(server.url, ping_interval=None) as socket:
            server.end.transport.get_extra_info("socket").setsockopt(SOL_SOCKET, SO_SNDBUF, 65536)
            socket.transport.get_extra_info("socket").setsockopt(SOL_SOCKET, SO_RCVBUF, 65536)
            socket.transport.pause_reading()
            pings = 4 * MAX_UNREAD_BYTES // 125
            write(socket, *(Frame(Opcode.PING, bytes(125)) for _ in range(pings)))
            write(socket, Frame(Opcode.TEXT, b'{"type":', fin=False))
            await turns_until(lambda: server.end.frames)  # all pings are behind it
            unread = server.end.transport.get_write_buffer_size()
            assert MAX_UNREAD_BYTES <= unread < MAX_UNREAD_BYTES + LARGEST_READ_BYTES
            socket.transport.resume_reading()
            write(socket, Frame(Opcode.CONT, b'"ping"}'))
            assert json.loads(await socket.recv()) == {"type": "pong"}

    run(scenario)


def test_uvicorn_speaks_by_the_protocol_that_is_changed_here(monkeypatch):
    """Ray's servers take whatever uvicorn calls `auto`."""
    monkeypatch.undo()
    config = uvicorn.Config(app_over(FakeEngine()))
    config.load()
    assert config.ws_protocol_class is WebSocketsSansIOProtocol
