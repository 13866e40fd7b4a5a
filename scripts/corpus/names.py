"""Names of audio files from ids that anybody may have written."""

import hashlib
import re

_PLAIN = re.compile(r"[a-z0-9][a-z0-9_-]{0,79}")
_UNSAFE = re.compile(r"[^A-Za-z0-9_-]+")
_EXTENSIONS = {"aac": "m4a"}


def file_name(row_id: str, audio_format: str) -> str:
    """One name for one id: without folders, dots and blanks, and unlike any other id's, upper and lower case alike.

    A plain id is its own name. Any other gets its readable part and a digest, set off by a character that no plain id
    has.
    """
    extension = _EXTENSIONS.get(audio_format, audio_format)
    if _PLAIN.fullmatch(row_id):
        return f"{row_id}.{extension}"
    digest = hashlib.blake2b(row_id.encode(), digest_size=16).hexdigest()
    readable = _UNSAFE.sub("_", row_id).strip("_-")[:60]
    return f"{readable}~{digest}.{extension}"
