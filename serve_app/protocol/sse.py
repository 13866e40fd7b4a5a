"""Server-sent events: an encoder, and an incremental decoder for clients and tests (WHATWG HTML, section 9.2)."""

import json
import re
from dataclasses import dataclass
from typing import Any

MAX_EVENT_BYTES = 16 * 1024 * 1024

_BOM = b"\xef\xbb\xbf"
_MILLISECONDS = re.compile("[0-9]{1,9}")


class SseError(ValueError):
    """A stream is not what it should be. The message carries names and lengths, not the data."""


def encode_event(name: str | None, data: dict[str, Any]) -> bytes:
    """One event with JSON data; without a name it is a "message". Raises ValueError on NaN or a name of many lines."""
    if name is not None and ("\n" in name or "\r" in name):
        raise ValueError("an event's name is one line")
    head = "" if name is None else f"event: {name}\n"
    return f"{head}data: {json.dumps(data, separators=(',', ':'), allow_nan=False)}\n\n".encode()


@dataclass(frozen=True, slots=True)
class SseEvent:
    """One event. `id` is the last one seen in the stream, "" if there was none."""

    event: str
    data: str
    id: str = ""

    def json(self) -> dict[str, Any]:
        """The data as a JSON object. Raises SseError."""
        try:
            value = json.loads(self.data)
        except (ValueError, RecursionError) as exc:
            raise SseError(
                f"the data of an event {self.event[:64]!a} ({len(self.data)} characters) is not JSON"
            ) from exc
        if not isinstance(value, dict):
            raise SseError(f"the data of an event {self.event[:64]!a} is not a JSON object")
        return value


class SseDecoder:
    """Events out of a byte stream, whatever the slicing.

    Lines end in CR, LF or CR LF. They are decoded when they are whole, so that no character is cut.

    Attributes:
        retry_ms: the reconnection time that the stream asked for.
    """

    def __init__(self, max_event_bytes: int = MAX_EVENT_BYTES) -> None:
        self.retry_ms: int | None = None
        self._max_event_bytes = max_event_bytes
        self._line = bytearray()
        self._begun = False  # a first line was read; a byte order mark may only be before it
        self._after_cr = False
        self._event = ""
        self._data: list[str] = []
        self._held_bytes = 0
        self._id = ""

    def feed(self, chunk: bytes) -> list[SseEvent]:
        """The events that `chunk` completes. Raises SseError on an event larger than `max_event_bytes`."""
        if self._after_cr and chunk.startswith(b"\n"):
            chunk, self._after_cr = chunk[1:], False
        if not chunk:
            return []
        self._after_cr = chunk.endswith(b"\r")
        events = []
        for piece in chunk.splitlines(keepends=True):  # of bytes: at CR, LF and CR LF only
            part = piece.rstrip(b"\r\n")
            self._line += part
            if self._held_bytes + len(self._line) > self._max_event_bytes:
                raise SseError(f"an event is larger than {self._max_event_bytes} bytes")
            if len(part) < len(piece):
                event = self._end_line()
                if event is not None:
                    events.append(event)
        return events

    def close(self) -> bool:
        """The stream has ended. True: in the middle of an event, which is lost."""
        return bool(self._line or self._event or self._data)

    def _end_line(self) -> SseEvent | None:
        raw = bytes(self._line)
        self._line.clear()
        if not self._begun:
            raw, self._begun = raw.removeprefix(_BOM), True
        if not raw:
            return self._dispatch()
        name, _, value = raw.decode("utf-8", "replace").partition(":")
        value = value.removeprefix(" ")
        match name:
            case "event":
                self._event = value
            case "data":
                self._data.append(value)
                self._held_bytes += len(raw)
            case "id" if "\0" not in value:
                self._id = value
            case "retry" if _MILLISECONDS.fullmatch(value):
                self.retry_ms = int(value)
            case _:  # "" is a comment; other names are ignored
                pass
        return None

    def _dispatch(self) -> SseEvent | None:
        event = SseEvent(self._event or "message", "\n".join(self._data), self._id) if self._data else None
        self._event, self._data, self._held_bytes = "", [], 0
        return event
