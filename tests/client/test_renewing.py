"""The session that outlives its connections: against scripted connections, and over both transports."""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Unpack

import pytest
from websockets.asyncio.server import ServerConnection

from serve_app.client.errors import BrokenAnswer, UnexpectedAnswer, Unreachable
from serve_app.client.http import HttpClient
from serve_app.client.renewing import MAX_AGE_S, RenewingSession
from serve_app.client.session import Event, Session, SessionClient
from serve_app.client.types import Chunk, Options, Text
from serve_app.client.websocket import WebSocketClient
from serve_app.errors import EngineUnavailable, IdleTimeout, SpeechError
from serve_app.protocol.messages import (
    ErrorFrame,
    ServerFrame,
    SynthesisCancelled,
    SynthesisComplete,
    SynthesisStart,
    dump_frame,
)
from tests.client.endpoints import socket_server
from tests.client.hostile import HANG_S, collected, joined
from tests.client.streams import PCM


class Line:
    """A `Connection` whose other end the test is."""

    def __init__(self) -> None:
        self.sent: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.left = asyncio.Event()
        self._frames: asyncio.Queue[str | bytes | None | SpeechError] = asyncio.Queue()
        self._ended = False

    async def send(self, message: str) -> None:
        if self._ended:
            raise BrokenAnswer("the server's connection ended")
        self.sent.put_nowait(json.loads(message))

    async def receive(self) -> str | bytes | None:
        frame = await self._frames.get()
        if isinstance(frame, SpeechError):
            raise frame
        return frame

    def give(self, *frames: ServerFrame | bytes) -> None:
        for frame in frames:
            self._frames.put_nowait(frame if isinstance(frame, bytes) else dump_frame(frame))

    def end(self, how: SpeechError | None = None) -> None:
        self._ended = True
        self._frames.put_nowait(how)

    async def answer(self, *, whole: bool = True) -> str:
        """Take the next text and speak it. Returns the text."""
        message = await self.sent.get()
        request_id = message["request_id"]
        self.give(SynthesisStart(request_id), PCM[:4])
        if whole:
            self.give(SynthesisComplete(request_id, 0.1, 0.1))
        return str(message["text"])


class Lines:
    """A `SessionClient` whose connections a test holds the other end of."""

    def __init__(self) -> None:
        self.opened: asyncio.Queue[Line] = asyncio.Queue()
        self.asked = 0
        self.open = asyncio.Event()
        self.open.set()
        self.refusal: SpeechError | None = None

    @asynccontextmanager
    async def session(self, **options: Unpack[Options]) -> AsyncIterator[Session]:
        self.asked += 1
        await self.open.wait()
        if self.refusal is not None:
            raise self.refusal
        line = Line()
        self.opened.put_nowait(line)
        try:
            yield Session(line, options)
        finally:
            line.end()
            line.left.set()

    def synthesize(self, text: Text, **options: Unpack[Options]) -> AsyncGenerator[Chunk, None]:
        raise NotImplementedError

    async def aclose(self) -> None:
        """Nothing is kept."""


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


class Talk:
    """A conversation that a task of its own listens to."""

    def __init__(self, client: SessionClient, clock: Clock) -> None:
        self.speech = RenewingSession(client, {"voice": "af_bella"}, clock=clock)
        self.events: list[Event] = []
        self.changed = asyncio.Condition()
        self.listening = asyncio.create_task(self._listen())

    async def _listen(self) -> None:
        async for event in self.speech:
            async with self.changed:
                self.events.append(event)
                self.changed.notify_all()

    async def until(self, kind: type[Any], count: int = 1) -> None:
        """Wait for so many events of this kind."""
        async with self.changed:
            await self.changed.wait_for(lambda: sum(isinstance(event, kind) for event in self.events) >= count)


@asynccontextmanager
async def talking(client: SessionClient, clock: Clock | None = None) -> AsyncIterator[Talk]:
    async with asyncio.timeout(HANG_S):
        talk = Talk(client, clock or Clock())
        async with talk.speech:
            yield talk
        await asyncio.gather(talk.listening, return_exceptions=True)


