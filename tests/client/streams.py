"""Answers as a server writes them."""

import base64
import json
import zlib
from collections.abc import Iterable, Sequence

from serve_app.protocol.sse import encode_event

PCM = bytes((7 * at) % 256 for at in range(4070))
"""2035 samples."""


def chunk_event(seq: int, data: bytes) -> bytes:
    return encode_event("audio_chunk", {"request_id": "r", "seq": seq, "data": base64.b64encode(data).decode()})


def events(
    slices: Sequence[bytes] = (PCM[:9], PCM[9:20], PCM[20:30]),
    *,
    words: Sequence[dict[str, object]] = (),
    audio_format: str = "pcm",
    sample_rate: int = 24000,
) -> bytes:
    """A whole answer over SSE."""
    start = {"request_id": "r", "format": audio_format, "voice": "af_heart", "sample_rate": sample_rate}
    parts = [encode_event("audio_stream_start", start)]
    if words:
        parts.append(encode_event("audio_words", {"request_id": "r", "seq": 0, "words": list(words)}))
    parts += [chunk_event(seq, data) for seq, data in enumerate(slices)]
    parts.append(encode_event("audio_stream_end", {"request_id": "r", "total_chunks": len(slices), "duration_s": 0.1}))
    return b"".join(parts)


def error_event(code: str = "queue_saturated", message: str = "too much is waiting") -> bytes:
    return encode_event("error", {"request_id": "r", "message": message, "code": code})


def aws_message(headers: dict[str, str], payload: bytes) -> bytes:
    """One message of application/vnd.amazon.eventstream: prelude, its checksum, headers, payload, a checksum of all."""
    head = b"".join(
        bytes([len(name)]) + name.encode() + b"\x07" + len(value).to_bytes(2, "big") + value.encode()
        for name, value in headers.items()
    )
    prelude = (16 + len(head) + len(payload)).to_bytes(4, "big") + len(head).to_bytes(4, "big")
    message = prelude + zlib.crc32(prelude).to_bytes(4, "big") + head + payload
    return message + zlib.crc32(message).to_bytes(4, "big")


def aws_part(data: bytes) -> bytes:
    kind = {":message-type": "event", ":event-type": "PayloadPart", ":content-type": "application/octet-stream"}
    return aws_message(kind, data)


def aws_parts(slices: Iterable[bytes]) -> bytes:
    return b"".join(aws_part(data) for data in slices)


def aws_error(name: str, *, as_event: bool = False) -> bytes:
    """An error among the parts, as an exception or as a member of the union that events are."""
    kind = {":message-type": "event", ":event-type": name} if as_event else {":message-type": "exception"}
    headers = {**kind, ":content-type": "application/json"} | ({} if as_event else {":exception-type": name})
    return aws_message(headers, json.dumps({"Message": "it failed", "ErrorCode": "StreamBroken"}).encode())
