"""What a soak found: tables for a person, and the list of promises that broke."""

from collections.abc import Mapping, Sequence

from scripts.soak.clients import Counts
from scripts.soak.ledger import Ledger, Outage
from scripts.soak.machine import Growth

WHOLE_WITHIN_S = 60.0
"""After a kill: a replica loads its model anew."""

MOST_GROWN_BYTES = 64 << 20
MOST_GROWN_HANDLES = 16

MOST_DRIFT = 1.5
DRIFT_FROM_S = 600.0
"""In a shorter run, what else the machine does outweighs what the service does."""
MOST_OTHERS = 0.2
"""Cores that others may take more at the end of the run than at its beginning; past it a drift is theirs."""


def tell(
    ledger: Ledger,
    counts: Counts,
    outages: Sequence[Outage],
    grown: Sequence[Growth],
    left: Mapping[str, float],
    others: tuple[float, float],
) -> None:
    """Print the figures. `others` are cores that were taken by others, in the first and in the last third."""
    print("\n| messages of talkers | |\n| --- | --: |")
    for how, count in ledger.ended.most_common():
        print(f"| {how} | {count} |")
    for what, number in (
        ("lost", ledger.lost),
        ("doubled", ledger.doubled.total()),
        ("altered", len(ledger.altered)),
        ("short", ledger.short),
        ("failed while nothing was killed", ledger.unprovoked(outages).total()),
    ):
        print(f"| {what} | {number} |")
    if (drift := ledger.drift(outages)) is not None:
        print(f"| time to first audio, last third by first third | {drift:.2f} |")
    print("| cores taken by others, first third, last third | {:.2f}, {:.2f} |".format(*others))
    print("\n| everybody else | |\n| --- | --: |")
    for what, number in sorted(counts.done.items()):
        print(f"| {what} | {number} |")
    print("\n| killed | whole again after s |\n| --- | --: |")
    for outage in outages:
        print(f"| {outage.part} | {'never' if outage.until_s is None else f'{outage.until_s - outage.from_s:.1f}'} |")
    print("\n| process | watched s | MB | grown MB | grown handles |\n| --- | --: | --: | --: | --: |")
    for one in grown:
        megabytes, more = one.memory_bytes / 1e6, one.grown_bytes / 1e6
        print(
            f"| {one.part} {one.pid} | {one.watched_s:.0f} | {megabytes:.0f} | {more:+.1f} | {one.grown_handles:+d} |"
        )
    print("\n| left when all had gone | |\n| --- | --: |")
    for name, value in left.items():
        print(f"| {name} | {value:g} |")


def broken(
    ledger: Ledger,
    counts: Counts,
    outages: Sequence[Outage],
    grown: Sequence[Growth],
    left: Mapping[str, float],
    others: tuple[float, float],
    lasted_s: float,
) -> list[str]:
    """The promises that were not kept, as sentences."""
    found = [
        f"{number} messages {what}"
        for what, number in (
            ("lost", ledger.lost),
            ("doubled", ledger.doubled.total()),
            ("with other audio than the first time", len(ledger.altered)),
            ("without all of their audio", ledger.short),
        )
        if number
    ]
    if not ledger.ended["complete"]:
        found.append("nothing was spoken")
    found += [f"{how} {count} times, with nothing killed" for how, count in ledger.unprovoked(outages).items()]
    found += [f"{what} ({count} times)" for what, count in counts.wrong.items()]
    found += [
        f"without a {one.part} it was not whole again within {WHOLE_WITHIN_S:g} s"
        for one in outages
        if one.until_s is None or one.until_s - one.from_s > WHOLE_WITHIN_S
    ]
    found += [
        f"{one.part} {one.pid} has grown by {one.grown_bytes / 1e6:.0f} MB and {one.grown_handles} handles"
        for one in grown
        if one.grown_bytes > MOST_GROWN_BYTES or one.grown_handles > MOST_GROWN_HANDLES
    ]
    found += [f"{name} is {value:g} when all have gone" for name, value in left.items() if value]
    drift = ledger.drift(outages)
    alike = lasted_s >= DRIFT_FROM_S and others[1] - others[0] < MOST_OTHERS
    if alike and drift is not None and drift > MOST_DRIFT:
        found.append(f"time to first audio has drifted to {drift:.2f} of what it was")
    return found
