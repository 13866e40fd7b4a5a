"""Drive an ASGI application message by message: what left the application, and when, is the test's to see.

An HTTP client would hand over whole bodies, or hide the order of things behind its buffers.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from starlette.types import ASGIApp, Message

HANG_S = 10.0
"""Bounds a hang; nothing waits for it otherwise."""


async def turns_until(condition: Callable[[], object]) -> None:
    """Let the event loop turn until `condition` holds."""
    async with asyncio.timeout(HANG_S):
        while not condition():  # noqa: ASYNC110 - a fake engine has no event to wait for
            await asyncio.sleep(0)


@dataclass
class Exchange:
    """One HTTP request or WebSocket in progress. `sent` holds what the application sent, in order."""

    task: "asyncio.Task[None]"
    to_app: "asyncio.Queue[Message]"
    from_app: "asyncio.Queue[Message]"
    sent: list[Message] = field(default_factory=list)

    async def next(self) -> Message:
        """The next message from the application; raises what ended it instead, if that comes first."""
        getter = asyncio.create_task(self.from_app.get())
        async with asyncio.timeout(HANG_S):
            await asyncio.wait((getter, self.task), return_when=asyncio.FIRST_COMPLETED)
        if not getter.done():
            getter.cancel()
            self.task.result()
            raise EOFError("the application has ended")
        self.sent.append(getter.result())
        return getter.result()

    async def ended(self) -> None:
        """Wait for the application to return; raises what it raised."""
        async with asyncio.timeout(HANG_S):
            await self.task

    # HTTP

    async def response(self) -> tuple[int, dict[str, str], bytes]:
        """Status, headers and the whole body."""
        start = await self.next()
        headers = {name.decode(): value.decode() for name, value in start["headers"]}
        return start["status"], headers, await self.response_body()

    async def response_body(self) -> bytes:
        """What is left of the body."""
        body = b""
        while True:
            message = await self.next()
            assert message["type"] in ("http.response.body", "websocket.http.response.body")
            body += message.get("body", b"")
            if not message.get("more_body", False):
                return body

    # WebSocket

    def say(self, message: Any, *, binary: bool = False) -> None:
        """Send a JSON message as a client; bytes and str go as they are."""
        raw = message if isinstance(message, str | bytes) else json.dumps(message)
        if binary and isinstance(raw, str):
            raw = raw.encode()
        kind = "text" if isinstance(raw, str) else "bytes"
        self.to_app.put_nowait({"type": "websocket.receive", kind: raw})

    async def frame(self) -> dict[str, Any] | bytes:
        """The next frame: control frames decoded, audio as bytes, the end as {"type": "closed", "code"}."""
        message = await self.next()
        if message["type"] == "websocket.close":
            return {"type": "closed", "code": message["code"]}
        if message.get("text") is not None:
            decoded: dict[str, Any] = json.loads(message["text"])
            return decoded
        data: bytes = message["bytes"]
        return data

    async def until(self, kind: str) -> tuple[dict[str, Any], bytes]:
        """Read up to a control frame of type `kind`; returns it and the audio before it."""
        audio = b""
        while True:
            frame = await self.frame()
            if isinstance(frame, bytes):
                audio += frame
            elif frame["type"] == kind:
                return frame, audio


@asynccontextmanager
async def _exchange(app: ASGIApp, scope: dict[str, Any], capacity: int) -> AsyncIterator[Exchange]:
    to_app: asyncio.Queue[Message] = asyncio.Queue()
    from_app: asyncio.Queue[Message] = asyncio.Queue(capacity)
    exchange = Exchange(asyncio.create_task(app(scope, to_app.get, from_app.put)), to_app, from_app)  # type: ignore[arg-type]
    try:
        yield exchange
    finally:
        exchange.task.cancel()
        await asyncio.gather(exchange.task, return_exceptions=True)


@asynccontextmanager
async def http(
    app: ASGIApp,
    path: str,
    body: Any = None,
    *,
    method: str = "POST",
    headers: Sequence[tuple[bytes, bytes]] = (),
    capacity: int = 0,
    more_body: bool = False,
) -> Any:
    """A request with its body already sent, or with `more_body` the beginning of it.

    `capacity` messages fit between application and client (0: no bound).
    """
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    path, _, query = path.partition("?")
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "headers": list(headers),
    }
    async with _exchange(app, scope, capacity) as exchange:
        exchange.to_app.put_nowait({"type": "http.request", "body": raw, "more_body": more_body})
        yield exchange


@asynccontextmanager
async def websocket(
    app: ASGIApp,
    path: str,
    *,
    headers: Sequence[tuple[bytes, bytes]] = (),
    subprotocols: Sequence[str] = (),
    capacity: int = 0,
) -> Any:
    """A WebSocket whose upgrade was asked for; the first message from the application answers it."""
    scope = {
        "type": "websocket",
        "asgi": {"version": "3.0"},
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": list(headers),
        "subprotocols": list(subprotocols),
        "extensions": {"websocket.http.response": {}},
    }
    async with _exchange(app, scope, capacity) as exchange:
        exchange.to_app.put_nowait({"type": "websocket.connect"})
        yield exchange
