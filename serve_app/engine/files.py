"""Files that several processes may want at once: one writes, the others wait, nobody reads half a file."""

import fcntl
import hashlib
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


class WeightsError(Exception):
    """Weights or voices are missing or wrong. The message is a sentence for the operator that says what to do."""


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock beside `path` against other processes; it is released when this process ends, however it ends."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path.with_name(path.name + ".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def write_atomically(path: Path, write: Callable[[Path], None]) -> None:
    """Let `write` fill a temporary file beside `path`, then put it in place; on failure nothing is left behind."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    os.close(handle)
    temporary = Path(name)
    try:
        write(temporary)
        temporary.chmod(0o644)  # mkstemp gives 0600; a replica may run as another user than the one that fetched
        with open(temporary, "rb") as written:
            os.fsync(written.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def sha256_of(path: Path) -> str:
    """Hex digest of a file's content."""
    with open(path, "rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()
