"""Clients who are there while the service changes: they do what docs/changes.md tells clients to, and keep account."""

import asyncio
import json
import random
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Self

import httpx
from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed

from scripts.loadtest.client import BYTES_PER_S, Failure, clock_s, open_socket
from scripts.loadtest.speech import script
from scripts.loadtest.stats import playback
from scripts.running import Running
from scripts.soak.ledger import Ledger
from serve_app.errors import EngineUnavailable

ANSWER_WITHIN_S = 120.0
"""Bounds a hang: a message of which nothing is heard for so long is lost."""

RETRY_S = 0.5
SENTENCES = 2
GOING_AWAY, ABNORMAL = 1001, 1006
"""Codes with which a session ends (RFC 6455, section 7.4.1); the latter stands for an end without a word."""

CROSSED = "crossed"
"""How a message ended that was on its way when the server closed an idle session, as it told by 1001."""


@dataclass(slots=True)
class Account:
    """What the clients went through in a while.

    Attributes:
        messages: those that ended, by how: complete, an error's code, `crossed`, or `hung up` by the server.
        gaps_s: silences within complete messages, of those who play from the first byte on.
        closes: codes with which the server ended sessions, of those who talk and of those who are silent.
        again_s: from the end of a session until its client had another one.
        requests: answers over HTTP, by status, or by what broke.
    """

    messages: Counter[str] = field(default_factory=Counter)
    gaps_s: list[float] = field(default_factory=list)
    closes: dict[str, Counter[int]] = field(default_factory=lambda: {"talking": Counter(), "silent": Counter()})
    again_s: list[float] = field(default_factory=list)
    requests: Counter[str] = field(default_factory=Counter)


