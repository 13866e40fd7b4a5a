"""The body of an answer, turned into chunks as it comes. No socket: /invocations and SageMaker both use it."""

import base64
import re
from collections.abc import Iterator
from typing import Protocol

from serve_app.client.errors import BrokenAnswer, UnexpectedAnswer, error_of
from serve_app.client.types import Audio, Chunk, WholeSamples, Word
from serve_app.client.wire import AudioChunk, AudioStreamEnd, AudioStreamStart, AudioWords, StreamError, checked
from serve_app.formats import DEFAULT_SAMPLE_RATE, FORMATS
from serve_app.protocol.sse import SseDecoder, SseError, SseEvent

_FORMAT_OF = {audio_format.media_type.partition(";")[0]: name for name, audio_format in FORMATS.items()}
_RATE = re.compile(r";\s*rate=([1-9][0-9]{2,5})\s*(?:;|$)")


class Answer(Protocol):
    """Slices of a body in, chunks out, whatever the slicing."""

    def feed(self, data: bytes) -> Iterator[Chunk]:
        """The chunks that `data` completes, then maybe a SpeechError: of an `error` event, or a broken rule."""
        ...

    def finish(self) -> Iterator[Chunk]:
        """The body has ended as its transport says it should. Raises BrokenAnswer if the answer has not."""
        ...


def open_answer(content_type: str, request_id: str) -> Answer:
    """The reader of an answer, by what it says it is, never by what was asked. Raises UnexpectedAnswer."""
    media_type = content_type.partition(";")[0].strip().lower()
    if media_type == "text/event-stream":
        return EventAnswer(request_id)
    if media_type not in _FORMAT_OF:
        raise UnexpectedAnswer(f"the server answered with {media_type[:64]!a} instead of audio")
    rate = _RATE.search(content_type)
    known = DEFAULT_SAMPLE_RATE if media_type == "audio/pcm" else None
    return BinaryAnswer(request_id, Audio(_FORMAT_OF[media_type], int(rate[1]) if rate else known))


class BinaryAnswer:
    """Audio bytes and nothing else; only the transport can tell that they are complete."""

    def __init__(self, request_id: str, audio: Audio) -> None:
        self._request_id, self._audio = request_id, audio
        self._samples = WholeSamples(audio.sample_bytes)
        self._heard = False

    def feed(self, data: bytes) -> Iterator[Chunk]:
        """See `Answer.feed`."""
        whole = self._samples.feed(data)
        if whole:
            self._heard = True
            yield Chunk(self._request_id, whole, self._audio)

    def finish(self) -> Iterator[Chunk]:
        """See `Answer.finish`."""
        if not self._heard:
            raise BrokenAnswer("the answer ended without audio")
        yield from ()


class EventAnswer:
    """The contract's server-sent events. Every chunk is accounted for: by its `seq`, and by the total at the end."""

    def __init__(self, request_id: str) -> None:
        self._request_id = request_id
        self._events = SseDecoder()
        self._audio: Audio | None = None
        self._samples = WholeSamples(1)
        self._words: tuple[Word, ...] = ()
        self._chunks = 0
        self._ended = False

    def feed(self, data: bytes) -> Iterator[Chunk]:
        """See `Answer.feed`."""
        try:
            events = self._events.feed(data)
        except SseError as exc:
            raise UnexpectedAnswer(f"the event stream is not readable: {exc}") from exc
        for event in events:
            yield from self._take(event)

    def finish(self) -> Iterator[Chunk]:
        """See `Answer.finish`."""
        if not self._ended:
            raise BrokenAnswer("the event stream ended without audio_stream_end or error")
        if self._words and self._audio is not None:
            yield Chunk(self._request_id, b"", self._audio, self._words)

    def _take(self, event: SseEvent) -> Iterator[Chunk]:
        if self._ended:
            return
        match event.event:
            case "audio_stream_start":
                start = checked(AudioStreamStart, _fields(event))
                self._audio = start.audio()
                self._samples = WholeSamples(self._audio.sample_bytes)
            case "audio_words":
                self._words += checked(AudioWords, _fields(event)).timed()
            case "audio_chunk":
                yield from self._sound(checked(AudioChunk, _fields(event)))
            case "audio_stream_end":
                if checked(AudioStreamEnd, _fields(event)).total_chunks != self._chunks:
                    raise BrokenAnswer("the event stream ended with chunks missing")
                self._ended = True
            case "error":
                failure = checked(StreamError, _fields(event))
                raise error_of(failure.code, failure.message, failure.request_id)
            case _:  # of a newer server
                pass

    def _sound(self, chunk: AudioChunk) -> Iterator[Chunk]:
        if self._audio is None:
            raise UnexpectedAnswer("the event stream began without audio_stream_start")
        if chunk.seq != self._chunks:
            raise BrokenAnswer(f"chunk {self._chunks} of the event stream is missing")
        self._chunks += 1
        try:
            data = base64.b64decode(chunk.data, validate=True)
        except ValueError as exc:
            raise UnexpectedAnswer(f"chunk {chunk.seq} of the event stream is not base64") from exc
        whole = self._samples.feed(data)
        if whole:
            words, self._words = self._words, ()
            yield Chunk(self._request_id, whole, self._audio, words)


def _fields(event: SseEvent) -> dict[str, object]:
    try:
        return event.json()
    except SseError as exc:
        raise UnexpectedAnswer(f"the event stream is not readable: {exc}") from exc
