"""Results for people and for programs: tables in Markdown, Parquet, a plot. Failures come before anything else."""

import os
import platform
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from scripts.loadtest.idle import Idle
from scripts.loadtest.ladder import Climbed
from scripts.loadtest.stats import Answer, Outcome, Summary, round_ratios, summary

Group = tuple[str, str]
"""A server's name and a route."""

_TYPES: dict[Any, pa.DataType] = {
    str: pa.string(),
    Outcome: pa.string(),
    int: pa.int64(),
    float: pa.float64(),
    float | None: pa.float64(),
}
SCHEMA = pa.schema([(field.name, _TYPES[field.type]) for field in fields(Answer)])
"""Stated, so that a column without a value has its type."""

_COUNTED = (Outcome.FAILED, Outcome.REFUSED, Outcome.CUT)
_NONE = "–"


def groups(answers: Sequence[Answer]) -> dict[Group, list[Answer]]:
    """The answers of each server over each route, in the order in which they first came."""
    found: dict[Group, list[Answer]] = {}
    for answer in answers:
        found.setdefault((answer.server, answer.route), []).append(answer)
    return found


def heading(arguments: Sequence[str]) -> str:
    """What the figures depend on: the command, the commit, the machine and what else it does."""
    found = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    return (
        f"`python -m scripts.loadtest {' '.join(arguments)}`\n"
        f"commit {found.stdout.strip() or 'unknown'}, Python {platform.python_version()}, {platform.machine()}, "
        f"{os.cpu_count()} cores, load average {os.getloadavg()[0]:.1f}"
    )


def tables(answers: Sequence[Answer], first: str) -> str:
    """All that is told of rounds; ratios are to the server `first`."""
    by_group = groups(answers)
    summaries = {group: summary(of_group) for group, of_group in by_group.items()}
    parts = [failure_table(summaries), heard_table(summaries)]
    if ratios := ratio_table(by_group, first):
        parts.append(ratios)
    return "\n\n".join(parts)


def failure_table(summaries: Mapping[Group, Summary]) -> str:
    """Counts of what was not whole, and why."""
    lines = [
        "| server | route | answers | failed | refused | cut | slowest refusal s | without Retry-After |",
        "| --- | --- | --: | --: | --: | --: | --: | --: |",
    ]
    reasons = []
    for (server, route), found in summaries.items():
        counts = " | ".join(str(found.outcomes[outcome]) for outcome in _COUNTED)
        unsure = found.without_retry_after if found.outcomes[Outcome.REFUSED] else _NONE
        slowest = _figure(found.slowest_refusal_s)
        lines.append(f"| {server} | {route} | {found.answers} | {counts} | {slowest} | {unsure} |")
        reasons += [
            f"- {server}, {route}: {count} {outcome}: {reason}"
            for (outcome, reason), count in found.reasons.most_common()
        ]
    return "\n".join([*lines, *(["", *reasons] if reasons else [])])


def heard_table(summaries: Mapping[Group, Summary]) -> str:
    """What the listeners of complete answers heard, and how much audio came."""
    lines = [
        "| server | route | TTFA p50 s | p95 | p99 | with gaps | silence s, mean | worst | audio s/s | connect p95 s "
        "| client late s |",
        "| --- | --- | --: | --: | --: | --: | --: | --: | --: | --: | --: |",
    ]
    for (server, route), found in summaries.items():
        ttfa = " | ".join(map(_figure, found.ttfa_s or (None, None, None)))
        lines.append(
            f"| {server} | {route} | {ttfa} | {found.with_gaps} | {found.silent_s:.2f} | {found.worst_silent_s:.2f} "
            f"| {found.audio_per_s:.2f} | {_figure(found.p95_connect_s)} | {_figure(found.most_late_s)} |"
        )
    return "\n".join(lines)


def ratio_table(by_group: Mapping[Group, Sequence[Answer]], first: str) -> str:
    """The others' figures by those of `first`, over the same route; "" where there are none to compare."""
    lines = [
        f"| by {first} | route | TTFA p50 | p95 | p99 | p95, lowest and highest round | audio s/s |",
        "| --- | --- | --: | --: | --: | --: | --: |",
    ]
    for (server, route), answers in by_group.items():
        if server == first or (first, route) not in by_group:
            continue
        theirs, ours = summary(answers), summary(by_group[first, route])
        times = [_NONE] * 3
        if theirs.ttfa_s and ours.ttfa_s:
            times = [f"{their_s / our_s:.2f}" for their_s, our_s in zip(theirs.ttfa_s, ours.ttfa_s, strict=True)]
        by_round = round_ratios(by_group[first, route], answers)
        spread = f"{min(by_round):.2f} to {max(by_round):.2f}" if by_round else _NONE
        audio = f"{theirs.audio_per_s / ours.audio_per_s:.2f}" if ours.audio_per_s else _NONE
        lines.append(f"| {server} | {route} | {' | '.join(times)} | {spread} | {audio} |")
    return "\n".join(lines) if len(lines) > 2 else ""


