"""Where response streams are cut."""

import asyncio
from collections.abc import AsyncIterator
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scripts.local_endpoint.slicing import cut, odd_parts
from tests.client.hostile import HANG_S


@given(st.binary(max_size=2000), st.integers())
def test_a_cut_loses_nothing_and_spares_nothing(data: bytes, seed: int) -> None:
    parts = cut(data, Random(seed))
    assert b"".join(parts) == data
    assert all(parts)
    assert len(parts) > 1 or len(data) < 3


async def at_once(chunks: list[bytes]) -> AsyncIterator[bytes]:
    for chunk in chunks:
        yield chunk


def parts_of(chunks: list[bytes], seed: int = 0) -> list[bytes]:
    async def scenario() -> list[bytes]:
        return [part async for part in odd_parts(at_once(chunks), seed)]

    return asyncio.run(scenario())


def test_parts_cross_the_borders_of_chunks_that_are_already_there() -> None:
    chunks = [bytes([at]) * 50 for at in range(100)]
    parts = parts_of(chunks)
    assert b"".join(parts) == b"".join(chunks)
    assert any(len(set(part)) > 1 for part in parts)


def test_the_seed_decides() -> None:
    chunks = [bytes(1000)]
    assert parts_of(chunks, 1) == parts_of(chunks, 1)
    assert parts_of(chunks, 1) != parts_of(chunks, 2)


def test_nothing_waits_for_a_chunk_that_has_not_come() -> None:
    async def scenario() -> None:
        more = asyncio.Event()

        async def chunks() -> AsyncIterator[bytes]:
            yield b"first chunk"
            await more.wait()
            yield b"second"

        parts = odd_parts(chunks(), 0)
        heard = b""
        async with asyncio.timeout(HANG_S):
            while heard != b"first chunk":
                heard += await anext(parts)
            more.set()
            assert b"".join([part async for part in parts]) == b"second"

    asyncio.run(scenario())


def test_what_breaks_the_chunks_comes_after_all_of_them() -> None:
    async def scenario() -> None:
        async def chunks() -> AsyncIterator[bytes]:
            yield b"whole"
            raise ConnectionResetError

        heard = bytearray()

        async def listen() -> None:
            async for part in odd_parts(chunks(), 0):
                heard.extend(part)

        with pytest.raises(ConnectionResetError):
            await listen()
        assert heard == b"whole"

    asyncio.run(scenario())
