"""What an order of service is worth to listeners, over a virtual clock: two hours of load in seconds.

    uv run python scripts/simulate_scheduler.py
    uv run python scripts/simulate_scheduler.py --service-curve 1=0.056,16=0.206 --load 0.8
    uv run python scripts/simulate_scheduler.py --ladder --service-curve 1=0.056,16=0.206

Compared are one lock (a sentence at a time, answers in order of arrival), batches in order of arrival, and the engine's
own planning (serve_app/engine/schedule.py, the code that serves). Answers of five sentences come at random, and a load
of 0.8 is 80 % of what the engine can speak in its largest batches. TTFA is from asking to the first sentence; a gap is
a silence between two sentences because the second was not there. The same seed gives the same table.

--ladder: instead, sessions that each ask, listen to the end, and ask again; the most that one engine carries with no
gap at all and the p95 of TTFA within the promise.
"""

import argparse
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from scripts.capacity.queue import ServiceCurve
from scripts.plan_capacity import ONE_LOCK, curve
from scripts.scheduling.load import SENTENCES, poisson
from scripts.scheduling.orders import ByDeadline, InOrderOfArrival, Order
from scripts.scheduling.simulation import Conversations, Heard, simulate

HOURS = 2.0
LADDER_S = 300.0
PAUSE_S = 2.0
PROMISE_S = 0.3


@dataclass(frozen=True, slots=True)
class Row:
    """What many listeners heard. Percentiles are of the answers that were let in."""

    answers: int
    refused: int
    ttfa_s: tuple[float, float, float]
    gaps: int
    longest_gap_s: float

    @classmethod
    def of(cls, heard: Sequence[Heard]) -> "Row":
        """Percentiles 50, 95 and 99."""
        ttfa_s = [one.ttfa_s for one in heard if one.ttfa_s < math.inf]
        p50_s, p95_s, p99_s = np.percentile(ttfa_s or [math.inf], [50, 95, 99])
        gaps_s = [gap_s for one in heard for gap_s in one.gaps_s]
        ttfas_s = (float(p50_s), float(p95_s), float(p99_s))
        return cls(len(heard), len(heard) - len(ttfa_s), ttfas_s, len(gaps_s), max(gaps_s, default=0.0))


def orders(service: ServiceCurve) -> dict[str, tuple[Callable[[], Order], ServiceCurve]]:
    """By name: a fresh queue, and the engine behind it."""
    alone = ServiceCurve({1: service.seconds(1)})
    compared: dict[str, tuple[Callable[[], Order], ServiceCurve]] = {
        "one lock": (lambda: InOrderOfArrival(1), alone),
        "by deadline": (lambda: ByDeadline(1), alone),
    }
    if service.max_batch > 1:
        compared["batches in order of arrival"] = (lambda: InOrderOfArrival(service.max_batch), service)
        compared["batches by deadline"] = (lambda: ByDeadline(service.max_batch), service)
    return compared


def compare(service: ServiceCurve, load: float, lasts_s: float, *, seed: int) -> dict[str, Row]:
    """Poisson arrivals, the same ones for every order that can bear them at all."""
    per_s = load * service.max_batch / service.seconds(service.max_batch) / SENTENCES
    rows = {}
    for name, (order, engine) in orders(service).items():
        if per_s * SENTENCES < engine.max_batch / engine.seconds(engine.max_batch):
            rows[name] = Row.of(simulate(order(), engine, poisson(per_s, lasts_s, seed=seed)))
    return rows


def carries(order: Callable[[], Order], engine: ServiceCurve, promise_s: float, lasts_s: float, *, seed: int) -> int:
    """The most sessions that all hear no gap, with the p95 of TTFA within the promise; 0 if not even one does."""

    def keeps(sessions: int) -> bool:
        talk = Conversations(sessions, lasts_s, pause_s=PAUSE_S, seed=seed)
        row = Row.of(simulate(order(), engine, talk.first, talk))
        return not row.gaps and not row.refused and row.ttfa_s[1] <= promise_s

    kept, broken = 0, 1
    while keeps(broken):
        kept, broken = broken, 2 * broken
    while broken - kept > max(1, kept // 50):
        middle = (kept + broken) // 2
        kept, broken = (middle, broken) if keeps(middle) else (kept, middle)
    return kept


def comparison_table(rows: dict[str, Row]) -> str:
    """A line an order, in Markdown."""
    head = (
        "| | answers | refused | TTFA ms p50 | p95 | p99 | gaps | longest gap ms |\n|---|--:|--:|--:|--:|--:|--:|--:|"
    )
    lines = [head]
    for name, row in rows.items():
        ttfa = " | ".join(f"{1000 * one_s:.0f}" for one_s in row.ttfa_s)
        lines.append(
            f"| {name} | {row.answers} | {row.refused} | {ttfa} | {row.gaps} | {1000 * row.longest_gap_s:.0f} |"
        )
    return "\n".join(lines)


def ladder_table(sessions: dict[str, int]) -> str:
    """A line an order, in Markdown."""
    return "\n".join(["| | sessions |\n|---|--:|", *(f"| {name} | {most} |" for name, most in sessions.items())])


def parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--service-curve",
        type=curve,
        default=ONE_LOCK,
        metavar="1=S,N=S",
        help="seconds of a pass by the sentences in it; 1=0.056, as published for ml.g5.xlarge",
    )
    parser.add_argument("--load", type=float, default=0.8, help="part of what the engine can speak; %(default)s")
    parser.add_argument("--hours", type=float, default=HOURS, help="of simulated load; %(default)s")
    parser.add_argument("--seed", type=int, default=0, help="%(default)s")
    parser.add_argument("--ladder", action="store_true", help="see above")
    parser.add_argument("--promise-s", type=float, default=PROMISE_S, help="of the ladder; %(default)s")
    return parser


def main() -> None:
    options = parser().parse_args()
    if options.ladder:
        print(
            ladder_table(
                {
                    name: carries(order, engine, options.promise_s, LADDER_S, seed=options.seed)
                    for name, (order, engine) in orders(options.service_curve).items()
                }
            )
        )
    else:
        print(comparison_table(compare(options.service_curve, options.load, 3600 * options.hours, seed=options.seed)))


if __name__ == "__main__":
    main()