async def settle() -> None:
    """Let every task run until it waits for something."""
    for _ in range(20):
        await asyncio.sleep(0)


def test_everything_goes_over_one_connection_while_it_is_young() -> None:
    async def scenario() -> None:
        lines = Lines()
        async with talking(lines) as talk:
            for text in ("One.", "Two.", "Three."):
                await talk.speech.say(text)
            line = await lines.opened.get()
            assert [await line.answer() for _ in range(3)] == ["One.", "Two.", "Three."]
            await talk.until(SynthesisComplete, 3)
            assert lines.asked == 1

    asyncio.run(scenario())


def test_what_is_said_before_the_connection_stands_waits_for_it() -> None:
    async def scenario() -> None:
        lines = Lines()
        lines.open.clear()
        async with talking(lines) as talk:
            connecting = asyncio.create_task(talk.speech.connect())
            saying = [asyncio.create_task(talk.speech.say(text)) for text in ("One.", "Two.")]
            await settle()
            assert not any(task.done() for task in (connecting, *saying))
            lines.open.set()
            line = await lines.opened.get()
            assert [await line.answer(), await line.answer()] == ["One.", "Two."]
            await connecting
            assert lines.asked == 1

    asyncio.run(scenario())


def test_a_cancelled_wait_for_the_connection_does_not_stop_the_connecting() -> None:
    async def scenario() -> None:
        lines = Lines()
        lines.open.clear()
        async with talking(lines) as talk:
            connecting = asyncio.create_task(talk.speech.connect())
            await settle()
            connecting.cancel()
            lines.open.set()
            await talk.speech.say("One.")
            assert lines.asked == 1

    asyncio.run(scenario())


def test_an_old_connection_is_renewed_between_utterances_and_not_in_the_middle_of_one() -> None:
    async def scenario() -> None:
        lines, clock = Lines(), Clock()
        async with talking(lines, clock) as talk:
            await talk.speech.say("One.", request_id="1")
            first = await lines.opened.get()
            await first.answer(whole=False)
            await talk.until(Chunk)
            clock.now_s = MAX_AGE_S
            later = [asyncio.create_task(talk.speech.say(text)) for text in ("Two.", "Three.")]
            await settle()
            assert (lines.asked, first.sent.empty(), first.left.is_set()) == (1, True, False)
            first.give(PCM[:2], SynthesisComplete("1", 0.1, 0.1))
            second = await lines.opened.get()
            assert [await second.answer(), await second.answer()] == ["Two.", "Three."]
            await asyncio.gather(*later)
            await talk.until(SynthesisComplete, 3)
            await first.left.wait()
            assert lines.asked == 2
        starts = [event.request_id for event in talk.events if isinstance(event, SynthesisStart)]
        ends = [event.request_id for event in talk.events if isinstance(event, SynthesisComplete)]
        assert starts == ends == ["1", *(task.result() for task in later)]

    asyncio.run(scenario())


def test_connecting_ahead_renews_an_old_connection_unless_it_is_in_use() -> None:
    async def scenario() -> None:
        lines, clock = Lines(), Clock()
        async with talking(lines, clock) as talk:
            await talk.speech.connect()
            await talk.speech.connect()
            assert lines.asked == 1
            first = await lines.opened.get()
            clock.now_s = MAX_AGE_S
            await talk.speech.connect()
            assert lines.asked == 2
            await first.left.wait()
            await talk.speech.say("One.")
            clock.now_s = 2 * MAX_AGE_S
            await talk.speech.connect()
            assert lines.asked == 2

    asyncio.run(scenario())


