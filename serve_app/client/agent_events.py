"""An agent's answer, event by event as it comes (wire contract, 4). No socket."""

import base64
from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, TypeAdapter, ValidationError

from serve_app.client.errors import BrokenAnswer, UnexpectedAnswer, error_of
from serve_app.protocol.sse import SseDecoder, SseError


def _decoded(data: object) -> object:
    return base64.b64decode(data, validate=True) if isinstance(data, str) else data


class _Event(BaseModel):
    """Unknown fields are ignored: they are of a newer agent."""

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)
    request_id: str


class AgentStart(_Event):
    """The first event; `mode` as asked for."""

    type: Literal["agent_start"]
    mode: str


class TextDelta(_Event):
    """Text as the model writes it."""

    type: Literal["text_delta"]
    text: str


class AudioStart(_Event):
    """Audio follows. `format` pcm16 is s16le without a header, mono."""

    type: Literal["audio_stream_start"]
    format: str
    voice: str
    sample_rate: int


class AudioData(_Event):
    """A slice of the audio; `seq` counts from 0."""

    type: Literal["audio_chunk"]
    seq: int
    data: Annotated[bytes, BeforeValidator(_decoded)]


class AudioEnd(_Event):
    """The audio is whole."""

    type: Literal["audio_stream_end"]
    total_chunks: int
    duration_s: float


class AgentEnd(_Event):
    """The last event of an answer that is whole."""

    type: Literal["agent_end"]


class _Failed(_Event):
    """The last event of an answer that is not."""

    type: Literal["error"]
    request_id: str = "unknown"
    message: str
    code: str = "internal"


AgentEvent = AgentStart | TextDelta | AudioStart | AudioData | AudioEnd | AgentEnd

_KINDS: dict[str, TypeAdapter[Any]] = {
    name: TypeAdapter(kind)
    for name, kind in {
        "agent_start": AgentStart,
        "text_delta": TextDelta,
        "audio_stream_start": AudioStart,
        "audio_chunk": AudioData,
        "audio_stream_end": AudioEnd,
        "agent_end": AgentEnd,
        "error": _Failed,
    }.items()
}


class AgentAnswer:
    """Slices of an event stream in, events out, whatever the slicing. Every audio chunk is accounted for."""

    def __init__(self) -> None:
        self._stream = SseDecoder()
        self._chunks = 0
        self._ended = False

    def feed(self, data: bytes) -> Iterator[AgentEvent]:
        """The events that `data` completes; those of an unknown type are of a newer agent and left out.

        Raises:
            SpeechError: of an `error` event; UnexpectedAnswer, BrokenAnswer.
        """
        try:
            for event in self._stream.feed(data):
                fields = event.json()
                adapter = _KINDS.get(str(fields.get("type")))
                if adapter is not None and not self._ended:
                    yield self._take(adapter, fields)
        except SseError as exc:
            raise UnexpectedAnswer(f"the agent's event stream is not readable: {exc}") from exc

    def finish(self) -> None:
        """The stream has ended. Raises BrokenAnswer if the answer has not."""
        if not self._ended:
            raise BrokenAnswer("the agent's event stream ended without agent_end or error")

    def _take(self, adapter: TypeAdapter[Any], fields: dict[str, Any]) -> AgentEvent:
        try:
            event: AgentEvent | _Failed = adapter.validate_python(fields)
        except ValidationError as exc:
            raise UnexpectedAnswer("the agent sent an event without the fields that it must have") from exc
        match event:
            case _Failed():
                raise error_of(event.code, event.message, event.request_id)
            case AudioData():
                if event.seq != self._chunks:
                    raise BrokenAnswer(f"chunk {self._chunks} of the agent's audio is missing")
                self._chunks += 1
            case AudioEnd() if event.total_chunks != self._chunks:
                raise BrokenAnswer("the agent's audio ended with chunks missing")
            case AgentEnd():
                self._ended = True
        return event
