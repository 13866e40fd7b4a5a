"""A row of a corpus: what may be in it, and why one is turned away. Fields in, rows out."""

import sqlite3
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from scripts.corpus.inputs import COLUMNS, Fields
from serve_app.errors import BadRequest, SpeechError
from serve_app.protocol.requests import RequestLimits, SpeechRequest, build_request

MAX_ID_CHARS = 128
IDS_IN_MEMORY_KB = 32 << 10
DUPLICATE_ID = "duplicate_id"
"""The one code beside those of serve_app/errors.py."""


@dataclass(frozen=True, slots=True)
class Row:
    """A row to speak. `number` counts from 1 within `file`; `lang` is None where the voice decides."""

    id: str
    number: int
    file: str
    text: str
    voice: str
    speed: float
    lang: str | None


@dataclass(frozen=True, slots=True)
class Rejected:
    """A row that is not spoken, and why: of the tables rejected.parquet and left.parquet."""

    id: str
    row: int
    file: str
    code: str
    message: str

    @classmethod
    def row_of(cls, row: Row, error: SpeechError) -> "Rejected":
        return cls(row.id, row.number, row.file, error.code, error.message)


@dataclass(frozen=True, slots=True)
class Defaults:
    """What a row has that does not say so itself."""

    voice: str
    speed: float
    lang: str | None


class TakenIds:
    """The ids of a corpus's rows. Past IDS_IN_MEMORY_KB SQLite keeps them in a file, which ends with this object."""

    def __init__(self) -> None:
        self._rows = sqlite3.connect("", isolation_level=None)
        self._rows.execute("PRAGMA journal_mode = OFF")
        self._rows.execute(f"PRAGMA cache_size = -{IDS_IN_MEMORY_KB}")
        self._rows.execute("CREATE TABLE taken (id BLOB PRIMARY KEY) WITHOUT ROWID")
        self._rows.execute("BEGIN")

    def take(self, row_id: str) -> bool:
        """Whether nobody had it before."""
        key = row_id.encode(errors="surrogateescape")  # of a file's name, which may be no UTF-8
        return self._rows.execute("INSERT OR IGNORE INTO taken VALUES (?)", (key,)).rowcount == 1


@dataclass(slots=True)
class RowCheck:
    """Checks the rows of one corpus, in order: it remembers the ids that are taken."""

    defaults: Defaults
    limits: RequestLimits
    _ids: TakenIds = field(default_factory=TakenIds)

    def rows(self, file: str, found: Iterable[tuple[int, Fields | BadRequest]]) -> Iterator[Row | Rejected]:
        """Each row of a file. The first row with an id keeps it; later ones are turned away."""
        for number, fields in found:
            yield self._row(file, number, fields)

    def _row(self, file: str, number: int, fields: Fields | BadRequest) -> Row | Rejected:
        row_id = f"{file}:{number}"
        try:
            if isinstance(fields, SpeechError):
                raise fields
            given = {name: value for name in COLUMNS if (value := fields.get(name)) is not None}
            row_id = _id(given.pop("id", row_id))
            request = build_request(asdict(self.defaults) | given, self.limits, now_epoch_s=0.0)
        except SpeechError as error:
            return Rejected(row_id, number, file, error.code, error.message)
        if not self._ids.take(row_id):
            return Rejected(row_id, number, file, DUPLICATE_ID, "an earlier row has the same id")
        return Row(row_id, number, file, request.text, request.voice, request.speed, request.lang)


def request_for(row: Row, audio_format: str, sample_rate: int) -> SpeechRequest:
    """What POST /invocations would be asked for this row."""
    return SpeechRequest(
        text=row.text,
        voice=row.voice,
        speed=row.speed,
        lang=row.lang,
        format=audio_format,
        sample_rate=sample_rate,
        stream=False,
    )


def _id(given: Any) -> str:
    if isinstance(given, int) and not isinstance(given, bool):
        return str(given)
    if not isinstance(given, str) or not given.isprintable() or not 0 < len(given) <= MAX_ID_CHARS:
        raise BadRequest(f"id must be a whole number or a string of 1 to {MAX_ID_CHARS} printable characters")
    return given
