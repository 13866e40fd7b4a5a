"""The one interface to a speech server, whatever the transport."""

from collections.abc import AsyncGenerator, AsyncIterable
from dataclasses import dataclass
from typing import Protocol, TypedDict, Unpack
from uuid import uuid4

from serve_app.errors import BadRequest
from serve_app.formats import FORMATS

Text = str | AsyncIterable[str]
"""A whole text, or the pieces of one that is still being written."""


class Options(TypedDict, total=False):
    """How to speak; the fields of the wire contract. What is left out is the server's choice, with two exceptions:
    `format` is pcm, and `request_id` is made up, so that every failure can be found in the server's log.
    """

    voice: str
    lang: str
    speed: float
    format: str
    sample_rate: int
    request_id: str
    request_timestamp: float
    timestamps: bool


@dataclass(frozen=True, slots=True)
class Word:
    """A word as written, and when it is heard, in seconds from the start of its utterance's audio."""

    text: str
    start_s: float
    end_s: float


@dataclass(frozen=True, slots=True)
class Audio:
    """What the bytes of an answer are.

    Attributes:
        format: a name in serve_app.formats.
        sample_rate: Hz; None where only the encoded bytes themselves tell.
    """

    format: str
    sample_rate: int | None

    @property
    def sample_bytes(self) -> int:
        """What a chunk's length is a multiple of; 1 where bytes are a codec's."""
        return FORMATS[self.format].sample_bytes


@dataclass(frozen=True, slots=True)
class Chunk:
    """A slice of an utterance's audio.

    Attributes:
        data: PCM s16le, always whole samples, or encoded bytes (a WAV answer begins with its header).
        words: asked for with `timestamps`; those that begin with this chunk.
    """

    request_id: str
    data: bytes
    audio: Audio
    words: tuple[Word, ...] = ()


class SpeechClient(Protocol):
    """A way to have text spoken. Usable for many utterances, also at the same time."""

    def synthesize(self, text: Text, **options: Unpack[Options]) -> AsyncGenerator[Chunk, None]:
        """Speak a text; audio comes as soon as its first sentence is ready.

        Closing the generator early closes the connection, which stops the synthesis. Cancelling does the same.

        Raises:
            SpeechError: of the server (`code` as in serve_app/errors.py), or one of serve_app/client/errors.py.
                A server that says 503 with a short Retry-After is asked again, before the first byte only.
        """
        ...

    async def aclose(self) -> None:
        """Give up idle connections."""
        ...


def with_defaults(options: Options) -> Options:
    """The options as they are sent."""
    defaults: Options = {"format": "pcm", "request_id": uuid4().hex}
    return {**defaults, **options}


def audio_asked_for(options: Options) -> Audio:
    """What an answer without a content type of its own (WebSocket) consists of. Raises BadRequest."""
    name = options.get("format", "pcm")
    if name not in FORMATS:
        raise BadRequest(f"format must be one of {', '.join(FORMATS)}")
    return Audio(name, options.get("sample_rate", FORMATS[name].default_rate))


class WholeSamples:
    """Bytes in, whole samples out: what a slice leaves over is put before the next one. One object per utterance."""

    def __init__(self, sample_bytes: int) -> None:
        self._sample_bytes = sample_bytes
        self._left = b""

    def feed(self, data: bytes) -> bytes:
        """The samples that `data` completes; half a sample at the very end is never heard of again."""
        data = self._left + data
        whole = len(data) - len(data) % self._sample_bytes
        self._left = data[whole:]
        return data[:whole]
