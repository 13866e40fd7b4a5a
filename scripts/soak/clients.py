"""The clients of a soak: some who talk as one should, and some who do what servers have to live with.

All stop when the time is over. Only the talkers' messages are in the ledger; of the others it only counts whether what
they did was answered as it should be.
"""

import asyncio
import json
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import httpx
from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed

from scripts.loadtest.client import BYTES_PER_S, Failure, clock_s, open_socket
from scripts.soak.ledger import Ledger

ANSWER_WITHIN_S = 90.0
"""Bounds a hang: a message of which nothing is heard for so long is lost."""

_RETRY_S = 1.0
_GRACE_S = 30.0
"""For messages in hand when the time is over."""

_SENTENCES = (
    "Yes, Friday works.",
    "That one costs forty euros.",
    "Let me look at the train ticket.",
    "The blue lamp you asked about arrives on Monday.",
    "There are twelve of them left, in two colours.",
    "I have written Thursday down for you, in the evening.",
    "Of these two, I would take the winter coat.",
    "Sure, I can help with that.",
)
"""Each is one segment, whatever its listener hears at the time, so its audio is always the same."""

_LONG = " ".join(_SENTENCES) * 6
_JUNK: Sequence[bytes | str] = (
    b"\x00\xff\xfe\x01",
    "not JSON",
    "[]",
    '{"text": 5}',
    '{"text": "  "}',
    '{"type": "no such type"}',
    '{"text": "Hello.", "voice": "nobody"}',
    '{"text": "Hello.", "speed": "fast"}',
    '{"text": "Hello.", "speed": NaN}',
    '{"text": "' + "a" * 60_000 + '"}',
    "{" * 5_000,
)
_JUNK_BODIES: Sequence[bytes] = (
    b"",
    b"{",
    b"[1]",
    b'{"text": ""}',
    b'{"text": "Hello.", "format": "vinyl"}',
    b"\xff" * 999,
)


@dataclass(slots=True)
class Counts:
    """What the clients did, and what went against what was promised them."""

    done: Counter[str] = field(default_factory=Counter)
    wrong: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True, slots=True)
class Target:
    """Whom the clients speak to, and until when, on `clock_s`."""

    http_url: str
    socket_url: str
    ends_at_s: float

    @property
    def over(self) -> bool:
        """Nothing new is begun."""
        return clock_s() >= self.ends_at_s


async def talker(target: Target, name: str, ledger: Ledger, counts: Counts) -> None:
    """Says a sentence, listens to it in real time, says the next; interrupts itself now and then.

    A message that fails is said again, under another name, as a client would.
    """
    draw = random.Random(name)
    number = 0
    while not target.over:
        try:
            socket = await open_socket(target.socket_url, ANSWER_WITHIN_S)
        except Failure:
            counts.done["refused connections"] += 1
            await asyncio.sleep(_RETRY_S)
            continue
        counts.done["sessions of talkers"] += 1
        try:
            while not target.over:
                number += 1
                audio_s = await _say(socket, f"{name}/{number}", draw, ledger)
                await asyncio.sleep(audio_s if audio_s is not None else _RETRY_S)
            await socket.send('{"type": "close"}')
            await asyncio.wait_for(socket.wait_closed(), _GRACE_S)
            if socket.close_code != 1000:
                counts.wrong[f"close was answered with {socket.close_code}"] += 1
        except (ConnectionClosed, TimeoutError):
            pass  # the ledger knows which message it cost
        finally:
            await socket.close()


async def _say(socket: ClientConnection, request_id: str, draw: random.Random, ledger: Ledger) -> float | None:
    """One message to its end; how long its listener still hears it, None after a failure. Raises ConnectionClosed."""
    text, interrupted, said_s, size_bytes = draw.choice(_SENTENCES), draw.random() < 0.1, clock_s(), 0
    ledger.say(request_id, text, said_s)
    try:
        await socket.send(json.dumps({"text": text, "request_id": request_id}))
        if interrupted:
            await socket.send(json.dumps({"type": "cancel", "request_id": request_id}))
        while True:
            frame = await asyncio.wait_for(socket.recv(), ANSWER_WITHIN_S)
            if isinstance(frame, bytes):
                size_bytes += len(frame)
                ledger.hear(request_id, frame, clock_s())
                continue
            event = json.loads(frame)
            of = event.get("request_id")
            match event["type"]:
                case "synthesis_complete":
                    promised_bytes = round(event["total_duration_s"] * BYTES_PER_S)
                    ledger.end(of, "complete", clock_s(), promised_bytes)
                    return max(0.0, said_s + size_bytes / BYTES_PER_S - clock_s())
                case "synthesis_cancelled":
                    ledger.end(of, "cancelled", clock_s())
                    return 0.0
                case "error":
                    ledger.end(of, event["code"], clock_s())
                    return None
    except ConnectionClosed:
        ledger.end(request_id, "hung up", clock_s())
        raise


