"""Sessions that say one sentence after the other, and note how each was answered."""

import asyncio
import itertools
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake

SENTENCE = "This is one sentence of a session."
PATIENCE_S = 90.0
"""For one answer; past it the session counts as hung."""


@dataclass(frozen=True, slots=True)
class Answer:
    """One message: when it was sent, when it ended, and how: "complete", an error's code, "closed" or "hung"."""

    sent_s: float
    ended_s: float
    outcome: str


@dataclass(slots=True)
class Caller:
    """One session through the proxy of the machine at `address`; it ends when its connection does."""

    address: str
    port: int
    answers: list[Answer] = field(default_factory=list)
    connected: asyncio.Event = field(default_factory=asyncio.Event)

    async def talk(self, go: asyncio.Event, stop: asyncio.Event) -> None:
        """Connect, wait for `go`, and speak until `stop` or until the connection is lost."""
        url = f"ws://{self.address}:{self.port}/invocations-bidirectional-stream"
        async with connect(url, compression=None, ping_interval=5.0, ping_timeout=10.0) as socket:
            self.connected.set()
            await go.wait()
            for number in itertools.count():
                if stop.is_set() or not await self._say(socket, f"m{number}"):
                    return

    async def _say(self, socket: ClientConnection, request_id: str) -> bool:
        """Whether the session goes on."""
        sent_s = time.monotonic()
        try:
            async with asyncio.timeout(PATIENCE_S):
                await socket.send(json.dumps({"text": SENTENCE, "request_id": request_id}))
                outcome = await _ending(socket, request_id)
        except ConnectionClosed:
            outcome = "closed"
        except TimeoutError:
            outcome = "hung"
        self.answers.append(Answer(sent_s, time.monotonic(), outcome))
        return outcome not in ("closed", "hung")


async def _ending(socket: ClientConnection, request_id: str) -> str:
    async for frame in socket:
        if isinstance(frame, str):
            message = json.loads(frame)
            if message["type"] == "synthesis_complete":
                return "complete" if message["request_id"] == request_id else "of another message"
            if message["type"] == "error":
                return str(message["code"])
    return "closed"


async def speaks(address: str, port: int) -> bool:
    """Whether a new session through this machine is answered with speech."""
    caller, go, stop = Caller(address, port), asyncio.Event(), asyncio.Event()
    go.set()
    try:
        async with asyncio.timeout(5.0):
            talking = asyncio.create_task(caller.talk(go, stop))
            stop.set()
            await talking
    except (TimeoutError, OSError, InvalidHandshake):
        return False
    return [answer.outcome for answer in caller.answers] == ["complete"]


def rate(callers: Sequence[Caller], from_s: float, to_s: float) -> float:
    """Sentences a second that were completed in that time."""
    ended = [answer for caller in callers for answer in caller.answers if from_s <= answer.ended_s < to_s]
    return sum(answer.outcome == "complete" for answer in ended) / (to_s - from_s)
