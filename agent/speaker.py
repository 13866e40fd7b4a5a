"""The speaking side of one answer: sentences go to the speech server as they are known, audio comes back as events."""

import asyncio
from base64 import b64encode
from collections.abc import Callable
from functools import partial
from typing import Protocol, Self, Unpack

from agent.events import AudioChunk, AudioStreamEnd, AudioStreamStart, AudioWords
from agent.outbox import Outbox
from agent.request import Request
from agent.spoken import Spoken, Utterance, with_times
from serve_app.client.errors import BrokenAnswer, error_of
from serve_app.client.session import Event as SpeechEvent
from serve_app.client.session import Words
from serve_app.client.types import Chunk, Options
from serve_app.protocol.messages import ErrorFrame, SynthesisCancelled, SynthesisComplete, SynthesisStart

MAX_AHEAD = 64
"""Sentences that may wait at the server; a model that writes faster than that waits too."""


SILENCE_TIMEOUT_S = 30.0
"""A server that owes audio and sends nothing for so long is gone, whatever its connection says."""


class Speech(Protocol):
    """A conversation with a speech server, over whichever transport; see `serve_app.client.renewing`."""

    async def connect(self) -> None:
        """Open the connection ahead of the first text. Raises SpeechError."""
        ...

    async def say(self, text: str, **options: Unpack[Options]) -> str:
        """Have a text spoken after those before it; does not wait for its audio. Raises SpeechError."""
        ...

    async def close(self) -> None:
        """Finish what was said; the iteration ends after its last event."""
        ...

    def __aiter__(self) -> Self: ...

    async def __anext__(self) -> SpeechEvent: ...


class Speaker:
    """One answer's speech. `say` and `finish` from one task, `listen` in another."""

    def __init__(
        self, speech: Speech, request: Request, spoken: Spoken, outbox: Outbox, clock: Callable[[], float]
    ) -> None:
        """`spoken` is told what the caller gets."""
        self._speech, self._request, self._spoken, self._outbox, self._clock = speech, request, spoken, outbox, clock
        self._texts: dict[str, str] = {}
        self._room = asyncio.Semaphore(MAX_AHEAD)
        self._said = 0
        self._chunks = 0
        self._word_events = 0
        self._duration_s = 0.0  # of the utterances before the one in hand
        self._in_hand: Utterance | None = None
        self._unanswered = 0
        self._patience: asyncio.Timeout | None = None  # while `listen` waits for the server

    async def say(self, text: str, *, aside: bool = False) -> None:
        """Speak `text` after what was said before. An `aside` is no part of the answer. Raises SpeechError."""
        await self._room.acquire()
        utterance_id = f"{self._request.request_id[:100]}-{self._said}"
        self._said += 1
        self._texts[utterance_id] = "" if aside else text
        self._unanswered += 1
        if self._unanswered == 1:
            self._be_patient()
        await self._speech.say(text, request_id=utterance_id)

    async def finish(self) -> None:
        """Nothing more is said; `listen` returns when all of it was spoken."""
        await self._speech.close()

    async def listen(self) -> None:
        """Connect, and turn what the server sends into events until all is spoken. Raises SpeechError."""
        await self._speech.connect()
        while (event := await self._next()) is not None:
            match event:
                case SynthesisStart():
                    await self._begin(event.request_id)
                case Words():
                    await self._time(event)
                case Chunk():
                    await self._hand_over(event)
                case SynthesisComplete():
                    self._complete(event)
                case ErrorFrame():
                    raise error_of(event.code, event.message, event.request_id)
                case SynthesisCancelled():
                    raise BrokenAnswer("the speech server gave up on a sentence")
        if self._in_hand is not None:
            end = AudioStreamEnd(self._request.request_id, self._chunks, round(self._duration_s, 3))
            await self._outbox.put(end)

    async def _next(self) -> SpeechEvent | None:
        """The server's next event; None after the last. Raises BrokenAnswer when it owes one and sends none."""
        try:
            async with asyncio.timeout(None) as self._patience:
                self._be_patient()
                return await anext(self._speech, None)
        except TimeoutError as exc:
            raise BrokenAnswer("the speech server fell silent") from exc
        finally:
            self._patience = None

    def _be_patient(self) -> None:
        """Wait no longer than from now on until the time is up, if there is something to wait for."""
        if self._patience is not None and self._unanswered:
            self._patience.reschedule(asyncio.get_running_loop().time() + SILENCE_TIMEOUT_S)

    async def _begin(self, utterance_id: str) -> None:
        request, first = self._request, self._in_hand is None
        self._in_hand = self._spoken.began(self._texts.pop(utterance_id, ""))
        if first:
            start = AudioStreamStart(request.request_id, request.format, request.voice, request.sample_rate_hz)
            await self._outbox.put(start)

    async def _time(self, event: Words) -> None:
        assert self._in_hand is not None  # the session lets neither words nor audio pass outside of an utterance
        self._in_hand.words += event.words
        if self._request.timestamps:
            seq, self._word_events = self._word_events, self._word_events + 1
            words = with_times(event.words, self._duration_s)
            await self._outbox.put(AudioWords(self._request.request_id, seq, words))

    async def _hand_over(self, chunk: Chunk) -> None:
        assert self._in_hand is not None
        seq, self._chunks = self._chunks, self._chunks + 1
        event = AudioChunk(self._request.request_id, seq, b64encode(chunk.data).decode())
        await self._outbox.put(event, partial(self._handed, self._in_hand, self._seconds(chunk)))

    def _complete(self, event: SynthesisComplete) -> None:
        self._room.release()
        self._unanswered -= 1
        self._duration_s += event.total_duration_s
        if self._in_hand is not None:
            self._in_hand.whole = True

    def _handed(self, utterance: Utterance, duration_s: float) -> None:
        self._spoken.handed(utterance, duration_s, self._clock())

    def _seconds(self, chunk: Chunk) -> float:
        return len(chunk.data) / self._request.bytes_per_second
