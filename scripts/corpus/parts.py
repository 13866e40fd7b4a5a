"""The output's files. Each is put in place as a whole, so that a kill at any moment leaves it there or not at all.

A part carries its turned-away rows in its own metadata: both are there, or neither is.
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
from scripts.corpus.rows import Rejected
from serve_app.engine.files import write_atomically

PARTS_FOLDER = "parts"
AUDIO_FOLDER = "audio"
REJECTED_FILE = "rejected.parquet"
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

REJECTED_SCHEMA = pa.schema(
    {"id": pa.string(), "row": pa.int64(), "file": pa.string(), "code": pa.string(), "message": pa.string()}
)

_FOOTER = b"kokoro.part"


@dataclass(frozen=True, slots=True)
class Footer:
    """What a part says of itself. `spoken` counts only rows with audio; `characters` is of all its rows."""

    spoken: int
    characters: int
    audio_s: float
    rejected: tuple[Rejected, ...]

    @property
    def amount(self) -> Amount:
        """What it is of the run's progress."""
        return Amount(self.spoken + len(self.rejected), self.characters, self.audio_s)


def part_path(out: Path, index: int) -> Path:
    return out / PARTS_FOLDER / f"part-{index:06}.parquet"


def write_part(out: Path, index: int, spoken: Sequence[dict[str, Any]], footer: Footer, *, audio_files: bool) -> None:
    """Commit a part: first its audio files, if there are to be any, then the one file that says they are there.

    Args:
        spoken: rows by SCHEMA, without `audio_file`.
    Raises:
        OSError.
    """
    rows = sorted(spoken, key=lambda row: (row["file"], row["row"]))
    if audio_files:
        folder = out / AUDIO_FOLDER / f"part-{index:06}"
        for row in rows:
            path = folder / file_name(row["id"], row["format"])
            row["audio_file"] = path.relative_to(out).as_posix()
            _write_bytes(path, row["audio"])
        if rows:
            _settle(folder)
    told = json.dumps(asdict(footer))
    table = pa.Table.from_pylist(rows, SCHEMA.with_metadata({_FOOTER: told}))
    _write_table(part_path(out, index), table)


def read_footer(path: Path) -> Footer:
    """What a committed part says of itself; reads no rows."""
    told = json.loads(pq.read_metadata(path).metadata[_FOOTER])
    return Footer(**told | {"rejected": tuple(Rejected(**row) for row in told["rejected"])})


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


def write_rejected(out: Path, rejected: Iterable[Rejected]) -> None:
    """The table of rows that were turned away, in the order of the input."""
    rows = sorted(rejected, key=lambda row: (row.file, row.row))
    _write_table(out / REJECTED_FILE, pa.Table.from_pylist([asdict(row) for row in rows], REJECTED_SCHEMA))


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
