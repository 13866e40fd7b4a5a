"""A load test's ladder: what a listener waits at each concurrency of one instance."""

import csv
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any


class LadderError(ValueError):
    """A file is no ladder, or the ladder says that nothing can be promised. The message says what to do."""


@dataclass(frozen=True, slots=True)
class Rung:
    """What was measured at one concurrency.

    Attributes:
        p95_ttfa_s: 95th percentile of the time to first audio.
        gaps, errors: answers that ran dry in the middle, and answers that failed; one of either breaks any promise.
    """

    concurrency: int
    p95_ttfa_s: float
    gaps: int = 0
    errors: int = 0

    def keeps(self, promise_s: float) -> bool:
        """Whether everybody was served, and in time."""
        return self.p95_ttfa_s <= promise_s and not self.gaps and not self.errors


def q_max(ladder: Sequence[Rung], promise_s: float) -> int:
    """The largest concurrency measured at which the promise was kept, at it and at every smaller one.

    Raises:
        LadderError: not even the smallest one kept it.
    """
    kept = 0
    for rung in sorted(ladder, key=lambda rung: rung.concurrency):
        if not rung.keeps(promise_s):
            break
        kept = rung.concurrency
    if not kept:
        first = min(ladder, key=lambda rung: rung.concurrency)
        raise LadderError(
            f"concurrency {first.concurrency} has p95 {1000 * first.p95_ttfa_s:.0f} ms, {first.gaps} gaps and "
            f"{first.errors} errors: no instance of this kind keeps {1000 * promise_s:.0f} ms; take a faster one"
        )
    return kept


def read_ladder(file: Path) -> list[Rung]:
    """The rungs in a .parquet, .csv or .json file (a list of objects); columns beside a rung's own are ignored.

    Raises:
        LadderError: another suffix, a missing column, a value that is no number, no rows, a concurrency twice.
        OSError: the file cannot be read.
    """
    try:
        rows = _rows(file)
        ladder = [
            Rung(
                int(row["concurrency"]),
                float(row["p95_ttfa_s"]),
                int(row.get("gaps") or 0),
                int(row.get("errors") or 0),
            )
            for row in rows
        ]
    except KeyError as exc:
        raise LadderError(f"{file} has no column {exc}; a ladder has concurrency and p95_ttfa_s") from exc
    except (TypeError, ValueError) as exc:
        raise LadderError(f"{file} is no ladder: {exc}") from exc
    if not ladder or len({rung.concurrency for rung in ladder}) < len(ladder):
        raise LadderError(f"{file} must have rows, one for each concurrency")
    if any(rung.concurrency < 1 or not rung.p95_ttfa_s > 0 for rung in ladder):
        raise LadderError(f"{file} has a row whose concurrency or p95_ttfa_s is not above 0")
    return sorted(ladder, key=lambda rung: rung.concurrency)


def _rows(file: Path) -> Sequence[Mapping[str, Any]]:
    match file.suffix:
        case ".parquet":
            from pyarrow import parquet

            rows: Sequence[Mapping[str, Any]] = parquet.read_table(file).to_pylist()
            return rows
        case ".csv":
            with file.open(newline="") as lines:
                return list(csv.DictReader(lines))
        case ".json":
            content = json.loads(file.read_text())
            if not isinstance(content, list):
                raise ValueError("a list of objects is expected")
            return content
        case suffix:
            raise ValueError(f"{suffix or 'no suffix'} is not one of .parquet, .csv and .json")
