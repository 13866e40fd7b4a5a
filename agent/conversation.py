"""One caller's conversation with the model: a Strands agent, its history, and one turn at a time."""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import Any, cast

from strands import Agent
from strands.hooks import BeforeModelCallEvent, MessageAddedEvent

from agent import history
from agent.spoken import Spoken

# Strands' tracing says so, with a traceback, whenever a stream is left before its end; which is what a hang-up is.
logging.getLogger("opentelemetry.context").setLevel(logging.CRITICAL)


@dataclass(frozen=True, slots=True)
class ToolStarted:
    """The model has asked for a tool, which runs now."""

    name: str


Written = str | ToolStarted
"""What a model does: writes a piece of its answer, or goes to work."""


@dataclass(frozen=True, slots=True)
class _Told:
    """The answer before: its audio, its whole turn, and how many messages of that are in the history."""

    spoken: Spoken
    turn: list[history.Message]
    kept: int


class Conversation:
    """See the module. `agent` is this conversation's alone; its model may be shared."""

    def __init__(self, agent: Agent) -> None:
        agent.hooks.add_callback(BeforeModelCallEvent, lambda _: history.clean(self.messages))
        agent.hooks.add_callback(MessageAddedEvent, self._added)
        self._agent = agent
        self._turns: list[asyncio.Task[object]] = []
        self._lock = asyncio.Lock()
        self._last: _Told | None = None
        self._prompted = False  # the prompt of this turn is in the history

    @property
    def messages(self) -> list[history.Message]:
        """What the model is told of the conversation so far."""
        return cast("list[history.Message]", self._agent.messages)

    @asynccontextmanager
    async def turn(self, heard_s: float | None = None) -> AsyncIterator[None]:
        """Have the conversation for one turn. Whoever has it, or waits for it, is cancelled: the caller has moved on.

        `heard_s`: so much of the audio of the answer before was played when its listener stopped it.
        """
        for turn in self._turns:
            turn.cancel()
        task = asyncio.current_task()
        assert task is not None
        self._turns.append(task)
        try:
            async with self._lock:
                if heard_s is not None and self._last is not None:
                    self._correct(self._last, heard_s)
                self._last, self._prompted = None, False
                yield
        finally:
            self._turns.remove(task)

    def ended(self, spoken: Spoken) -> None:
        """The turn is over; the caller was sent all of its answer."""
        turn = history.take_last_turn(self.messages)
        self._keep(spoken, turn, turn)

    def broke_off(self, spoken: Spoken, now_s: float) -> None:
        """The turn is over; the caller was sent a part of its answer, and heard what a player has played by now."""
        if self._prompted:  # else the last turn in the history is another one
            turn = history.take_last_turn(self.messages)
            self._keep(spoken, turn, history.heard_part(turn, spoken.text(spoken.played_s(now_s))))

    def _keep(self, spoken: Spoken, turn: list[history.Message], kept: list[history.Message]) -> None:
        self.messages.extend(kept)
        self._last = _Told(spoken, turn, len(kept))

    def _correct(self, last: _Told, heard_s: float) -> None:
        """The caller knows better than the clock what was heard."""
        del self.messages[len(self.messages) - last.kept :]
        self.messages.extend(history.heard_part(last.turn, last.spoken.text(heard_s)))

    def _added(self, event: MessageAddedEvent) -> None:
        self._prompted = self._prompted or event.message["role"] == "user"

    async def answer(self, prompt: str) -> AsyncGenerator[Written, None]:
        """What the model writes to a prompt. Raises what the model's provider raises. Closing it stops the model."""
        stream = cast("AsyncGenerator[dict[str, Any], None]", self._agent.stream_async(prompt))
        async with aclosing(stream) as events:
            async for event in events:
                if "data" in event:
                    yield event["data"]
                elif "message" in event:
                    for use in _tool_uses(event["message"]):
                        yield ToolStarted(use)


def _tool_uses(message: history.Message) -> list[str]:
    return [block["toolUse"]["name"] for block in message["content"] if "toolUse" in block]


class Conversations:
    """The conversations of this process, by session. The least recently used is forgotten past `max_conversations`."""

    def __init__(self, new: Callable[[], Agent], max_conversations: int) -> None:
        self._new, self._max = new, max_conversations
        self._by_session: dict[str, Conversation] = {}

    def of(self, session_id: str | None) -> Conversation:
        """A session's conversation; without a session, one of its own for a single turn."""
        if session_id is None:
            return Conversation(self._new())
        conversation = self._by_session.pop(session_id, None) or Conversation(self._new())
        self._by_session[session_id] = conversation
        while len(self._by_session) > self._max:
            del self._by_session[next(iter(self._by_session))]
        return conversation
