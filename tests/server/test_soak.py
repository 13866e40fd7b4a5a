"""Five hundred requests of every kind, a third of them abandoned: what they held is given back."""

import asyncio
import itertools
import json

import httpx
import psutil
import websockets

from scripts.running import bare_running
from serve_app.formats import FORMATS

REQUESTS = 500
AT_ONCE = 8


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


def test_five_hundred_mixed_requests_leave_memory_and_handles_where_they_were():
    with bare_running() as running:
        server = psutil.Process(running.process.pid)
        asyncio.run(many(running.http, running.websocket, 100))  # libraries, codecs, the allocator's arenas
        memory, handles = server.memory_info().rss, server.num_fds()
        asyncio.run(many(running.http, running.websocket, REQUESTS))
        assert server.memory_info().rss - memory < 30 << 20
        assert server.num_fds() <= handles + AT_ONCE
        assert httpx.get(f"{running.http}/ping").status_code == 200
