"""Sessions that say one sentence after the other, and note how each was answered."""

import asyncio
import itertools
import json
import threading
import time
from collections.abc import Coroutine, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Self

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake

from scripts.cluster.stack import PORT

SENTENCE = "This is one sentence of a session."
PATIENCE_S = 90.0
"""For one answer; past it the session counts as hung."""

PAUSE_S = 2.0
"""About what a sentence lasts: who listens asks no sooner."""

CUT, GOING_AWAY, HUNG = "connection lost", "closed with 1001", "hung"


@dataclass(frozen=True, slots=True)
class Answer:
    """One message: when it was sent, when it ended, and how: "complete", an error's code, CUT, GOING_AWAY or HUNG."""

    sent_s: float
    ended_s: float
    outcome: str


@dataclass(slots=True, eq=False)
class Caller:
    """One session through the proxy of the machine at `address`; it ends when its connection does."""

    address: str
    answers: list[Answer] = field(default_factory=list)
    connected: asyncio.Event = field(default_factory=asyncio.Event)

    async def talk(self, go: asyncio.Event, slow: asyncio.Event, stop: asyncio.Event) -> None:
        """Connect, wait for `go`, and say one sentence or more, until `stop` or until the connection is lost."""
        url = f"ws://{self.address}:{PORT}/invocations-bidirectional-stream"
        async with connect(url, compression=None, open_timeout=5.0, ping_interval=5.0, ping_timeout=10.0) as socket:
            self.connected.set()
            await go.wait()
            for number in itertools.count():
                if not await self._say(socket, f"m{number}") or stop.is_set():
                    return
                await asyncio.sleep(PAUSE_S * slow.is_set())

    async def _say(self, socket: ClientConnection, request_id: str) -> bool:
        """Whether the session goes on."""
        sent_s = time.monotonic()
        try:
            async with asyncio.timeout(PATIENCE_S):
                await socket.send(json.dumps({"text": SENTENCE, "request_id": request_id}))
                outcome = await _ending(socket, request_id)
        except ConnectionClosed as exc:
            outcome = GOING_AWAY if exc.rcvd is not None and exc.rcvd.code == 1001 else CUT
        except TimeoutError:
            outcome = HUNG
        self.answers.append(Answer(sent_s, time.monotonic(), outcome))
        return outcome not in (CUT, GOING_AWAY, HUNG)


async def _ending(socket: ClientConnection, request_id: str) -> str:
    while True:
        frame = await socket.recv()
        if isinstance(frame, str):
            message = json.loads(frame)
            if message["type"] == "synthesis_complete":
                return "complete" if message["request_id"] == request_id else "of another message"
            if message["type"] == "error":
                return str(message["code"])


class Crowd:
    """Callers on a thread of their own."""

    def __init__(self) -> None:
        self.callers: list[Caller] = []
        self._loop = asyncio.new_event_loop()
        self._go, self._slow, self._stop = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._talking: list[Future[None]] = []
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    @property
    def open(self) -> int:
        """How many are connected."""
        return sum(not talking.done() for talking in self._talking)

    def connect(self, address: str, count: int) -> None:
        """Let so many more come in through that machine. Raises what hinders them."""
        callers = [Caller(address) for _ in range(count)]
        for caller in callers:
            talking = self._run(caller.talk(self._go, self._slow, self._stop))
            self._run(_either(caller.connected.wait(), talking)).result(PATIENCE_S)
            self._talking.append(talking)
        self.callers += callers

    def go(self) -> None:
        """Let all speak."""
        self._loop.call_soon_threadsafe(self._go.set)

    def slow_down(self) -> None:
        """Let each wait PAUSE_S after an answer."""
        self._loop.call_soon_threadsafe(self._slow.set)

    def end(self) -> None:
        """Let each finish what it has asked for, and hang up."""
        self._loop.call_soon_threadsafe(self._stop.set)
        for talking in self._talking:
            talking.exception(PATIENCE_S)

    def _run(self, coroutine: Coroutine[Any, Any, Any]) -> "Future[Any]":
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)


async def _either(event: Coroutine[Any, Any, Any], talking: "Future[None]") -> None:
    happens, ended = asyncio.ensure_future(event), asyncio.wrap_future(talking)
    await asyncio.wait([happens, ended], return_when=asyncio.FIRST_COMPLETED)
    if not happens.done():
        happens.cancel()
        await ended


def speaks(address: str) -> bool:
    """Whether a new session through this machine is answered with speech."""
    try:
        with Crowd() as crowd:
            crowd.go()
            crowd.connect(address, 1)
    except (OSError, TimeoutError, InvalidHandshake):
        return False
    return all(answer.outcome == "complete" for answer in crowd.callers[0].answers)


def rate(callers: Sequence[Caller], from_s: float, to_s: float) -> float:
    """Sentences a second that were completed in that time."""
    ended = [answer for caller in callers for answer in caller.answers if from_s <= answer.ended_s < to_s]
    return sum(answer.outcome == "complete" for answer in ended) / (to_s - from_s)