class Crowd:
    """Talkers, silent sessions and one who asks over HTTP, in tasks of the running loop while the context is open."""

    def __init__(self, running: Running, *, talkers: int, silent: int) -> None:
        self._running = running
        self._stop = asyncio.Event()
        self.ledger, self.account = Ledger(), Account()
        self._talking = [_Talker(f"talker-{number}") for number in range(talkers)]
        self._silent = silent
        self._connected = 0
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        self._tasks = [
            *(asyncio.create_task(self._talk(talker)) for talker in self._talking),
            *(asyncio.create_task(self._be_silent()) for _ in range(self._silent)),
            asyncio.create_task(self._request()),
        ]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._stop.set()
        await asyncio.gather(*self._tasks)

    def turn(self) -> Account:
        """Begin another account; the one before."""
        before, self.account = self.account, Account()
        return before

    async def settled(self, messages: int = 1) -> None:
        """Wait until all silent sessions are open and every talker has had so many more messages completed."""
        wanted = {talker.name: talker.complete + messages for talker in self._talking}
        async with asyncio.timeout(ANSWER_WITHIN_S):
            while self._connected < self._silent or any(one.complete < wanted[one.name] for one in self._talking):
                _raise_failures(self._tasks)
                await asyncio.sleep(RETRY_S)

    async def _talk(self, talker: "_Talker") -> None:
        """Say two messages, listen to both in real time, and so on; say again what was not complete."""
        draw, said = random.Random(talker.name), 0
        socket: ClientConnection | None = None
        left_s: float | None = None
        texts: list[str] = []
        while not self._stop.is_set():
            if socket is None:
                socket = await self._open()
                if socket is None:
                    continue
                if left_s is not None:
                    self.account.again_s.append(clock_s() - left_s)
            texts = texts or [script(SENTENCES, f"{talker.name}/{draw.random()}").text for _ in range(2)]
            messages = {f"{talker.name}/{(said := said + 1)}": text for text in texts}
            begun_s = clock_s()
            complete, audio_s, code = await self._converse(socket, messages)
            texts = [text for request_id, text in messages.items() if request_id not in complete]
            talker.complete += len(complete)
            if code is not None:
                self.account.closes["talking"][code] += 1
                socket, left_s = None, clock_s()
                continue
            if await self._ended(socket, begun_s + audio_s - clock_s()):
                self.account.closes["talking"][socket.close_code or ABNORMAL] += 1
                socket, left_s = None, clock_s()
        if socket is not None:
            await socket.close()

    async def _converse(self, socket: ClientConnection, messages: dict[str, str]) -> tuple[set[str], float, int | None]:
        """Say messages and hear what becomes of them: those that were complete, their audio, the code of a close."""
        open_ids, complete, audio_s = list(messages), set[str](), 0.0
        arrivals: list[tuple[float, float]] = []
        begun = leaving = False
        try:
            for request_id, text in messages.items():
                self.ledger.say(request_id, text, clock_s())
            for request_id, text in messages.items():
                await socket.send(json.dumps({"text": text, "request_id": request_id}))
            while open_ids or leaving:
                frame = await asyncio.wait_for(socket.recv(), ANSWER_WITHIN_S)
                if isinstance(frame, bytes):
                    self.ledger.hear(open_ids[0], frame, clock_s())
                    arrivals.append((clock_s(), len(frame) / BYTES_PER_S))
                    continue
                event, begun = json.loads(frame), True
                match event["type"]:
                    case "synthesis_complete":
                        size_bytes = round(event["total_duration_s"] * BYTES_PER_S)
                        self._end(event["request_id"], "complete", size_bytes)
                        heard = playback(arrivals)
                        self.account.gaps_s += [heard.longest_gap_s] if heard.gaps else []
                        audio_s += event["total_duration_s"]
                        complete.add(event["request_id"])
                        arrivals = []
                    case "error":
                        self._end(event["request_id"], event["code"])
                        leaving = leaving or event["code"] == EngineUnavailable.code
                    case _:
                        continue
                open_ids.remove(event["request_id"])
        except ConnectionClosed as exc:
            code = exc.rcvd.code if exc.rcvd else ABNORMAL
            for request_id in open_ids:
                self._end(request_id, CROSSED if code == GOING_AWAY and not begun else "hung up")
            return complete, audio_s, code
        return complete, audio_s, None

    def _end(self, request_id: str, how: str, size_bytes: int | None = None) -> None:
        self.ledger.end(request_id, how, clock_s(), size_bytes)
        self.account.messages[how] += 1

    async def _be_silent(self) -> None:
        left_s: float | None = None
        while not self._stop.is_set():
            socket = await self._open()
            if socket is None:
                continue
            if left_s is not None:
                self.account.again_s.append(clock_s() - left_s)
            self._connected += 1
            ended = await self._ended(socket, None)
            self._connected -= 1
            if ended:
                self.account.closes["silent"][socket.close_code or ABNORMAL] += 1
                left_s = clock_s()
            else:
                await socket.close()

    async def _ended(self, socket: ClientConnection, within_s: float | None) -> bool:
        """Wait for the server to end a session, or for the time or the crowd to be over; whether it did."""
        stopped, ended = asyncio.create_task(self._stop.wait()), asyncio.create_task(socket.wait_closed())
        timeout_s = None if within_s is None else max(0.0, within_s)
        await asyncio.wait((stopped, ended), timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        return ended.done()

    async def _request(self) -> None:
        """Ask over HTTP, one after the other, as a client does that keeps its connection."""
        draw = random.Random("requests")
        async with httpx.AsyncClient(base_url=self._running.http, timeout=ANSWER_WITHIN_S, trust_env=False) as client:
            while not self._stop.is_set():
                text = script(1, f"request/{draw.random()}").text
                try:
                    answer = await client.post("/invocations", json={"text": text, "format": "pcm"})
                    self.account.requests[str(answer.status_code)] += 1
                except httpx.TransportError as exc:
                    self.account.requests[type(exc).__name__] += 1
                await asyncio.sleep(RETRY_S)

    async def _open(self) -> ClientConnection | None:
        """A session; None, after a pause, where there was none to be had."""
        try:
            return await open_socket(self._running.websocket, ANSWER_WITHIN_S)
        except Failure as exc:
            self.account.requests[f"upgrade: {exc.reason}"] += 1
            await asyncio.sleep(exc.retry_after_s or RETRY_S)
            return None


@dataclass(slots=True)
class _Talker:
    name: str
    complete: int = 0


def _raise_failures(tasks: Iterable[asyncio.Task[None]]) -> None:
    for task in tasks:
        if task.done():
            task.result()


def worst(values: Sequence[float]) -> str:
    """The largest of some seconds, for a person."""
    return f"{max(values):.2f} s" if values else "-"
