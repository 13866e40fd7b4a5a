"""What a server sends, checked: the events of a stream and the control frames of a session (wire contract, 2 and 3)."""

import json
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from serve_app.client.errors import UnexpectedAnswer
from serve_app.client.types import Audio, Word
from serve_app.formats import FORMATS
from serve_app.protocol.messages import (
    ErrorFrame,
    Pong,
    ServerFrame,
    SynthesisCancelled,
    SynthesisComplete,
    SynthesisStart,
    Words,
)


class _Event(BaseModel):
    """Unknown fields are ignored: they are of a newer server."""

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)


class TimedWord(_Event):
    """A word of `audio_words` or `words`."""

    w: str
    start_s: float
    end_s: float


class AudioStreamStart(_Event):
    """The first event of a stream."""

    format: str
    sample_rate: int

    def audio(self) -> Audio:
        """What the chunks are. Raises UnexpectedAnswer."""
        if self.format not in FORMATS:
            raise UnexpectedAnswer(f"the event stream carries an unknown audio format, {self.format[:64]!a}")
        return Audio(self.format, self.sample_rate)


class AudioChunk(_Event):
    """Base64 audio; `seq` counts from 0."""

    seq: int
    data: str


class AudioWords(_Event):
    """Word timings of the audio that follows."""

    words: list[TimedWord]

    def timed(self) -> tuple[Word, ...]:
        """The words as the client hands them out."""
        return tuple(Word(each.w, each.start_s, each.end_s) for each in self.words)


class AudioStreamEnd(_Event):
    """The last event of a stream that is whole."""

    total_chunks: int


class StreamError(_Event):
    """The last event of a stream that failed. Servers older than the codes send none."""

    message: str
    code: str = "internal"
    request_id: str = "unknown"


_FRAMES: dict[str, TypeAdapter[Any]] = {
    frame.type: TypeAdapter(frame)
    for frame in (SynthesisStart, SynthesisComplete, SynthesisCancelled, ErrorFrame, Words, Pong)
}


def checked[E: _Event](kind: type[E], fields: Mapping[str, object]) -> E:
    """The fields of an event. Raises UnexpectedAnswer."""
    try:
        return kind.model_validate(fields)
    except ValidationError as exc:
        raise UnexpectedAnswer(f"a server's {kind.__name__} does not have the fields that it must have") from exc


def parse_frame(frame: str | Mapping[str, Any]) -> ServerFrame | None:
    """A control frame; None: one of a newer server. Raises UnexpectedAnswer."""
    try:
        fields = json.loads(frame) if isinstance(frame, str) else frame
        adapter = _FRAMES.get(fields["type"])
        return None if adapter is None else adapter.validate_python(fields)
    except (ValueError, TypeError, KeyError, RecursionError) as exc:  # ValidationError is a ValueError
        raise UnexpectedAnswer("the server sent a control frame that is not one of the contract's") from exc
