"""Have one answer spoken over a route and note when its bytes arrive. No retries: what a server refuses is counted.

These are sockets of the load test's own: the product's client asks again when it is refused, and hands audio on, not
arrivals.
"""

import asyncio
import json
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Protocol

import httpx
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus

from scripts.loadtest import speech
from scripts.loadtest.speech import Dialogue, Script
from serve_app.client.address import http_url, is_loopback, socket_url
from serve_app.errors import TABLE
from serve_app.formats import DEFAULT_SAMPLE_RATE

BYTES_PER_S = 2 * DEFAULT_SAMPLE_RATE
"""PCM s16le, which every route is asked for."""

BUSY_CODES = frozenset(error.code for error in TABLE if error.http_status == 503)
BUSY_STATUSES = (429, 503)
BUSY_CLOSE = 1013

_MOST_MISSING_S = 0.01

clock_s = time.perf_counter


class Failure(Exception):
    """An answer is not whole.

    Attributes:
        busy: the server refused it for lack of room.
        retry_after_s: what it asked for then.
    """

    def __init__(self, reason: str, *, busy: bool = False, retry_after_s: float | None = None) -> None:
        super().__init__(reason)
        self.reason, self.busy, self.retry_after_s = reason, busy, retry_after_s


@dataclass(slots=True)
class Heard:
    """What a client saw of one answer, on `clock_s`.

    Attributes:
        sent_s: its first text; None before that.
        arrivals: of audio: when, and how many bytes.
    """

    connect_s: float = 0.0
    sent_s: float | None = None
    arrivals: list[tuple[float, int]] = field(default_factory=list)

    def take(self, audio: bytes) -> None:
        """Note that audio has come now."""
        if audio:
            self.arrivals.append((clock_s(), len(audio)))


class Speaker(Protocol):
    """One session with a server."""

    async def speak(self, answer: Script, request_id: str, heard: Heard) -> None:
        """Have an answer spoken; `heard` fills while it comes. Raises Failure."""
        ...

    async def aclose(self) -> None:
        """End the session."""
        ...


@dataclass(frozen=True, slots=True)
class Manner:
    """How all sessions ask.

    Attributes:
        tokens_per_s: how fast the model writes.
        patience_s: how long nothing may come before a client gives up.
    """

    tokens_per_s: float
    patience_s: float


class HttpSpeaker:
    """A request an answer; its audio is the body. Connections are the pool's."""

    def __init__(self, pool: httpx.AsyncClient, url: str, request: Callable[[str, str], dict[str, Any]]) -> None:
        self._pool, self._url, self._request = pool, url, request

    async def speak(self, answer: Script, request_id: str, heard: Heard) -> None:
        """See `Speaker.speak`."""
        body = self._request(answer.text, request_id)
        heard.sent_s = clock_s()
        try:
            async with self._pool.stream("POST", self._url, json=body) as response:
                if response.status_code != 200:
                    raise refusal(response.status_code, response.headers.get("retry-after"))
                if not (kind := response.headers.get("content-type", "")).startswith("audio/pcm"):
                    raise Failure(f"answered with {kind.partition(';')[0] or 'no content type'}")
                async for data in response.aiter_raw():
                    heard.take(data)
        except httpx.TimeoutException as exc:
            raise Failure("nothing came for too long") from exc
        except httpx.ConnectError as exc:
            raise Failure("no connection") from exc
        except httpx.RequestError as exc:
            raise Failure("the connection broke") from exc

    async def aclose(self) -> None:
        """See `Speaker.aclose`."""


class SocketSpeaker:
    """A WebSocket for all answers of a session; opened again after one that failed."""

    def __init__(self, url: str, manner: Manner, dialogue: Callable[[Script, float, str], Dialogue]) -> None:
        self._url, self._manner, self._dialogue = url, manner, dialogue
        self._socket: ClientConnection | None = None

    async def speak(self, answer: Script, request_id: str, heard: Heard) -> None:
        """See `Speaker.speak`."""
        dialogue = self._dialogue(answer, self._manner.tokens_per_s, request_id)
        whole = False
        try:
            if self._socket is None:
                asked_s = clock_s()
                self._socket = await open_socket(self._url, self._manner.patience_s)
                heard.connect_s = clock_s() - asked_s
            sending = asyncio.create_task(_send(self._socket, dialogue, heard))
            try:
                await _hear(self._socket, dialogue.utterances, self._manner.patience_s, heard)
            finally:
                sending.cancel()
                await asyncio.gather(sending, return_exceptions=True)
            whole = True
        finally:
            if not whole:
                await self.aclose()

    async def aclose(self) -> None:
        """See `Speaker.aclose`."""
        if self._socket is not None:
            socket, self._socket = self._socket, None
            await socket.close()


