"""corpus.json: what the output was made from, and by what. A run goes on only with the same, and says what differs."""

import fcntl
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from serve_app.engine.files import write_atomically

RECORD_FILE = "corpus.json"
_LOCK_FILE = ".lock"


class OutputError(Exception):
    """This output cannot be written to. The message is a sentence that says why and what to do."""


@dataclass(frozen=True, slots=True)
class Record:
    """
    Attributes:
        created: when the first run began, ISO 8601; every row says so, so that a part done again is the same part.
        product, weights, options, input: what decides what the output holds. `input` has size and digest by file.
    """

    created: str
    product: str
    weights: Mapping[str, Any]
    options: Mapping[str, Any]
    input: Mapping[str, Any]

    def continuing(self, earlier: "Record") -> "Record":
        """The record to go on with. Raises OutputError if the output was made from something else."""
        differences = [*_differences(earlier, self)]
        if differences:
            raise OutputError(
                f"the output was begun with something else: {'; '.join(differences)}. Take another folder, or give it "
                "the same again"
            )
        return earlier


def read_record(out: Path) -> Record | None:
    """The record of an output that was begun. Raises OutputError if the folder holds something else."""
    path = out / RECORD_FILE
    if not path.exists():
        strangers = [entry.name for entry in out.iterdir() if not entry.name.startswith(".")] if out.is_dir() else []
        if strangers:
            raise OutputError(f"{out} holds other files and no {RECORD_FILE}; take an empty or a new folder")
        return None
    try:
        return Record(**json.loads(path.read_text()))
    except (ValueError, TypeError) as exc:
        raise OutputError(f"{path} is not a record of this version; take another folder") from exc


def write_record(out: Path, record: Record) -> None:
    """Put the record in place."""
    text = json.dumps(asdict(record), indent=2) + "\n"

    def write(temporary: Path) -> None:
        temporary.write_text(text)

    write_atomically(out / RECORD_FILE, write)


@contextmanager
def held(out: Path) -> Iterator[None]:
    """Keep the output from other runs; it is free again when this process ends, however it ends. Raises OutputError."""
    out.mkdir(parents=True, exist_ok=True)
    with open(out / _LOCK_FILE, "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as exc:
            raise OutputError(f"another run is writing to {out}; wait for it or stop it") from exc
        yield


def _differences(earlier: Record, now: Record) -> Iterator[str]:
    if earlier.product != now.product:
        yield f"product was {earlier.product}, is {now.product}"
    if earlier.weights != now.weights:
        yield f"weights were {_told(earlier.weights)}, are {_told(now.weights)}"
    for name in sorted(earlier.options.keys() | now.options.keys()):
        was, given = earlier.options.get(name), now.options.get(name)
        if was != given:
            yield f"{name} was {was}, is {given}"
    changed = [
        name
        for name in sorted(earlier.input.keys() | now.input.keys())
        if earlier.input.get(name) != now.input.get(name)
    ]
    if changed:
        more = f" and {len(changed) - 3} more" if len(changed) > 3 else ""
        yield f"the input has changed ({', '.join(changed[:3])}{more})"


def _told(weights: Mapping[str, Any]) -> str:
    return f"{weights.get('source')} ({str(weights.get('sha256'))[:12]})"
