"""application/vnd.amazon.eventstream: botocore decodes, this encodes; events of both streams of the service."""

import json
import struct
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime

from botocore.eventstream import EventStreamBuffer, ParserError

from scripts.local_endpoint.errors import StreamError

CONTENT_TYPE = "application/vnd.amazon.eventstream"

type Header = str | bytes | datetime


@dataclass(frozen=True)
class Message:
    """One message. A time comes as whole milliseconds since the epoch."""

    headers: Mapping[str, str | bytes | int]
    payload: bytes


class BadEncoding(Exception):
    """The bytes are no event stream: a checksum, a length or a header does not hold."""


class Decoder:
    """Messages out of bytes that come in any slices."""

    def __init__(self) -> None:
        self._buffer = EventStreamBuffer()

    def feed(self, data: bytes) -> Iterator[Message]:
        """The messages that are complete now. Raises BadEncoding."""
        self._buffer.add_data(data)
        try:
            for message in self._buffer:
                yield Message(message.headers, message.payload)
        except (ParserError, KeyError, UnicodeDecodeError, struct.error) as exc:
            raise BadEncoding(f"not an event stream: {exc}") from exc


def encode_headers(headers: Mapping[str, Header]) -> bytes:
    encoded = bytearray()
    for name, value in headers.items():
        raw_name = name.encode()
        encoded += bytes([len(raw_name)]) + raw_name
        match value:
            case datetime():
                encoded += b"\x08" + round(value.timestamp() * 1000).to_bytes(8, "big")
            case bytes():
                encoded += b"\x06" + len(value).to_bytes(2, "big") + value
            case str():
                raw = value.encode()
                encoded += b"\x07" + len(raw).to_bytes(2, "big") + raw
    return bytes(encoded)


def encode(headers: Mapping[str, Header], payload: bytes) -> bytes:
    """Lengths, their checksum, headers, payload, a checksum of all."""
    head = encode_headers(headers)
    lengths = struct.pack(">II", 16 + len(head) + len(payload), len(head))
    message = lengths + struct.pack(">I", zlib.crc32(lengths)) + head + payload
    return message + struct.pack(">I", zlib.crc32(message))


def payload_part(data: bytes, **headers: str) -> bytes:
    """A PayloadPart of either stream; `headers` are members that travel beside the bytes."""
    kind = {":message-type": "event", ":event-type": "PayloadPart", ":content-type": "application/octet-stream"}
    return encode({**kind, **headers}, data)


def error_member(error: StreamError) -> bytes:
    """The last message of a stream that failed."""
    if not error.modeled:
        return encode({":message-type": "error", ":error-code": error.name, ":error-message": str(error)}, b"")
    kind = {":message-type": "exception", ":exception-type": error.name, ":content-type": "application/json"}
    return encode(kind, json.dumps(error.fields).encode())
