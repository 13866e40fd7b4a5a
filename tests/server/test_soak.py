"""What clients of every kind hold is bounded while they are there, and given back when they are gone."""

import asyncio
import itertools
import json

import httpx
import psutil
import pytest
import websockets

from scripts.running import bare_running
from serve_app.formats import FORMATS

REQUESTS = 500
AT_ONCE = 8
LONG = "This sentence is long and slow, so that a server without a bound would soon hold much. "


async def whole(client: httpx.AsyncClient, audio_format: str) -> None:
    request = {"text": "One is here. Two is here.", "format": audio_format, "stream": False}
    answer = await client.post("/invocations", json=request)
    assert answer.status_code == 200
    assert answer.content


async def abandoned(client: httpx.AsyncClient, audio_format: str) -> None:
    request = {"text": "One is here. Two is here. " * 20, "format": audio_format}
    async with client.stream("POST", "/invocations", json=request) as answer:
        await anext(answer.aiter_raw())


async def events(client: httpx.AsyncClient, audio_format: str) -> None:
    request = {"text": "One is here.", "format": audio_format, "transport": "sse"}
    answer = await client.post("/invocations", json=request)
    assert b"audio_stream_end" in answer.content


async def session(address: str, audio_format: str) -> None:
    async with websockets.connect(address) as socket:
        await socket.send(json.dumps({"text": "One is here.", "format": audio_format}))
        await socket.send(json.dumps({"type": "close"}))
        kinds = [json.loads(frame)["type"] async for frame in socket if isinstance(frame, str)]
    assert kinds == ["synthesis_start", "synthesis_complete"]


async def many(http: str, address: str, requests: int) -> None:
    places = asyncio.Semaphore(AT_ONCE)
    kinds = itertools.cycle((whole, abandoned, events, session))
    formats = itertools.cycle(FORMATS)

    async def one(kind, audio_format, client):
        async with places:
            await kind(address if kind is session else client, audio_format)

    async with httpx.AsyncClient(base_url=http, timeout=60) as client, asyncio.TaskGroup() as tasks:
        for _ in range(requests):
            tasks.create_task(one(next(kinds), next(formats), client))


@pytest.fixture(scope="module")
def running():
    with bare_running() as running:
        yield running


def test_five_hundred_mixed_requests_leave_memory_and_handles_where_they_were(running):
    server = psutil.Process(running.process.pid)
    asyncio.run(many(running.http, running.websocket, 100))  # libraries, codecs, the allocator's arenas
    memory, handles = server.memory_info().rss, server.num_fds()
    asyncio.run(many(running.http, running.websocket, REQUESTS))
    assert server.memory_info().rss - memory < 30 << 20
    assert server.num_fds() <= handles + AT_ONCE
    assert httpx.get(f"{running.http}/ping").status_code == 200


async def beside_one_that_never_reads(address: str, utterances: int, server: psutil.Process) -> int:
    """One client asks for the better part of an hour of audio and reads none; another is served all the while.

    Returns the server's memory at the end of it.
    """
    async with websockets.connect(address, max_queue=1) as silent, websockets.connect(address) as other:
        await silent.send(json.dumps({"text": LONG * 300, "speed": 0.25}))
        for _ in range(utterances):
            await other.send(json.dumps({"text": "One is here."}))
            async with asyncio.timeout(10):
                while b'"synthesis_complete"' not in as_bytes(await other.recv()):
                    pass
        memory = server.memory_info().rss
        silent.transport.abort()
    return memory


def as_bytes(frame: str | bytes) -> bytes:
    return frame.encode() if isinstance(frame, str) else frame


def test_a_client_that_never_reads_costs_bounded_memory_and_stops_nobody(running):
    server = psutil.Process(running.process.pid)
    before, after = (asyncio.run(beside_one_that_never_reads(running.websocket, count, server)) for count in (5, 100))
    assert after - before < 4 << 20
    assert httpx.get(f"{running.http}/ping").status_code == 200
