"""A conversation with a server over a connection that goes both ways: text in as it is written, events out."""

import json
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Protocol, Self, Unpack, runtime_checkable

from serve_app.client.errors import BrokenAnswer, UnexpectedAnswer
from serve_app.client.types import (
    Audio,
    Chunk,
    Options,
    SpeechClient,
    WholeSamples,
    Word,
    audio_asked_for,
    with_defaults,
)
from serve_app.client.wire import AudioWords, checked, parse_frame
from serve_app.protocol import messages
from serve_app.protocol.framing import is_control
from serve_app.protocol.messages import ErrorFrame, Pong, SynthesisCancelled, SynthesisComplete, SynthesisStart


class Connection(Protocol):
    """Messages to and from one server; see `serve_app.client.websocket` and `serve_app.client.bidirectional`."""

    async def send(self, message: str) -> None:
        """Send a control message. Raises BrokenAnswer when the connection has ended."""
        ...

    async def receive(self) -> str | bytes | None:
        """The next frame; None: the server ended the conversation politely. Raises BrokenAnswer.

        A transport that merges both kinds of frames hands over bytes only, one frame at a time.
        """
        ...


@dataclass(frozen=True, slots=True)
class Words:
    """Asked for with `timestamps`: the words of the audio that follows."""

    request_id: str
    words: tuple[Word, ...]


Event = SynthesisStart | Chunk | Words | SynthesisComplete | SynthesisCancelled | ErrorFrame


@dataclass(slots=True)
class _Utterance:
    request_id: str
    audio: Audio
    samples: WholeSamples


class Session(AsyncIterator[Event]):
    """One conversation. Utterances are spoken one after the other, in the order in which they were sent.

    Sending never waits for audio. Iterating gives the events of all utterances: for each one SynthesisStart, its
    audio, and then exactly one of SynthesisComplete, SynthesisCancelled and ErrorFrame (which also stands alone, for a
    message that was refused); an error ends its utterance, not the session. The iteration ends when the server has
    closed the session and nothing is unanswered, else it raises BrokenAnswer. One task may iterate while others send.
    """

    def __init__(self, connection: Connection, options: Options) -> None:
        self._connection, self._options = connection, options.copy()
        self._options.pop("request_id", None)  # it names one utterance
        self._unanswered: list[_Utterance] = []
        self._fed: str | None = None
        self._speaking: _Utterance | None = None

    async def say(self, text: str, **options: Unpack[Options]) -> str:
        """Speak a whole text; `options` win over the session's. Returns its request_id.

        A text between `feed` and `end` is refused by the server, as an ErrorFrame. Raises BadRequest, BrokenAnswer.
        """
        utterance, fields = self._expect(options)
        await self._begin(utterance, {"text": text, **fields})
        return utterance.request_id

    async def feed(self, text: str, **options: Unpack[Options]) -> str:
        """Add to a text that is being written; the server cuts the sentences. `options` count in the first piece only.

        Returns the text's request_id. Raises BadRequest, BrokenAnswer. What follows a `cancel` begins another text.
        """
        if self._fed is not None:
            request_id = self._fed
            await self._send({"type": "text_delta", "text": text, "request_id": request_id})
            return request_id
        utterance, fields = self._expect(options)
        self._fed = utterance.request_id
        await self._begin(utterance, {"type": "text_delta", "text": text, **fields})
        return utterance.request_id

    async def end(self) -> None:
        """The text that was fed is complete; does nothing if there is none."""
        if self._fed is not None:
            self._fed = None
            await self._send({"type": "text_end"})

    async def cancel(self, request_id: str | None = None) -> None:
        """Barge-in: drop one utterance, or all. Audio that is on its way still arrives before SynthesisCancelled."""
        if request_id in (None, self._fed):
            self._fed = None
        await self._send({"type": "cancel"} if request_id is None else {"type": "cancel", "request_id": request_id})

    async def close(self) -> None:
        """Let the server finish what it was sent and end the session; the iteration ends after the last event."""
        self._fed = None
        await self._send({"type": "close"})

    @property
    def unanswered(self) -> int:
        """How many utterances have been sent whose last event is still to come."""
        return len(self._unanswered)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        while True:
            frame = await self._connection.receive()
            if frame is None:
                if self._unanswered:
                    raise BrokenAnswer(f"the server ended the session with {len(self._unanswered)} texts unanswered")
                raise StopAsyncIteration
            event = self._read(frame)
            if event is not None:
                return event

    def _expect(self, options: Options) -> tuple[_Utterance, dict[str, Any]]:
        """An utterance that the server will answer, and the fields to send for it."""
        wanted = with_defaults({**self._options, **options})
        audio = audio_asked_for(wanted)
        utterance = _Utterance(wanted["request_id"], audio, WholeSamples(audio.sample_bytes))
        self._unanswered.append(utterance)
        return utterance, dict(wanted)

    async def _begin(self, utterance: _Utterance, message: dict[str, Any]) -> None:
        """Send the first message of an utterance; one that could not be sent will not be answered either."""
        try:
            await self._send(message)
        except BrokenAnswer:
            self._answered(utterance.request_id)
            raise

    async def _send(self, message: dict[str, Any]) -> None:
        await self._connection.send(json.dumps(message))

    def _read(self, frame: str | bytes) -> Event | None:
        # Holds on a WebSocket too, where both kinds come apart: no audio frame parses as a JSON object.
        fields = is_control(frame) if isinstance(frame, bytes) else frame
        if fields is None:
            return self._sound(frame) if isinstance(frame, bytes) else None
        event = parse_frame(fields)
        match event:
            case SynthesisStart():
                self._speaking = self._find(event.request_id)
            case SynthesisComplete() | SynthesisCancelled() | ErrorFrame():
                self._answered(event.request_id)
            case messages.Words():
                return Words(event.request_id, checked(AudioWords, {"words": event.words}).timed())
            case Pong() | None:
                return None
        return event

    def _sound(self, data: bytes) -> Chunk | None:
        if self._speaking is None:
            raise UnexpectedAnswer("the server sent audio outside of an utterance")
        whole = self._speaking.samples.feed(data)
        return Chunk(self._speaking.request_id, whole, self._speaking.audio) if whole else None

    def _find(self, request_id: str) -> _Utterance:
        for utterance in self._unanswered:
            if utterance.request_id == request_id:
                return utterance
        raise UnexpectedAnswer("the server speaks a text that it was not sent")

    def _answered(self, request_id: str) -> None:
        """An utterance has ended. An id that is not waited for is of a cancel that came too late, or of no message."""
        for at, utterance in enumerate(self._unanswered):
            if utterance.request_id == request_id:
                del self._unanswered[at]
                if utterance is self._speaking:
                    self._speaking = None
                return


@runtime_checkable
class SessionClient(SpeechClient, Protocol):
    """A client whose transport goes both ways."""

    def session(self, **options: Unpack[Options]) -> AbstractAsyncContextManager[Session]:
        """Connect, ahead of the first text if that is known to come. `options` hold for its utterances.

        Leaving the context closes the connection at once; await `Session.close` and the last event to hear it all.
        Entering it raises Unreachable, UnexpectedAnswer, or what the server refuses a session with.
        """
        ...