@pytest.mark.parametrize("how", [None, BrokenAnswer("the server's connection ended with code 1001")])
def test_a_connection_that_ends_between_utterances_is_replaced_without_a_word(how: SpeechError | None) -> None:
    async def scenario() -> None:
        lines = Lines()
        async with talking(lines) as talk:
            await talk.speech.say("One.")
            first = await lines.opened.get()
            await first.answer()
            await talk.until(SynthesisComplete)
            first.give(ErrorFrame("unknown", "no message for 600 s", IdleTimeout.code))
            first.end(how)
            await first.left.wait()
            assert lines.asked == 1  # not before there is something to say
            await talk.speech.say("Two.")
            await (await lines.opened.get()).answer()
            await talk.until(SynthesisComplete, 2)
        assert not [event for event in talk.events if isinstance(event, ErrorFrame)]

    asyncio.run(scenario())


def test_an_end_that_nobody_has_heard_of_is_found_by_the_next_text() -> None:
    async def scenario() -> None:
        lines = Lines()
        async with asyncio.timeout(HANG_S), RenewingSession(lines) as speech:
            await speech.connect()
            (await lines.opened.get()).end()
            said = await speech.say("One.")
            second = await lines.opened.get()
            await second.answer()
            assert [(await anext(speech)).request_id for _ in range(3)] == [said] * 3

    asyncio.run(scenario())


def test_a_server_that_ends_every_connection_is_not_tried_for_ever() -> None:
    class Dead(Lines):
        @asynccontextmanager
        async def session(self, **options: Unpack[Options]) -> AsyncIterator[Session]:
            async with super().session(**options) as session:
                (await self.opened.get()).end()
                yield session

    async def scenario() -> None:
        lines = Dead()
        async with asyncio.timeout(HANG_S), RenewingSession(lines) as speech:
            with pytest.raises(BrokenAnswer):
                await speech.say("One.")
            assert lines.asked == 2

    asyncio.run(scenario())


@pytest.mark.parametrize("how", [None, BrokenAnswer("lost")])
def test_a_connection_that_breaks_with_something_unanswered_is_an_error_and_not_the_end(
    how: SpeechError | None,
) -> None:
    async def scenario() -> None:
        lines = Lines()
        async with asyncio.timeout(HANG_S), RenewingSession(lines) as speech:
            await speech.say("One.")
            line = await lines.opened.get()
            await line.answer(whole=False)
            line.end(how)
            with pytest.raises(BrokenAnswer):
                [event async for event in speech]
            said = await speech.say("Two.")
            await (await lines.opened.get()).answer()
            assert (await anext(speech)).request_id == said

    asyncio.run(scenario())


def test_what_waited_for_an_old_connection_that_broke_goes_to_a_new_one() -> None:
    async def scenario() -> None:
        lines, clock = Lines(), Clock()
        async with talking(lines, clock) as talk:
            await talk.speech.say("One.")
            clock.now_s = MAX_AGE_S
            later = asyncio.create_task(talk.speech.say("Two."))
            await settle()
            (await lines.opened.get()).end()
            with pytest.raises(BrokenAnswer):
                await talk.listening
            assert await (await lines.opened.get()).answer() == "Two."
            await later

    asyncio.run(scenario())


LEAVING = "the server is shutting down; connect again"


async def leave(line: Line, *, waiting: int) -> None:
    """What a server does that goes away: texts behind the one in hand are refused, that one is finished."""
    in_hand = (await line.sent.get())["request_id"]
    line.give(SynthesisStart(in_hand), PCM[:4])
    for _ in range(waiting):
        line.give(ErrorFrame((await line.sent.get())["request_id"], LEAVING, EngineUnavailable.code))
    await settle()
    line.give(SynthesisComplete(in_hand, 0.1, 0.1))
    line.end()


@pytest.mark.parametrize("finished", [False, True])
def test_what_a_server_that_goes_away_refuses_is_said_again_in_order(finished: bool) -> None:
    async def scenario() -> None:
        lines = Lines()
        async with talking(lines) as talk:
            for text in ("One.", "Two.", "Three."):
                await talk.speech.say(text)
            if finished:
                await talk.speech.close()
            await leave(await lines.opened.get(), waiting=2)
            second = await lines.opened.get()
            assert [await second.answer(), await second.answer()] == ["Two.", "Three."]
            await talk.until(SynthesisComplete, 3)
            if finished:
                assert (await second.sent.get())["type"] == "close"
                second.end()
                await talk.listening
        assert not [event for event in talk.events if isinstance(event, ErrorFrame)]

    asyncio.run(scenario())


