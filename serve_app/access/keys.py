"""API keys: what a file of them holds, which one a caller presents, and new ones. No file, no socket."""

import re
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from hmac import compare_digest

SUBPROTOCOL = "speech"
"""What a browser offers beside its key, and what the server then chooses: a key is never sent back."""

_PREFIX = "kokoro_"  # so that whoever finds one, a scanner of secrets too, knows what it is of
_KEY_BYTES = 32
_AS_SUBPROTOCOL = "bearer."
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_DIGEST = re.compile(r"sha256:([0-9a-f]{64})")


class BadKeys(ValueError):
    """A file of keys says something that is none. The message names the line, and repeats nothing of it."""


@dataclass(frozen=True, slots=True)
class Key:
    """A key by its hash; `name` is who it was given to, and may have several keys."""

    name: str
    digest: bytes


class KeyRing:
    """The keys that open this server."""

    def __init__(self, keys: Iterable[Key] = ()) -> None:
        self._keys = tuple(keys)

    def __contains__(self, key: object) -> bool:
        return key in self._keys

    def __len__(self) -> int:
        return len(self._keys)

    def find(self, presented: str) -> Key | None:
        """The key that was presented. Takes as long for one that is nearly right as for any other."""
        digest = sha256(presented.encode()).digest()
        found = None
        for key in self._keys:
            if compare_digest(key.digest, digest):
                found = key
        return found


def new_key() -> str:
    """A key that nobody guesses: a plain hash of it is enough in a file. A header and a subprotocol both take it."""
    return _PREFIX + secrets.token_urlsafe(_KEY_BYTES)


def dump_key(name: str, key: str) -> str:
    """The line of a file that lets `key` in. Raises BadKeys: the name is none."""
    if not _NAME.fullmatch(name):
        raise BadKeys("a key's name has letters, digits, dots, hyphens and underscores, at most 64")
    return f"{name} sha256:{sha256(key.encode()).hexdigest()}"


def parse_keys(text: str) -> KeyRing:
    """The keys of a file: `NAME sha256:HEX` a line; a line that begins with # is a comment.

    Raises:
        BadKeys: a line is none of these, a key is there twice, or there is none at all, as in a file that is just
            being written.
    """
    keys: list[Key] = []
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        name, _, digest = line.strip().partition(" ")
        hexadecimal = _DIGEST.fullmatch(digest.strip())
        if not _NAME.fullmatch(name) or not hexadecimal:
            raise BadKeys(f"line {number} is not `NAME sha256:HEX`; `python -m serve_app.access` writes such lines")
        key = Key(name, bytes.fromhex(hexadecimal[1]))
        if any(key.digest == other.digest for other in keys):
            raise BadKeys(f"line {number} repeats the key of a line before it")
        keys.append(key)
    if not keys:
        raise BadKeys("there is no key in it")
    return KeyRing(keys)


def presented_key(authorization: str | None, subprotocols: Sequence[str] = ()) -> str | None:
    """The key in `Authorization: Bearer KEY`, or in the `bearer.KEY` among the subprotocols that a WebSocket offers:
    a browser lets its pages set no header there.
    """
    scheme, _, key = (authorization or "").partition(" ")
    if scheme.lower() == "bearer" and key.strip():
        return key.strip()
    offered = (name.removeprefix(_AS_SUBPROTOCOL) for name in subprotocols if name.startswith(_AS_SUBPROTOCOL))
    return next(offered, None)
