"""Speech over the server's WebSocket: the way with the least delay, and the one that takes text as it is written."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Unpack

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, ConnectionClosedOK, InvalidHandshake, InvalidStatus

from serve_app.client.address import authorization, is_loopback, socket_url, wait_before_retry_s
from serve_app.client.errors import BrokenAnswer, UnexpectedAnswer, Unreachable, refusal
from serve_app.client.session import Session
from serve_app.client.spoken import spoken
from serve_app.client.types import Chunk, Options, Text

ROUTE = "/invocations-bidirectional-stream"

MAX_QUEUE_FRAMES = 4096
"""Frames (up to 0.7 s of PCM each) that may wait here for a caller who plays them in real time.

A small bound would hold back the pings behind them, and either side would then take the other for dead.
"""

OPEN_TIMEOUT_S = 10.0
CLOSE_TIMEOUT_S = 1.0
"""Whoever closes a session has heard what they wanted; the server's goodbye is not worth a wait."""


class WebSocketClient:
    """See `SessionClient`. A connection for each `synthesize` and each `session`."""

    def __init__(self, server: str, key: str | None = None) -> None:
        """`server`: http://HOST:PORT or ws://HOST:PORT; `key`: of its API, where it asks for one. Raises ValueError."""
        self._url = socket_url(server, ROUTE)
        self._headers = authorization(key)

    @asynccontextmanager
    async def session(self, **options: Unpack[Options]) -> AsyncIterator[Session]:
        """See `SessionClient.session`."""
        socket = await self._connect()
        try:
            yield Session(_Frames(socket), options)
        finally:
            await socket.close()

    def synthesize(self, text: Text, **options: Unpack[Options]) -> AsyncGenerator[Chunk, None]:
        """See `SpeechClient.synthesize`. A text in pieces is spoken while it is being written."""
        return spoken(self.session(), text, options)

    async def aclose(self) -> None:
        """Nothing is kept between utterances."""

    async def _connect(self) -> ClientConnection:
        attempt = 0
        while True:
            attempt += 1
            try:
                return await connect(
                    self._url,
                    additional_headers=self._headers,
                    compression=None,  # audio does not shrink, and deflate waits
                    proxy=None if is_loopback(self._url) else True,
                    open_timeout=OPEN_TIMEOUT_S,
                    close_timeout=CLOSE_TIMEOUT_S,
                    max_queue=MAX_QUEUE_FRAMES,
                )
            except InvalidStatus as exc:
                status, retry_after = exc.response.status_code, exc.response.headers.get("Retry-After")
                wait_s = wait_before_retry_s(attempt, status, retry_after)
                if wait_s is None:
                    raise refusal(status, bytes(exc.response.body or b"")) from exc
                await asyncio.sleep(wait_s)
            except InvalidHandshake as exc:
                raise UnexpectedAnswer("what answers there is not a WebSocket server") from exc
            except OSError as exc:  # TimeoutError is one
                raise Unreachable("no server answers there") from exc


class _Frames:
    """`Connection` over a WebSocket."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket

    async def send(self, message: str) -> None:
        try:
            await self._socket.send(message)
        except ConnectionClosed as exc:
            raise _broken(exc) from exc

    async def receive(self) -> str | bytes | None:
        try:
            return await self._socket.recv()
        except ConnectionClosedOK:
            return None
        except ConnectionClosed as exc:
            raise _broken(exc) from exc


def _broken(exc: ConnectionClosed) -> BrokenAnswer:
    told = "without a word" if exc.rcvd is None else f"with code {exc.rcvd.code}"
    return BrokenAnswer(f"the server's connection ended {told}")