async def open_socket(url: str, patience_s: float) -> ClientConnection:
    """A WebSocket that takes audio as it comes. Raises Failure."""
    try:
        return await connect(
            url,
            compression=None,
            proxy=None if is_loopback(url) else True,
            open_timeout=patience_s,
            close_timeout=1.0,
            ping_interval=None,  # a server whose loop is blocked is late, which is measured; it is not dead
            max_size=None,
        )
    except InvalidStatus as exc:
        raise refusal(exc.response.status_code, exc.response.headers.get("Retry-After")) from exc
    except (InvalidHandshake, OSError) as exc:  # TimeoutError is one
        raise Failure("no connection") from exc


def refusal(status: int, retry_after: str | None) -> Failure:
    """What a status other than the wanted one means."""
    busy = status in BUSY_STATUSES
    retry_after_s = float(retry_after) if retry_after is not None and retry_after.isdecimal() else None
    return Failure(f"status {status}", busy=busy, retry_after_s=retry_after_s)


async def _send(socket: ClientConnection, dialogue: Dialogue, heard: Heard) -> None:
    """Say everything at its time; the first text counts as sent before the socket takes it."""
    began_s = clock_s()
    with suppress(ConnectionClosed):  # `_hear` tells why
        for at_s, message in dialogue.messages:
            await asyncio.sleep(began_s + at_s - clock_s())
            if heard.sent_s is None:
                heard.sent_s = clock_s()
            await socket.send(json.dumps(message))


async def _hear(socket: ClientConnection, utterances: int, patience_s: float, heard: Heard) -> None:
    """Take audio until so many utterances are complete. Raises Failure."""
    left, counted_bytes = utterances, 0
    try:
        while left:
            async with asyncio.timeout(patience_s):
                frame = await socket.recv()
            if isinstance(frame, bytes):
                heard.take(frame)
                counted_bytes += len(frame)
                continue
            message = json.loads(frame)
            match message.get("type"):
                case "synthesis_complete":
                    if message["total_duration_s"] - counted_bytes / BYTES_PER_S > _MOST_MISSING_S:
                        raise Failure("audio is missing")
                    left, counted_bytes = left - 1, 0
                case "synthesis_cancelled":
                    raise Failure("cancelled")
                case "error":
                    raise Failure(message["code"], busy=message["code"] in BUSY_CODES)
    except TimeoutError as exc:
        raise Failure("nothing came for too long") from exc
    except ConnectionClosed as exc:
        code = exc.rcvd.code if exc.rcvd else "no code"
        raise Failure(f"closed with {code}", busy=code == BUSY_CLOSE) from exc
    except (ValueError, KeyError, TypeError, AttributeError) as exc:
        raise Failure("a control frame is not the contract's") from exc


def _invocation(text: str, request_id: str) -> dict[str, Any]:
    return {"text": text, "request_id": request_id, "format": "pcm"}


def _openai(text: str, request_id: str) -> dict[str, Any]:
    return {"model": "kokoro", "voice": "af_heart", "input": text, "response_format": "pcm"}


_SOCKET_ROUTE = "/invocations-bidirectional-stream"
_DIALOGUES = {
    "websocket-sentences": speech.as_sentences,
    "websocket-tokens": speech.as_tokens,
    "websocket-text": speech.as_one_text,
}
_REQUESTS = {"invocations": ("/invocations", _invocation), "openai": ("/v1/audio/speech", _openai)}

ROUTES: Sequence[str] = (*_DIALOGUES, *_REQUESTS)
"""The ways to ask."""


class Server:
    """A server under load: hands out sessions with it over any route."""

    def __init__(self, name: str, url: str, manner: Manner) -> None:
        """`url`: http://HOST:PORT or ws://HOST:PORT, https and wss alike. Raises ValueError."""
        self.name, self._url, self._manner = name, url, manner
        self.socket_url = socket_url(url, _SOCKET_ROUTE)
        self._pool = httpx.AsyncClient(
            timeout=manner.patience_s,
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=None),
            headers={"accept-encoding": "identity"},
            trust_env=not is_loopback(http_url(url, "")),
        )

    def speaker(self, route: str) -> Speaker:
        """A session over one of ROUTES; it connects when it first speaks."""
        if route in _DIALOGUES:
            return SocketSpeaker(self.socket_url, self._manner, _DIALOGUES[route])
        path, request = _REQUESTS[route]
        return HttpSpeaker(self._pool, http_url(self._url, path), request)

    async def aclose(self) -> None:
        """Close kept connections; sessions close their own."""
        await self._pool.aclose()