def test_what_is_said_while_the_server_goes_away_comes_after_what_it_refused() -> None:
    async def scenario() -> None:
        lines = Lines()
        async with talking(lines) as talk:
            await talk.speech.say("One.")
            await talk.speech.say("Two.")
            line = await lines.opened.get()
            in_hand, waiting = [(await line.sent.get())["request_id"] for _ in range(2)]
            line.give(SynthesisStart(in_hand), ErrorFrame(waiting, LEAVING, EngineUnavailable.code))
            await settle()
            later = asyncio.create_task(talk.speech.say("Three."))
            await settle()
            line.give(SynthesisComplete(in_hand, 0.1, 0.1))
            second = await lines.opened.get()
            assert [await second.answer(), await second.answer()] == ["Two.", "Three."]
            await later
            await talk.until(SynthesisComplete, 3)

    asyncio.run(scenario())


def test_what_is_refused_again_is_an_error() -> None:
    async def scenario() -> None:
        lines = Lines()
        async with talking(lines) as talk:
            await talk.speech.say("One.")
            await talk.speech.say("Two.")
            await leave(await lines.opened.get(), waiting=1)
            second = await lines.opened.get()
            second.give(ErrorFrame((await second.sent.get())["request_id"], LEAVING, EngineUnavailable.code))
            await talk.until(ErrorFrame)
        assert [type(event) for event in talk.events].count(SynthesisComplete) == 1

    asyncio.run(scenario())


def test_an_utterance_that_failed_after_it_began_is_not_said_again() -> None:
    async def scenario() -> None:
        lines = Lines()
        async with talking(lines) as talk:
            await talk.speech.say("One.")
            line = await lines.opened.get()
            begun = (await line.sent.get())["request_id"]
            line.give(SynthesisStart(begun), ErrorFrame(begun, "a replica went away", EngineUnavailable.code))
            await talk.until(ErrorFrame)

    asyncio.run(scenario())


def test_a_cancel_holds_for_what_waits_to_be_said_again() -> None:
    async def scenario() -> None:
        lines = Lines()
        async with talking(lines) as talk:
            await talk.speech.say("One.")
            cancelled = await talk.speech.say("Two.")
            line = await lines.opened.get()
            in_hand = (await line.sent.get())["request_id"]
            line.give(SynthesisStart(in_hand))
            line.give(ErrorFrame((await line.sent.get())["request_id"], LEAVING, EngineUnavailable.code))
            await settle()
            await talk.speech.cancel(cancelled)
            line.give(SynthesisComplete(in_hand, 0.1, 0.1))
            line.end()
            await talk.until(SynthesisCancelled)
            assert (lines.asked, talk.events[-1].request_id) == (1, cancelled)

    asyncio.run(scenario())


def test_frames_outside_of_the_contract_are_reported() -> None:
    async def scenario() -> None:
        lines = Lines()
        async with asyncio.timeout(HANG_S), RenewingSession(lines) as speech:
            await speech.connect()
            (await lines.opened.get()).give(PCM[:2])
            with pytest.raises(UnexpectedAnswer):
                await anext(speech)

    asyncio.run(scenario())


def test_a_refused_connection_is_told_to_whoever_wants_one_and_tried_again() -> None:
    async def scenario() -> None:
        lines = Lines()
        lines.refusal = Unreachable("no server answers there")
        async with talking(lines) as talk:
            with pytest.raises(Unreachable):
                await talk.speech.connect()
            with pytest.raises(Unreachable):
                await talk.speech.say("One.")
            lines.refusal = None
            await talk.speech.say("One.")
            await (await lines.opened.get()).answer()
            await talk.until(SynthesisComplete)

    asyncio.run(scenario())


