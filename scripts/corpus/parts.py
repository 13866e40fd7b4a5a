"""The output's files. Each is put in place as a whole, so that a kill at any moment leaves it there or not at all.

A part carries the rows that it lacks in its own metadata: both are there, or neither is.
"""

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from scripts.corpus.names import file_name
from scripts.corpus.progress import Amount
from scripts.corpus.rows import Rejected, Row
from serve_app.engine.files import write_atomically

PARTS_FOLDER = "parts"
AUDIO_FOLDER = "audio"
REJECTED_FILE = "rejected.parquet"
LEFT_FILE = "left.parquet"
MANIFEST_FILE = "manifest.jsonl"

SCHEMA = pa.schema(
    {
        "id": pa.string(),
        "text": pa.string(),
        "text_sha256": pa.string(),
        "audio": pa.large_binary(),  # a part may hold more than the 2 GB of a small one
        "format": pa.string(),
        "sample_rate": pa.int32(),
        "duration_s": pa.float64(),
        "words": pa.list_(pa.struct({"w": pa.string(), "start_s": pa.float64(), "end_s": pa.float64()})),
        "audio_file": pa.string(),
        "file": pa.string(),
        "row": pa.int64(),
        "provenance": pa.struct(
            {
                "product": pa.string(),
                "weights": pa.string(),
                "weights_sha256": pa.string(),
                "voice": pa.string(),
                "lang": pa.string(),
                "speed": pa.float64(),
                "seed": pa.string(),
                "created": pa.string(),
            }
        ),
    }
)

REASONS_SCHEMA = pa.schema(
    {"id": pa.string(), "row": pa.int64(), "file": pa.string(), "code": pa.string(), "message": pa.string()}
)

_FOOTER = b"kokoro.part"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a part's rows.

    Attributes:
        spoken: by SCHEMA; `audio_file` is given when they are written.
        characters: of the rows that are done, spoken or rejected.
        rejected: rows that cannot be spoken, by a fault of their own.
        left: rows that could have been spoken and were not: another run tries them again.
    """

    spoken: Sequence[dict[str, Any]] = ()
    characters: int = 0
    rejected: Sequence[Rejected] = ()
    left: Sequence[Rejected] = ()

    def left_of(self, rows: Iterable[Row]) -> list[Row]:
        """Those of `rows` that are left."""
        places = {(row.file, row.row) for row in self.left}
        return [row for row in rows if (row.file, row.number) in places]

    def and_then(self, later: "Outcome") -> "Outcome":
        """Of all rows, when `later` is that of those which were left."""
        return Outcome(
            [*self.spoken, *later.spoken],
            self.characters + later.characters,
            [*self.rejected, *later.rejected],
            later.left,
        )


@dataclass(frozen=True, slots=True)
class Footer:
    """What a part says of itself; see Outcome. `spoken` is how many have audio."""

    spoken: int
    characters: int
    audio_s: float
    rejected: tuple[Rejected, ...]
    left: tuple[Rejected, ...]

    @property
    def amount(self) -> Amount:
        """What it is of the run's progress."""
        return Amount(self.spoken + len(self.rejected), self.characters, self.audio_s)


def part_path(out: Path, index: int) -> Path:
    return out / PARTS_FOLDER / f"part-{index:06}.parquet"


def write_part(out: Path, index: int, outcome: Outcome, *, audio_files: bool) -> None:
    """Commit a part: first its audio files, if there are to be any, then the one file that says they are there.

    In the order of the input, so that it makes no difference in which a worker was done with them. Raises OSError.
    """
    rows = sorted(outcome.spoken, key=lambda row: (row["file"], row["row"]))
    if audio_files:
        folder = out / AUDIO_FOLDER / f"part-{index:06}"
        for row in rows:
            path = folder / file_name(row["id"], row["format"])
            row["audio_file"] = path.relative_to(out).as_posix()
            _write_bytes(path, row["audio"])
        if rows:
            _settle(folder)
    audio_s = sum(row["duration_s"] for row in rows)
    footer = Footer(len(rows), outcome.characters, audio_s, _in_order(outcome.rejected), _in_order(outcome.left))
    told = json.dumps(asdict(footer))
    table = pa.Table.from_pylist(rows, SCHEMA.with_metadata({_FOOTER: told}))
    _write_table(part_path(out, index), table)


def read_footer(path: Path) -> Footer:
    """What a committed part says of itself; reads no rows."""
    told = json.loads(pq.read_metadata(path).metadata[_FOOTER])
    return Footer(**told | {name: tuple(Rejected(**row) for row in told[name]) for name in ("rejected", "left")})


def read_part(out: Path, index: int) -> Outcome | None:
    """What a part holds, if it is there."""
    path = part_path(out, index)
    if not path.exists():
        return None
    footer = read_footer(path)
    return Outcome(pq.read_table(path).to_pylist(), footer.characters, footer.rejected, footer.left)


def committed(out: Path) -> dict[int, Footer]:
    """The parts that are there, by index."""
    paths = sorted((out / PARTS_FOLDER).glob("part-*.parquet"))
    return {int(path.stem.removeprefix("part-")): read_footer(path) for path in paths}


def sweep(out: Path) -> None:
    """Remove what a killed run had begun to write. For whoever holds the output alone."""
    for folder in (out, out / PARTS_FOLDER, *(out / AUDIO_FOLDER).glob("*")):
        for path in folder.glob(".*.?*"):
            if path.is_file() and not path.name.endswith(".lock"):
                path.unlink(missing_ok=True)


def write_reasons(path: Path, rows: Iterable[Rejected]) -> None:
    """A table of rows that are not spoken, in the order of the input."""
    _write_table(path, pa.Table.from_pylist([asdict(row) for row in _in_order(rows)], REASONS_SCHEMA))


def write_manifest(out: Path) -> None:
    """One line of JSON for each audio file, in the order of the parts."""

    def write(temporary: Path) -> None:
        with open(temporary, "w") as lines:
            for entry in _manifest(out):
                lines.write(json.dumps(entry, ensure_ascii=False) + "\n")

    write_atomically(out / MANIFEST_FILE, write)


def _manifest(out: Path) -> Iterator[dict[str, Any]]:
    columns = ["id", "audio_file", "text", "text_sha256", "duration_s"]
    for path in sorted((out / PARTS_FOLDER).glob("part-*.parquet")):
        yield from pq.read_table(path, columns=columns).to_pylist()


def _in_order(rows: Iterable[Rejected]) -> tuple[Rejected, ...]:
    return tuple(sorted(rows, key=lambda row: (row.file, row.row)))


def _write_table(path: Path, table: pa.Table) -> None:
    def write(temporary: Path) -> None:
        # No dictionary: it would hold every row's audio a second time.
        pq.write_table(table, temporary, compression="zstd", use_dictionary=False)

    write_atomically(path, write)
    _settle(path.parent)


def _write_bytes(path: Path, content: bytes) -> None:
    def write(temporary: Path) -> None:
        temporary.write_bytes(content)

    write_atomically(path, write)


def _settle(folder: Path) -> None:
    """The names in a folder outlive a failure of power, too."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
