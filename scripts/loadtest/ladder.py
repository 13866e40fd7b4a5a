"""How many sessions at once one server carries within a promise: which concurrency to measure next. Pure."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from scripts.capacity.ladder import Rung
from scripts.loadtest.stats import Summary

NEVER_S = float("inf")
"""The time to first audio where none came: it keeps no promise."""


@dataclass(frozen=True, slots=True)
class Climbed:
    """A rung, and the summary that it comes from."""

    rung: Rung
    summary: Summary


def rung_of(concurrency: int, found: Summary) -> Rung:
    """What a ladder file says of a round."""
    p95_ttfa_s = found.ttfa_s[1] if found.ttfa_s else NEVER_S
    return Rung(concurrency, p95_ttfa_s, gaps=found.with_gaps, errors=found.errors)


def next_concurrency(measured: Sequence[Rung], promise_s: float, most: int) -> int | None:
    """What to measure next: twice as many until the promise is broken, then the middle of what is left; None: done."""
    broken = min((rung.concurrency for rung in measured if not rung.keeps(promise_s)), default=None)
    kept = max((rung.concurrency for rung in measured if rung.keeps(promise_s)), default=0)
    if broken is None:
        return min(2 * kept or 1, most) if kept < most else None
    return (kept + broken) // 2 if broken - kept > 1 else None


async def climb(
    measure: Callable[[int], Awaitable[Summary | None]], promise_s: float, most: int, tell: Callable[[Climbed], None]
) -> list[Climbed]:
    """Measure until the largest concurrency that keeps the promise is known, `most` does, or there is no time left.

    Args:
        measure: None: no time left.
        tell: is given each rung at once.
    Returns:
        What was measured, by concurrency.
    """
    climbed: list[Climbed] = []
    while (concurrency := next_concurrency([one.rung for one in climbed], promise_s, most)) is not None:
        found = await measure(concurrency)
        if found is None:
            break
        climbed.append(Climbed(rung_of(concurrency, found), found))
        tell(climbed[-1])
    return sorted(climbed, key=lambda one: one.rung.concurrency)
