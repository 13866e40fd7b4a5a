"""An ASGI application on a real socket, in a thread of the test's process."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from socket import socket
from typing import Any

import uvicorn
from starlette.types import ASGIApp


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.listens = threading.Event()

    async def startup(self, sockets: list[socket] | None = None) -> None:
        await super().startup(sockets)
        self.listens.set()


@contextmanager
def served(app: ASGIApp, **config: Any) -> Iterator[str]:
    """Its address, on loopback."""
    server = _Server(uvicorn.Config(app, port=0, log_level="error", **config))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        assert server.listens.wait(10)
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(10)
