"""A model that follows a script, and a speech server that is a list: for what the agent makes of both."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

from strands import Agent
from strands.models import Model

from agent.conversation import Conversation
from agent.events import Event
from agent.request import parse_request
from agent.turn import run_turn
from serve_app.client.session import Words
from serve_app.client.types import Audio, Chunk, Word
from serve_app.protocol.messages import ErrorFrame, SynthesisComplete, SynthesisStart

Step = str | asyncio.Event | Exception | dict[str, Any]
"""A delta; something to wait for; a failure; a tool's name and input, which ends the message."""


class ScriptedModel(Model):
    """Answers its n-th call with the n-th script."""

    def __init__(self, *scripts: list[Step]) -> None:
        self._scripts = list(scripts)
        self.asked: list[list[dict[str, Any]]] = []
        self.closed = 0
        self.waiting = asyncio.Event()

    def update_config(self, **_: Any) -> None: ...

    def get_config(self) -> dict[str, Any]:
        return {"model_id": "scripted", "context_window_limit": 100_000}

    def structured_output(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError

    async def stream(self, messages: Any, *_: Any, **__: Any) -> AsyncIterator[Any]:
        self.asked.append([{"role": each["role"], "content": list(each["content"])} for each in messages])
        self.loop = asyncio.get_running_loop()
        stop = "end_turn"
        try:
            yield {"messageStart": {"role": "assistant"}}
            for step in self._scripts.pop(0):
                match step:
                    case str():
                        yield {"contentBlockDelta": {"delta": {"text": step}}}
                    case asyncio.Event():
                        self.waiting.set()
                        await step.wait()
                    case Exception():
                        raise step
                    case dict():
                        stop = "tool_use"
                        yield {"contentBlockStop": {}}
                        use = {"toolUseId": "t1", "name": step["name"]}
                        yield {"contentBlockStart": {"start": {"toolUse": use}}}
                        yield {"contentBlockDelta": {"delta": {"toolUse": {"input": step.get("input", "{}")}}}}
            yield {"contentBlockStop": {}}
            yield {"messageStop": {"stopReason": stop}}
        finally:
            self.closed += 1


class FakeSpeech:
    """One session. Speaks a second a sentence, at once, unless `gate` holds it back or `answers` say otherwise."""

    def __init__(self, gate: asyncio.Event | None = None, fail_at: int | None = None) -> None:
        self.said: list[str] = []
        self.connected = self.closed = self.left = False
        self._gate, self._fail_at = gate, fail_at
        self._events: asyncio.Queue[Any] = asyncio.Queue()
        self.refuse: Exception | None = None

    async def __aenter__(self) -> "FakeSpeech":
        return self

    async def __aexit__(self, *_: object) -> None:
        self.left = True

    async def connect(self) -> None:
        if self.refuse is not None:
            raise self.refuse
        self.connected = True

    async def say(self, text: str, **options: Any) -> str:
        request_id = options["request_id"]
        self._events.put_nowait(SynthesisStart(request_id))
        if len(self.said) == self._fail_at:
            self._events.put_nowait(ErrorFrame(request_id, "no such voice", "unknown_voice"))
        else:
            each_s = 1.0 / len(text.split())
            words = [Word(word, at * each_s, (at + 1) * each_s) for at, word in enumerate(text.split())]
            self._events.put_nowait(Words(request_id, tuple(words)))
            self._events.put_nowait(Chunk(request_id, bytes(24_000), Audio("pcm", 24_000)))
            self._events.put_nowait(Chunk(request_id, bytes(24_000), Audio("pcm", 24_000)))
            self._events.put_nowait(SynthesisComplete(request_id, 1.0, 0.1))
        self.said.append(text)
        return str(request_id)

    async def close(self) -> None:
        self.closed = True
        self._events.put_nowait(None)

    def __aiter__(self) -> "FakeSpeech":
        return self

    async def __anext__(self) -> Any:
        event = await self._events.get()
        if self._gate is not None and not isinstance(event, SynthesisStart):
            await self._gate.wait()
        if event is None:
            raise StopAsyncIteration
        return event


class Clock:
    """Seconds that pass when the test says so."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def conversation(model: Model, tools: list[Any] | None = None) -> Conversation:
    return Conversation(Agent(model=model, callback_handler=None, tools=tools or [], retry_strategy=None))


def turn(
    talk: Conversation, speech: FakeSpeech, clock: Callable[[], float] | None = None, filler: str = "", **fields: Any
) -> Any:
    """Events of one turn."""
    request = parse_request({"prompt": "Tell me.", "request_id": "r", **fields})
    return run_turn(request, talk, speech, filler, clock or Clock())


async def all_of(events: Any) -> list[Event]:
    async with asyncio.timeout(10):
        return [event async for event in events]


def types(events: list[Event]) -> list[str]:
    return [event.type for event in events]
