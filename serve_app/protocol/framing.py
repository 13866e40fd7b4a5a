"""Audio frames that no client can mistake for a control frame (wire contract, section 3, rule 3).

SageMaker merges text and binary frames into one byte stream. There, a chunk that parses in full as a JSON object is
control and anything else is audio, so an audio frame must never parse as one.
"""

import json
from collections.abc import Iterator
from typing import Any

MAX_FRAME_BYTES = 32768

_AROUND = b" \t\r\n\0\xef\xbb\xbf\xfe\xff"
"""JSON's white space, the NULs of UTF-16 and UTF-32, and byte order marks."""


def audio_frames(data: bytes, sample_bytes: int = 2, max_bytes: int = MAX_FRAME_BYTES) -> Iterator[bytes]:
    """Cut audio into frames of at most `max_bytes`, each a whole number of samples and none a JSON object.

    Joined, the frames are `data`, with one exception that no border can mend: a frame whose only samples are the bytes
    `{}` and JSON white space. There the lowest bit of `{` is cleared, one part in 32768 of full scale. Where `data`
    ends inside a sample (a codec's bytes), so does the last frame.
    """
    step = max_bytes - max_bytes % sample_bytes
    for start in range(0, len(data), step):
        yield from _apart(data[start : start + step], sample_bytes)


def is_control(chunk: bytes) -> dict[str, Any] | None:
    """The control frame that a chunk of a merged byte stream is, or None: it is audio."""
    if not _in_braces(chunk):
        return None
    try:
        value = json.loads(chunk.decode("utf-8"))
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _apart(frame: bytes, sample_bytes: int) -> Iterator[bytes]:
    """Cut behind the sample that holds the first brace, until no part reads as an object.

    It ends, as every cut leaves shorter parts. For UTF-8 one cut is enough: the first part lacks the closing brace of
    the object and the second its opening one, and neither can be whole without it.
    """
    if not _reads_as_object(frame):
        yield frame
        return
    opening = frame.index(b"{")
    border = opening - opening % sample_bytes + sample_bytes
    if border <= frame.rindex(b"}"):
        yield from _apart(frame[:border], sample_bytes)
        yield from _apart(frame[border:], sample_bytes)
    else:
        yield frame[:opening] + b"z" + frame[opening + 1 :]  # "z" is "{" without its lowest bit


def _in_braces(chunk: bytes) -> bool:
    """Cheap and never wrong when it says no; nearly all audio ends here."""
    left = chunk.lstrip(_AROUND)
    return left.startswith(b"{") and left.rstrip(_AROUND).endswith(b"}")


def _reads_as_object(frame: bytes) -> bool:
    """Whether any JSON parser in use could read an object: strict or lenient, guessing the encoding or not."""
    if not _in_braces(frame):
        return False
    # Python guesses UTF-16 and UTF-32 from bytes; browsers replace what is not UTF-8 and skip a byte order mark.
    return _is_object(frame) or _is_object(frame.decode("utf-8-sig", "replace"))


def _is_object(reading: bytes | str) -> bool:
    try:
        return isinstance(json.loads(reading, strict=False, parse_int=float), dict)
    except ValueError:
        return False
    except RecursionError:  # too deep for this parser, not for every one
        return True