async def requester(target: Target, name: str, ledger: Ledger, counts: Counts) -> None:
    """Whole answers over HTTP, now and then."""
    draw = random.Random(name)
    async with httpx.AsyncClient(base_url=target.http_url, timeout=ANSWER_WITHIN_S, trust_env=False) as client:
        while not target.over:
            request = {"text": draw.choice(_SENTENCES), "format": draw.choice(("wav", "mp3", "pcm")), "stream": False}
            try:
                answer = await client.post("/invocations", json=request)
                how = f"answered {answer.status_code}"
            except httpx.TransportError as exc:
                how = f"broken, {type(exc).__name__}"
            counts.done[f"requests {how}"] += 1
            if how != "answered 200":
                ledger.failures.append((clock_s(), f"a request was {how}"))
            await asyncio.sleep(draw.uniform(4, 12))


async def junk(target: Target, name: str, counts: Counts) -> None:
    """Sends what is none of the contract's; every piece wants one `error`, and the session must live on."""
    draw = random.Random(name)
    async with httpx.AsyncClient(base_url=target.http_url, timeout=ANSWER_WITHIN_S, trust_env=False) as client:
        while not target.over:
            with suppress(httpx.TransportError):
                answer = await client.post("/invocations", content=draw.choice(_JUNK_BODIES))
                counts.done["junk bodies"] += 1
                if answer.status_code not in (400, 413, 503):
                    counts.wrong[f"a junk body was answered {answer.status_code}"] += 1
            await _with_socket(target, counts, lambda socket: _send_junk(socket, draw, counts))
            await asyncio.sleep(draw.uniform(0.5, 2))


async def _send_junk(socket: ClientConnection, draw: random.Random, counts: Counts) -> None:
    for _ in range(5):
        await socket.send(draw.choice(_JUNK))
        if (kind := await _answered(socket)) == "synthesis_start":  # what only the engine can know, as a voice
            kind = await _answered(socket)
        counts.done["junk messages"] += 1
        if kind != "error":
            counts.wrong[f"junk was answered with {kind}"] += 1
    await socket.send('{"type": "ping"}')
    if await _answered(socket) != "pong":
        counts.wrong["no pong after junk"] += 1


async def _answered(socket: ClientConnection) -> str:
    frame = await asyncio.wait_for(socket.recv(), ANSWER_WITHIN_S)
    return "audio" if isinstance(frame, bytes) else str(json.loads(frame)["type"])


async def _read(socket: ClientConnection, frames: int, pause_s: float = 0.0) -> None:
    """So many frames of a message; fewer where it ends sooner, as one does whose engine is killed."""
    for _ in range(frames):
        if await _answered(socket) in ("synthesis_complete", "error"):
            return
        await asyncio.sleep(pause_s)


async def slow_reader(target: Target, name: str, counts: Counts) -> None:
    """Asks for minutes of audio, reads a frame a second, and leaves without a word."""
    draw = random.Random(name)

    async def read_slowly(socket: ClientConnection) -> None:
        await socket.send(json.dumps({"text": _LONG, "speed": 0.5}))
        await _read(socket, draw.randrange(5, 20), pause_s=1.0)
        counts.done["slow readers"] += 1
        socket.transport.abort()

    while not target.over:
        await _with_socket(target, counts, read_slowly)
        await asyncio.sleep(draw.uniform(5, 15))


async def leaver(target: Target, name: str, counts: Counts) -> None:
    """Hangs up in the middle: of an answer over the WebSocket, and of one over HTTP."""
    draw = random.Random(name)

    async def hang_up(socket: ClientConnection) -> None:
        await socket.send(json.dumps({"text": _LONG}))
        await _read(socket, draw.randrange(1, 4))
        counts.done["hang-ups"] += 1
        socket.transport.abort()

    async with httpx.AsyncClient(base_url=target.http_url, timeout=ANSWER_WITHIN_S, trust_env=False) as client:
        while not target.over:
            await _with_socket(target, counts, hang_up)
            with suppress(httpx.TransportError):
                async with client.stream("POST", "/invocations", json={"text": _LONG}) as answer:
                    await anext(answer.aiter_raw(), b"")
                    counts.done["hang-ups"] += 1
            await asyncio.sleep(draw.uniform(3, 8))


async def _with_socket(target: Target, counts: Counts, talk: Callable[[ClientConnection], Awaitable[None]]) -> None:
    """Open a socket for `talk` and close it again; a server that is away is no matter of these clients."""
    try:
        socket = await open_socket(target.socket_url, ANSWER_WITHIN_S)
    except Failure:
        return
    try:
        await talk(socket)
    except ConnectionClosed:
        pass
    except TimeoutError:
        counts.wrong["nothing came for too long"] += 1
    finally:
        await socket.close()
