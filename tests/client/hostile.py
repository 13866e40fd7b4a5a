"""HTTP servers that do as a test tells them, byte by byte, and what a client makes of it."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from serve_app.client.types import Chunk

HANG_S = 20.0
"""Bounds a hang; nothing waits for it otherwise."""


@dataclass
class Exchange:
    """One request, and the connection to answer it on."""

    head: str
    body: bytes
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def answer(
        self,
        content_type: str,
        slices: Iterable[bytes],
        *,
        status: str = "200 OK",
        headers: dict[str, str] | None = None,
        whole: bool = True,
    ) -> None:
        """A chunked body; every slice is a chunk of its own, which HTTP clients do not join. Not `whole`: it breaks."""
        lines = {"Content-Type": content_type, "Transfer-Encoding": "chunked", **(headers or {})}
        head = f"HTTP/1.1 {status}\r\n" + "".join(f"{name}: {value}\r\n" for name, value in lines.items()) + "\r\n"
        self.writer.write(head.encode())
        for data in slices:
            if data:
                self.writer.write(b"%x\r\n%s\r\n" % (len(data), data))
        if whole:
            self.writer.write(b"0\r\n\r\n")
            await self.writer.drain()
        else:
            await self.writer.drain()
            self.writer.close()

    async def hung_up(self) -> None:
        """Wait until the client has closed the connection."""
        async with asyncio.timeout(HANG_S):
            try:
                while await self.reader.read(65536):
                    pass
            except ConnectionResetError:
                pass


@dataclass
class HttpServer:
    """Where it listens, and what it was asked."""

    url: str = ""
    seen: list[Exchange] = field(default_factory=list)


@asynccontextmanager
async def http_server(reply: Callable[[Exchange], Awaitable[None]]) -> AsyncIterator[HttpServer]:
    """A server on a port of its own that leaves every answer to `reply`."""
    running = HttpServer()
    failures: list[BaseException] = []

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while not writer.is_closing():
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                lengths = [int(line[15:]) for line in head.split("\r\n") if line.lower().startswith("content-length:")]
                exchange = Exchange(head, await reader.readexactly(sum(lengths)), reader, writer)
                running.seen.append(exchange)
                await reply(exchange)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        except Exception as exc:
            failures.append(exc)
        finally:
            writer.close()

    listener = await asyncio.start_server(connected, "127.0.0.1", 0)
    running.url = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
    try:
        async with asyncio.timeout(HANG_S):
            yield running
    finally:
        listener.close()
    assert not failures, failures


async def collected(chunks: AsyncIterator[Chunk], heard: list[Chunk] | None = None) -> list[Chunk]:
    """All of an answer; `heard` has what came before it failed."""
    heard = [] if heard is None else heard
    async with asyncio.timeout(HANG_S):
        async for chunk in chunks:
            heard.append(chunk)
    return heard


def joined(chunks: Iterable[Chunk]) -> bytes:
    """The audio of an answer."""
    return b"".join(chunk.data for chunk in chunks)


def cut(stream: bytes, borders: Iterable[int]) -> list[bytes]:
    """A stream cut at the given places."""
    places = [0, *sorted(border % (len(stream) + 1) for border in borders), len(stream)]
    return [stream[start:end] for start, end in zip(places, places[1:], strict=False)]