def test_a_cancel_reaches_what_is_unanswered_and_nothing_else() -> None:
    async def scenario() -> None:
        lines = Lines()
        async with talking(lines) as talk:
            await talk.speech.cancel()
            await talk.speech.say("One.", request_id="1")
            line = await lines.opened.get()
            await line.answer(whole=False)
            await talk.speech.cancel()
            assert await line.sent.get() == {"type": "cancel"}
            line.give(SynthesisCancelled("1", 0.1))
            await talk.until(SynthesisCancelled)
            await talk.speech.cancel()
            assert line.sent.empty()

    asyncio.run(scenario())


def test_closing_ends_the_iteration_when_everything_is_answered() -> None:
    async def scenario() -> None:
        lines = Lines()
        async with talking(lines) as talk:
            await talk.speech.say("One.")
            await talk.speech.close()
            line = await lines.opened.get()
            await line.answer()
            assert await line.sent.get() == {"type": "close"}
            line.end()
            await talk.listening
            assert isinstance(talk.events[-1], SynthesisComplete)
            with pytest.raises(BrokenAnswer, match="was closed"):
                await talk.speech.say("Too late.")

    asyncio.run(scenario())


@pytest.mark.parametrize("connected", [False, True])
def test_closing_with_nothing_to_wait_for_ends_the_iteration_at_once(connected: bool) -> None:
    async def scenario() -> None:
        lines = Lines()
        async with talking(lines) as talk:
            if connected:
                await talk.speech.connect()
            await talk.speech.close()
            await talk.listening
            assert talk.events == []

    asyncio.run(scenario())


def test_leaving_hangs_up_whatever_is_going_on_and_leaves_nothing_behind() -> None:
    async def scenario() -> None:
        lines = Lines()
        async with talking(lines) as talk:
            await talk.speech.say("One.")
            line = await lines.opened.get()
            await line.answer(whole=False)
            await talk.until(Chunk)
        assert line.left.is_set()
        assert talk.listening.exception() is None

        lines.open.clear()
        async with talking(lines) as talk:
            saying = asyncio.create_task(talk.speech.say("One."))
            await settle()
        with pytest.raises(BrokenAnswer, match="was closed"):
            await saying
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(scenario())


def test_sentences_on_a_connection_each_are_heard_as_on_one(client: SessionClient, server: str) -> None:
    sentences = ["Hello there.", "This is a post deployment check.", "It has three sentences."]

    async def scenario() -> bytes:
        clock = Clock()
        async with talking(client, clock) as talk:
            for sentence in sentences:
                clock.now_s += MAX_AGE_S
                await talk.speech.say(sentence)
            await talk.speech.close()
            await talk.listening
        await client.aclose()
        return joined(event for event in talk.events if isinstance(event, Chunk))

    alone = [
        joined(asyncio.run(collected(HttpClient(server).synthesize(sentence, voice="af_bella"))))
        for sentence in sentences
    ]
    assert asyncio.run(scenario()) == b"".join(alone)


def test_a_server_that_is_updated_between_two_texts_is_not_noticed() -> None:
    async def scenario() -> None:
        ended: asyncio.Queue[None] = asyncio.Queue()

        async def serve_one(websocket: ServerConnection) -> None:
            request_id = json.loads(await websocket.recv())["request_id"]
            for frame in (SynthesisStart(request_id), PCM, SynthesisComplete(request_id, 0.1, 0.1)):
                await websocket.send(frame if isinstance(frame, bytes) else dump_frame(frame))
            await websocket.close(1001)
            ended.put_nowait(None)

        async with socket_server(serve_one) as url, talking(WebSocketClient(url)) as talk:
            for count in (1, 2, 3):
                await talk.speech.say("Hello there.")
                await talk.until(SynthesisComplete, count)
                await ended.get()

    asyncio.run(scenario())
