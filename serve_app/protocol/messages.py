"""WebSocket control frames: what a client may say and what it hears back (wire contract, section 3)."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from serve_app.errors import BadRequest, SpeechError
from serve_app.protocol.requests import (
    UNKNOWN_REQUEST_ID,
    FormatName,
    Message,
    RequestId,
    SpeechOptions,
    Text,
    load_object,
    request_id_in,
    validate,
)


def _allowed(option: str) -> str | None:
    return SpeechOptions.model_fields[option].description


class Say(SpeechOptions):
    """Speak a complete text; the one message without a `type`. Raw PCM unless asked otherwise."""

    text: Text
    format: FormatName = "pcm"


class TextDelta(SpeechOptions):
    """A slice of an answer still being written; the server's own chunker cuts the sentences.

    The options of the first one hold for the utterance. `text` is as sent: a slice may begin or end with half of a
    UTF-16 pair whose other half is in its neighbour.
    """

    type: Literal["text_delta"]
    text: Annotated[str, Field(description="a string")]
    format: FormatName = "pcm"


class TextEnd(Message):
    """The answer that came in `text_delta` messages is complete."""

    type: Literal["text_end"]


class Close(Message):
    """Finish what is queued, then end the session."""

    type: Literal["close"]


class Cancel(Message):
    """Barge-in: drop one utterance, or everything."""

    type: Literal["cancel"]
    request_id: Annotated[RequestId | None, Field(description=_allowed("request_id"))] = None


class Ping(Message):
    """Answered by Pong at once."""

    type: Literal["ping"]


ClientMessage = Say | TextDelta | TextEnd | Close | Cancel | Ping

_TYPED: dict[str, type[TextDelta | TextEnd | Close | Cancel | Ping]] = {
    "text_delta": TextDelta,
    "text_end": TextEnd,
    "close": Close,
    "cancel": Cancel,
    "ping": Ping,
}


def parse_message(raw: str | bytes) -> ClientMessage:
    """Decode one client frame, text or binary (SageMaker delivers every message as binary).

    Raises:
        BadRequest: not UTF-8, not a JSON object, unknown type, ill-typed field. `request_id` is the one in the message.
    """
    fields = load_object(raw, "the message")
    try:
        if "type" not in fields:
            return validate(Say, fields)
        kind = fields["type"]
        if not isinstance(kind, str) or kind not in _TYPED:
            raise BadRequest(f"type must be one of {', '.join(_TYPED)}, or absent in a message that has a text")
        return validate(_TYPED[kind], fields)
    except BadRequest as exc:
        exc.request_id = request_id_in(fields)
        raise


@dataclass(frozen=True, slots=True)
class SynthesisStart:
    """An utterance begins; its audio frames follow."""

    type: ClassVar = "synthesis_start"
    request_id: str


@dataclass(frozen=True, slots=True)
class SynthesisComplete:
    """An utterance has been sent to its end. `elapsed_s` counts from its synthesis_start."""

    type: ClassVar = "synthesis_complete"
    request_id: str
    total_duration_s: float
    elapsed_s: float


@dataclass(frozen=True, slots=True)
class SynthesisCancelled:
    """An utterance was dropped after `sent_duration_s` of its audio."""

    type: ClassVar = "synthesis_cancelled"
    request_id: str
    sent_duration_s: float


@dataclass(frozen=True, slots=True)
class ErrorFrame:
    """A message failed."""

    type: ClassVar = "error"
    request_id: str
    message: str
    code: str


@dataclass(frozen=True, slots=True)
class Words:
    """Word timings of audio about to be sent: `{"w", "start_s", "end_s"}` each, seconds from the utterance's start."""

    type: ClassVar = "words"
    request_id: str
    words: Sequence[Mapping[str, str | float]]


@dataclass(frozen=True, slots=True)
class Pong:
    """The answer to a ping."""

    type: ClassVar = "pong"


ServerFrame = SynthesisStart | SynthesisComplete | SynthesisCancelled | ErrorFrame | Words | Pong


def error_frame(error: SpeechError, request_id: str = UNKNOWN_REQUEST_ID) -> ErrorFrame:
    """The frame that tells a client of `error`."""
    return ErrorFrame(request_id, error.message, error.code)


def dump_frame(frame: ServerFrame) -> str:
    """A frame as a JSON object, durations rounded to ms. Raises ValueError on a duration that is no finite number."""
    fields = {name: round(value, 3) if isinstance(value, float) else value for name, value in asdict(frame).items()}
    return json.dumps({"type": frame.type, **fields}, separators=(",", ":"), allow_nan=False)