def ladder_table(climbed: Sequence[Climbed]) -> str:
    """A row a rung."""
    lines = [
        "| sessions | errors | with gaps | TTFA p50 s | p95 | p99 | audio s/s |",
        "| --: | --: | --: | --: | --: | --: | --: |",
    ]
    for one in climbed:
        ttfa = " | ".join(map(_figure, one.summary.ttfa_s or (None, None, None)))
        rung = one.rung
        lines.append(f"| {rung.concurrency} | {rung.errors} | {rung.gaps} | {ttfa} | {one.summary.audio_per_s:.2f} |")
    return "\n".join(lines)


def idle_table(found: Idle) -> str:
    """What idle sessions cost, those that were not kept first."""
    lines = [f"sessions wanted: {found.wanted}, open to the end: {found.kept}"]
    lines += [f"- {found.reasons.count(reason)}: {reason}" for reason in dict.fromkeys(found.reasons)]
    mib = 1 << 20
    lines += [
        "",
        "| | CPU, % of a core | memory MiB |",
        "| --- | --: | --: |",
        f"| without sessions | {100 * found.without.cpu:.1f} | {found.without.memory_bytes / mib:.1f} |",
        f"| with {found.kept} | {100 * found.with_them.cpu:.1f} | {found.with_them.memory_bytes / mib:.1f} |",
        f"| added | {100 * found.added_cpu:.1f} | {found.bytes_per_session / 1000:.1f} kB a session |",
    ]
    return "\n".join(lines)


def write_answers(answers: Sequence[Answer], file: Path, told: str) -> None:
    """A row an answer; `told` (see `heading`) goes into the file's metadata."""
    table = pa.Table.from_pylist([asdict(answer) for answer in answers], SCHEMA)
    pq.write_table(table.replace_schema_metadata({"run": told}), file)


def write_ladder(climbed: Sequence[Climbed], file: Path, told: str) -> None:
    """What scripts/plan_capacity.py reads, and what else was measured."""
    rows = [
        asdict(one.rung) | {"answers": one.summary.answers, "audio_per_s": one.summary.audio_per_s} for one in climbed
    ]
    pq.write_table(pa.Table.from_pylist(rows).replace_schema_metadata({"run": told}), file)


def plot_answers(answers: Sequence[Answer], file: Path) -> None:
    """How many answers began to be heard within so many seconds, and with how much silence; incomplete ones never."""
    pyplot = _pyplot()
    figure, (begun, silent) = pyplot.subplots(1, 2, figsize=(10, 3.6), layout="constrained")
    for (server, route), of_group in groups(answers).items():
        complete = [one for one in of_group if one.outcome is Outcome.COMPLETE]
        for axes, values in (
            (begun, sorted(one.ttfa_s for one in complete if one.ttfa_s is not None)),
            (silent, sorted(one.silent_s for one in complete)),
        ):
            parts = [100 * number / len(of_group) for number in range(len(values) + 1)]
            axes.step([0.0, *values], parts, where="post", label=f"{server}, {route}")
    for axes, label in ((begun, "s to the first audio byte"), (silent, "s of silence within the answer")):
        axes.set_xlabel(label)
        axes.set_ylabel("% of all answers asked for")
        axes.set_xlim(left=0)
        axes.set_ylim(0, 102)
        axes.grid(alpha=0.3)
    begun.legend(loc="lower right", fontsize="small")
    figure.savefig(file, dpi=110)


def plot_ladder(climbed: Sequence[Climbed], promise_s: float, file: Path) -> None:
    """p95 by concurrency; rungs that broke the promise in any way are hollow."""
    pyplot = _pyplot()
    figure, axes = pyplot.subplots(figsize=(6, 3.6), layout="constrained")
    heard = [one.rung for one in climbed if one.summary.ttfa_s]
    axes.plot([rung.concurrency for rung in heard], [rung.p95_ttfa_s for rung in heard], "-", color="C0")
    for rung in heard:
        kept = rung.keeps(promise_s)
        axes.plot(rung.concurrency, rung.p95_ttfa_s, "o", color="C0", fillstyle="full" if kept else "none")
    axes.axhline(promise_s, color="C1", linestyle="--", label=f"promise, {promise_s:g} s")
    axes.set_xlabel("sessions at once (hollow: too slow, a gap or an error)")
    axes.set_ylabel("p95 of the time to first audio, s")
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(file, dpi=110)


def tell(text: str) -> None:
    """A line on how it goes: not part of the result."""
    print(text, file=sys.stderr, flush=True)


def _figure(value: float | None) -> str:
    return _NONE if value is None else f"{value:.3f}"


def _pyplot() -> Any:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    return pyplot
