"""What of the input makes a part of the output. The same input gives the same parts, however often it is read.

A part is the unit of work and of resuming: it is spoken by one worker, and is there as a whole or not at all. Rows of
about the same length share one, as the longest decides what a batch costs.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import batched

from scripts.corpus.inputs import InputFile, read_file
from scripts.corpus.rows import Defaults, Rejected, Row, RowCheck
from serve_app.protocol.requests import RequestLimits

WINDOW_ROWS = 4096
"""So many rows are sorted by their length at a time: enough to be alike, and few enough to be held."""

MAX_PART_ROWS = 1000

_CHARACTERS_PER_S = 15.0


@dataclass(frozen=True, slots=True)
class Part:
    index: int
    rows: tuple[Row, ...]


@dataclass(frozen=True, slots=True)
class Corpus:
    """The input: too much of it to be held, so it is read anew whenever it is asked for its parts."""

    files: tuple[InputFile, ...]
    paragraphs: bool
    defaults: Defaults
    limits: RequestLimits
    part_s: float

    def parts(self, turn_away: Callable[[Rejected], object]) -> Iterator[Part]:
        """The parts in order, of which a window of rows is held at a time.

        Args:
            turn_away: is told of the rows that no worker could speak.
        Raises:
            InputError: a file cannot be read.
        """
        return plan_parts(self._rows(turn_away), self.part_s)

    def _rows(self, turn_away: Callable[[Rejected], object]) -> Iterator[Row]:
        check = RowCheck(self.defaults, self.limits)
        for file in self.files:
            for row in check.rows(file.name, read_file(file, paragraphs=self.paragraphs)):
                if isinstance(row, Row):
                    yield row
                else:
                    turn_away(row)


def expected_s(row: Row) -> float:
    """Seconds of audio, about, as English is read."""
    return len(row.text) / _CHARACTERS_PER_S / row.speed


def plan_parts(rows: Iterable[Row], part_s: float) -> Iterator[Part]:
    """Parts of `part_s` seconds of audio, about, longer only where one row alone is."""
    index = 0
    for window in batched(rows, WINDOW_ROWS):
        for alike in _cut(sorted(window, key=expected_s), part_s):
            yield Part(index, tuple(alike))
            index += 1


def _cut(rows: Iterable[Row], part_s: float) -> Iterator[list[Row]]:
    part, left_s = list[Row](), part_s
    for row in rows:
        row_s = expected_s(row)
        if part and (row_s > left_s or len(part) == MAX_PART_ROWS):
            yield part
            part, left_s = [], part_s
        part.append(row)
        left_s -= row_s
    if part:
        yield part
