"""A server that exits as Ray Serve has a replica's server exit: a real one, on a real socket."""

import asyncio
import json

import pytest
import uvicorn.config
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from serve_app.deployments import leaving
from serve_app.deployments.sockets import bound_websockets
from serve_app.engine.fake import FakeEngine
from tests.asgi import turns_until
from tests.fakes import app_over

PATH = "/invocations-bidirectional-stream"
HANG_S = 10.0
"""Bounds a hang."""


class Replica:
    """What is replaced of Ray's."""

    def __init__(self):
        self.told_to_stop = asyncio.Event()

    async def perform_graceful_shutdown(self):
        self.told_to_stop.set()


@pytest.fixture(autouse=True)
def replica(monkeypatch):
    """A stopped replica in place of Ray's; what is changed is put back."""
    assert callable(leaving.replica.Replica.perform_graceful_shutdown)
    monkeypatch.setattr(leaving.replica, "Replica", type("Replica", (Replica,), {}))
    monkeypatch.setattr(leaving, "UNROUTED_AFTER_S", 0.0)
    monkeypatch.setitem(uvicorn.config.WS_PROTOCOLS, "auto", uvicorn.config.WS_PROTOCOLS["auto"])
    return leaving.replica.Replica


def test_its_sessions_finish_the_message_in_hand_and_idle_ones_close_at_once(replica):
    async def scenario():
        engine = FakeEngine(gated=True)
        app = app_over(engine)
        leaving.leave_when_stopped(lambda: app.leave_soon(HANG_S))
        bound_websockets(lambda: 1_000_000)
        server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error"))
        serving = asyncio.create_task(server.serve())
        await turns_until(lambda: server.started)
        url = f"ws://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}{PATH}"
        async with connect(url) as speaking, connect(url) as idle:
            await speaking.send(json.dumps({"text": "One is here.", "request_id": "in hand"}))
            assert json.loads(await speaking.recv())["type"] == "synthesis_start"
            stopped = replica()
            await stopped.perform_graceful_shutdown()
            assert stopped.told_to_stop.is_set()
            server.should_exit = True
            with pytest.raises(ConnectionClosed):
                await idle.recv()
            assert idle.close_code == 1001
            await turns_until(lambda: not server.servers[0].is_serving())
            with pytest.raises(OSError):
                await connect(url)
            engine.allow(1)
            frames = [frame async for frame in speaking]
            assert json.loads(frames[-1])["type"] == "synthesis_complete"
            assert sum(len(frame) for frame in frames if isinstance(frame, bytes)) > 0
            assert speaking.close_code == 1001
        await serving

    async def bounded():
        async with asyncio.timeout(HANG_S):
            await scenario()

    asyncio.run(bounded())
