"""Borders that mean nothing: whatever a container writes, its payload parts are cut elsewhere."""

import asyncio
import math
from collections.abc import AsyncGenerator, AsyncIterator
from random import Random

MAX_WAITING_CHUNKS = 16


def cut(data: bytes, sizes: Random) -> list[bytes]:
    """`data` in parts whose lengths are as likely a few bytes as nearly all; two at least, if there are two bytes."""
    parts = []
    while len(data) > 1:
        size = int(2 ** sizes.uniform(0, math.log2(len(data))))
        parts.append(data[:size])
        data = data[size:]
    return [*parts, data] if data else parts


async def odd_parts(chunks: AsyncIterator[bytes], seed: int) -> AsyncGenerator[bytes, None]:
    """The same bytes in other slices, the same ones for the same chunks and seed as long as the reader keeps up.

    Nothing waits for bytes that have not come yet: a part crosses the border of two chunks only when both are there.
    Raises what `chunks` raises, after all that came before.
    """
    sizes = Random(seed)
    waiting: asyncio.Queue[bytes | None] = asyncio.Queue(MAX_WAITING_CHUNKS)
    reading = asyncio.create_task(_read(chunks, waiting))
    try:
        rest = b""
        while (chunk := await waiting.get()) is not None:
            *parts, rest = cut(rest + chunk, sizes)
            if waiting.empty():
                parts, rest = [*parts, rest], b""
            for part in parts:
                yield part
        if rest:
            yield rest
        await reading
    finally:
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)


async def _read(chunks: AsyncIterator[bytes], waiting: "asyncio.Queue[bytes | None]") -> None:
    try:
        async for chunk in chunks:
            if chunk:
                await waiting.put(chunk)
    except Exception:
        await waiting.put(None)
        raise
    await waiting.put(None)
