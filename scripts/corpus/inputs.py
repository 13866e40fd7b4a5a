"""The files of a corpus, and what they hold: fields of a row each, as they were found; checked in rows.py."""

import gzip
import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq

from serve_app.errors import BadRequest
from serve_app.protocol.requests import load_object

COLUMNS = ("text", "id", "voice", "speed", "lang")
"""What is read of a row; other columns are left alone."""

_LINES = (".jsonl", ".ndjson", ".txt")
SUFFIXES = (".parquet", *_LINES, *(f"{suffix}.gz" for suffix in _LINES))

_BOM = b"\xef\xbb\xbf"

Fields = dict[str, Any]


class InputError(Exception):
    """The input cannot be read at all. The message is a sentence that names the file and says what to do."""


@dataclass(frozen=True, slots=True)
class InputFile:
    """One file. `name` is its path below the folder that was given, or its name where it was given itself."""

    name: str
    path: Path

    def digest(self) -> dict[str, int | str]:
        """Size and SHA-256, which tell whether it is still the same."""
        with open(self.path, "rb") as content:
            sha256 = hashlib.file_digest(content, "sha256").hexdigest()
        return {"bytes": self.path.stat().st_size, "sha256": sha256}


def find_files(given: Path) -> tuple[list[InputFile], int]:
    """The corpus's files in the order of their names, and how many of a folder's others are left aside.

    Raises InputError.
    """
    given = given.absolute()  # they are read by other processes, too
    if given.is_file():
        if not given.name.endswith(SUFFIXES):
            raise InputError(f"{given} is of no known kind; a corpus is a file or a folder of {', '.join(SUFFIXES)}")
        return [InputFile(given.name, given)], 0
    if not given.is_dir():
        raise InputError(f"there is no {given}")
    paths = [
        path
        for path in sorted(given.rglob("*"))
        if path.is_file() and not any(part.startswith((".", "_")) for part in path.relative_to(given).parts)
    ]
    files = [InputFile(path.relative_to(given).as_posix(), path) for path in paths if path.name.endswith(SUFFIXES)]
    if not files:
        raise InputError(f"{given} holds no {', '.join(SUFFIXES)}")
    return files, len(paths) - len(files)


def read_file(file: InputFile, *, paragraphs: bool) -> Iterator[tuple[int, Fields | BadRequest]]:
    """Each row's number, from 1, and its fields or why they cannot be read.

    The number of a row of lines is that of its (first) line. Empty lines are no rows.

    Args:
        paragraphs: a row of plain text is a paragraph, set off by empty lines, and not a line.
    Raises:
        InputError: the file is damaged, or is a Parquet file without a column `text`.
    """
    try:
        if file.name.endswith(".parquet"):
            yield from _parquet_rows(file)
            return
        with _opened(file.path) as lines:
            if file.name.removesuffix(".gz").endswith(".txt"):
                yield from _text_rows(lines, paragraphs)
            else:
                yield from _json_rows(lines)
    except (EOFError, OSError, pa.ArrowException) as exc:
        raise InputError(f"{file.path} cannot be read to its end ({type(exc).__name__}); it may be damaged") from exc


def _opened(path: Path) -> IO[bytes]:
    return gzip.open(path) if path.suffix == ".gz" else open(path, "rb")  # type: ignore[return-value]


def _lines(stream: IO[bytes]) -> Iterator[tuple[int, bytes]]:
    for number, line in enumerate(stream, 1):
        yield number, line.removeprefix(_BOM).strip() if number == 1 else line.strip()


def _json_rows(stream: IO[bytes]) -> Iterator[tuple[int, Fields | BadRequest]]:
    for number, line in _lines(stream):
        if not line:
            continue
        try:
            yield number, load_object(line, "the line")
        except BadRequest as refusal:
            yield number, refusal


def _text_rows(stream: IO[bytes], paragraphs: bool) -> Iterator[tuple[int, Fields | BadRequest]]:
    first, collected = 0, list[bytes]()
    for number, line in _lines(stream):
        if line:
            first = first if collected else number
            collected.append(line)
        if collected and not (line and paragraphs):
            yield first, _text_fields(collected)
            collected.clear()
    if collected:
        yield first, _text_fields(collected)


def _text_fields(lines: list[bytes]) -> Fields | BadRequest:
    text = _decoded(b"\n".join(lines))
    return text if isinstance(text, BadRequest) else {"text": text}


def _decoded(value: bytes) -> str | BadRequest:
    try:
        return value.decode()
    except UnicodeDecodeError as exc:
        return BadRequest(f"the text is not UTF-8 (byte {exc.start})")


def _parquet_rows(file: InputFile) -> Iterator[tuple[int, Fields | BadRequest]]:
    number = 0
    with pq.ParquetFile(file.path) as parquet:
        names = parquet.schema_arrow.names
        if "text" not in names:
            raise InputError(f"{file.path} has no column text; its columns are {', '.join(names)}")
        for batch in parquet.iter_batches(1024, columns=[name for name in COLUMNS if name in names]):
            columns = {name: _cells(batch.column(name)) for name in batch.schema.names}
            for index in range(batch.num_rows):
                number += 1
                fields = {name: cells[index] for name, cells in columns.items()}
                refusals = [cell for cell in fields.values() if isinstance(cell, BadRequest)]
                yield number, refusals[0] if refusals else fields


def _cells(column: pa.Array) -> list[Any]:
    """Values as JSON would have them. A kind that JSON does not have becomes a list, which no field may be."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        column = column.dictionary_decode()
        kind = column.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        # Arrow trusts that its strings are UTF-8, and would raise for the whole column where one of them is not.
        raw = column.cast(pa.large_binary()).to_pylist()
        return [None if cell is None else _decoded(cell) for cell in raw]
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind) or pa.types.is_null(kind):
        return column.to_pylist()
    return [[] if valid else None for valid in column.is_valid().to_pylist()]


def is_inside(path: Path, folder: Path) -> bool:
    """Whether `path` is `folder` or below it."""
    return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder))
