"""What a caller of the agent is told: the wire contract's section 4, and nothing of the framework behind it."""

from dataclasses import asdict, dataclass
from typing import Any, ClassVar


@dataclass(frozen=True, slots=True)
class Event:
    """One event of an answer; `type` tells them apart on the wire."""

    type: ClassVar[str]
    request_id: str

    def dump(self) -> dict[str, Any]:
        """The event as it is sent."""
        return {"type": self.type, **asdict(self)}


@dataclass(frozen=True, slots=True)
class AgentStart(Event):
    """The first event."""

    type: ClassVar[str] = "agent_start"
    mode: str


@dataclass(frozen=True, slots=True)
class TextDelta(Event):
    """Text as the model writes it."""

    type: ClassVar[str] = "text_delta"
    seq: int
    text: str


@dataclass(frozen=True, slots=True)
class AudioStreamStart(Event):
    """Audio follows: one stream an answer, none where there is nothing to speak."""

    type: ClassVar[str] = "audio_stream_start"
    format: str
    voice: str
    sample_rate: int


@dataclass(frozen=True, slots=True)
class AudioWords(Event):
    """Asked for with `timestamps`: words whose audio follows, in seconds from the start of the answer's audio."""

    type: ClassVar[str] = "audio_words"
    seq: int
    words: tuple[dict[str, Any], ...]


@dataclass(frozen=True, slots=True)
class AudioChunk(Event):
    """Base64 audio; `seq` counts from 0."""

    type: ClassVar[str] = "audio_chunk"
    seq: int
    data: str


@dataclass(frozen=True, slots=True)
class AudioStreamEnd(Event):
    """The audio is whole."""

    type: ClassVar[str] = "audio_stream_end"
    total_chunks: int
    duration_s: float


@dataclass(frozen=True, slots=True)
class AgentEnd(Event):
    """The last event of an answer that is whole."""

    type: ClassVar[str] = "agent_end"


@dataclass(frozen=True, slots=True)
class Failed(Event):
    """The last event of an answer that is not."""

    type: ClassVar[str] = "error"
    message: str
