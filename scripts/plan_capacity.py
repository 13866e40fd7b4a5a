"""Scaling values out of a load test, the start-up time of an instance and stated traffic; what batches are worth.

    uv run python scripts/plan_capacity.py plan --ladder ladder.parquet --promise-s 0.3 \\
        --startup-log container.log --stage provisioning=150 --stage image_pull=120 --stage weights=15 \\
        --trough 5 --peak 60 --surge 40 --surge-over-s 1800 --seconds-per-answer 8 --to capacity.yaml
    uv run python scripts/plan_capacity.py compare --plot docs/capacity.png

`plan` writes the file that `autoscaling: capacity.yaml` names in a deployment's settings, and tells on stderr how often
a session would be late or refused in a surge at those values, simulated over a virtual clock. `compare` needs no load
test: it simulates one instance behind a lock and one that takes batches, and the same traffic on fleets of both.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from deploy.settings import Autoscaling
from scripts.capacity.fleet import Outcome, simulate
from scripts.capacity.ladder import LadderError, Rung, q_max, read_ladder
from scripts.capacity.planning import Traffic, TrafficError, instances_at, plan
from scripts.capacity.queue import ServiceCurve, ladder_of
from scripts.capacity.startup import STAGES, StartupError, stages_of
from serve_app.config import LimitSettings

PUBLISHED_MS = {1: 65, 5: 286, 10: 568, 20: 1129, 40: 2245, 50: 2806}
"""p95 of the time to first audio by concurrency, of one sentence at a time on ml.g5.xlarge."""
ONE_LOCK = ServiceCurve({1: 0.056})
BATCHES = ServiceCurve({1: 0.056, 16: 0.206})
"""Assumed, not measured: of the 56 ms of a pass, 10 grow with the batch (the arithmetic of a sentence of 2 s, 0.12
TFLOP, at 12 TFLOP/s), and 46 are launches, which do not.
"""
STEADY_S = 600.0
"""How long a simulated surge stays."""
SEEDS = 5
RUNGS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 14, 16, 20, 24, 32, 40, 50)
EXAMPLE = Traffic(trough=5, peak=60, surge=40, surge_over_s=1800, session_s=8)
EXAMPLE_START_S = 300.0
EXAMPLE_PROMISE_S = 0.3


@dataclass(frozen=True, slots=True)
class Surge:
    """Outcomes of the same surge with several seeds, added up."""

    level: float
    instances: int
    outcomes: tuple[Outcome, ...]

    @property
    def late(self) -> float:
        """The part of all sessions that began beyond q_max."""
        return sum(one.late for one in self.outcomes) / self._sessions

    @property
    def refused(self) -> float:
        """The part of all sessions that found every instance full."""
        return sum(one.refused for one in self.outcomes) / self._sessions

    @property
    def most_instances(self) -> int:
        """In any of them."""
        return max(one.most_instances for one in self.outcomes)

    @property
    def _sessions(self) -> int:
        return max(1, sum(one.sessions for one in self.outcomes))


def surges(traffic: Traffic, values: Autoscaling, t_total_s: float, *, refuse_at: int, seed: int) -> list[Surge]:
    """The stated surge, out of the trough and on top of the peak."""
    return [
        Surge(
            level,
            instances_at(level, values),
            tuple(
                simulate(traffic, level, values, t_total_s, refuse_at=refuse_at, lasts_s=STEADY_S, seed=seed + number)
                for number in range(SEEDS)
            ),
        )
        for level in (traffic.trough, traffic.peak)
    ]


def surge_table(found: Sequence[Surge]) -> str:
    """A line a level, in Markdown."""
    head = "| a surge begins at | instances before | most | sessions late | refused |\n|--:|--:|--:|--:|--:|"
    return "\n".join(
        [head]
        + [
            f"| {one.level:g} sessions | {one.instances} | {one.most_instances} | {one.late:.2%} | {one.refused:.2%} |"
            for one in found
        ]
    )


def stage_table(stages_s: Mapping[str, float]) -> str:
    """Start-up by stage, in Markdown."""
    lines = [f"| {stage.replace('_', ' ')} | {taken_s:.0f} |" for stage, taken_s in stages_s.items()]
    return "\n".join(
        ["| start of one more instance | s |\n|---|--:|", *lines, f"| all | {sum(stages_s.values()):.0f} |"]
    )


def as_yaml(values: Autoscaling, how: str) -> str:
    """The file that a deployment's settings name; `how`: where the values come from, as a comment."""
    return f"# {how}\n" + yaml.safe_dump(values.model_dump(), sort_keys=False)


def ladder_table(one_lock: Sequence[Rung], batches: Sequence[Rung]) -> str:
    """p95 in ms by concurrency, in Markdown."""
    head = "| concurrency | published | one lock, simulated | batches, simulated |\n|--:|--:|--:|--:|"
    in_batches = {rung.concurrency: rung.p95_ttfa_s for rung in batches}
    return "\n".join(
        [head]
        + [
            f"| {rung.concurrency} | {PUBLISHED_MS[rung.concurrency]} | {1000 * rung.p95_ttfa_s:.0f} "
            f"| {1000 * in_batches[rung.concurrency]:.0f} |"
            for rung in one_lock
        ]
    )


def fleet_table(fleets: Mapping[str, tuple[Autoscaling, Sequence[Surge]]]) -> str:
    """A line a kind of engine: the values, and what the surge does at them; in Markdown."""
    head = "| | q_max | target | instances, trough to most | late, refused at trough | at peak |\n" + "|---" * 6 + "|"
    lines = [head]
    for name, (values, found) in fleets.items():
        cells = " | ".join(f"{one.late:.2%}, {one.refused:.2%}" for one in found)
        lines.append(
            f"| {name} | {values.q_max:g} | {values.target_concurrency:g} "
            f"| {values.min_instances} to {values.max_instances} | {cells} |"
        )
    return "\n".join(lines)


def plot(curves: Mapping[str, ServiceCurve], fleets: Mapping[str, Autoscaling], file: Path, seed: int) -> None:
    """Both ladders beside the published one, and the instances that a level of traffic keeps running; a PNG."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 4), layout="constrained")
    FigureCanvasAgg(figure)
    wait, fleet = figure.subplots(1, 2)
    wait.plot(list(PUBLISHED_MS), list(PUBLISHED_MS.values()), "ko", label="one lock, published")
    for name, curve in curves.items():
        ladder = ladder_of(curve, RUNGS, seed=seed)
        wait.plot(RUNGS, [1000 * rung.p95_ttfa_s for rung in ladder], label=f"{name}, simulated")
    wait.axhline(1000 * EXAMPLE_PROMISE_S, color="grey", linestyle=":", label="the promise")
    wait.set(xlabel="concurrency of one instance", ylabel="p95 time to first audio, ms", ylim=(0, 3000))
    levels = range(int(EXAMPLE.trough), int(EXAMPLE.peak + EXAMPLE.surge) + 1)
    for name, values in fleets.items():
        fleet.step(levels, [instances_at(level, values) for level in levels], where="post", label=name)
    fleet.set(xlabel="sessions at the same time", ylabel="instances running", ylim=(0, None))
    wait.legend()
    fleet.legend(loc="lower right")
    figure.savefig(file, dpi=120)


def run_plan(options: argparse.Namespace) -> None:
    """`plan`: see the module."""
    log = options.startup_log.read_text(errors="replace").splitlines() if options.startup_log else []
    stages_s = stages_of(log, dict(options.stage))
    t_total_s = sum(stages_s.values())
    make = Traffic.of_rates if options.per_second else Traffic
    traffic = make(options.trough, options.peak, options.surge, options.surge_over_s, options.seconds_per_answer)
    values = plan(traffic, q_max(read_ladder(options.ladder), options.promise_s), t_total_s)
    print(stage_table(stages_s), file=sys.stderr)
    found = surges(traffic, values, t_total_s, refuse_at=options.refuse_at, seed=options.seed)
    print("\n" + surge_table(found), file=sys.stderr)
    text = as_yaml(
        values,
        f"scripts/plan_capacity.py: {options.ladder.name}, promise {options.promise_s:g} s, start {t_total_s:.0f} s, "
        f"sessions {traffic.trough:g} to {traffic.peak:g}, surge {traffic.surge:g} in {traffic.surge_over_s:g} s",
    )
    if options.to:
        options.to.write_text(text)
    else:
        print(text, end="")


def run_compare(options: argparse.Namespace) -> None:
    """`compare`: see the module."""
    curves = {"one lock": ONE_LOCK, f"batches of up to {options.curve.max_batch}": options.curve}
    one_lock, batches = (ladder_of(curve, list(PUBLISHED_MS), seed=options.seed) for curve in curves.values())
    print(ladder_table(one_lock, batches))
    fleets = {}
    for name, curve in curves.items():
        carries = q_max(ladder_of(curve, RUNGS, seed=options.seed), EXAMPLE_PROMISE_S)
        values = plan(EXAMPLE, carries, EXAMPLE_START_S)
        found = surges(EXAMPLE, values, EXAMPLE_START_S, refuse_at=options.refuse_at, seed=options.seed)
        fleets[name] = (values, found)
    print("\n" + fleet_table(fleets))
    if options.plot:
        plot(curves, {name: values for name, (values, _) in fleets.items()}, options.plot, options.seed)


def stage(text: str) -> tuple[str, float]:
    """`NAME=SECONDS`."""
    name, _, seconds = text.partition("=")
    return name, float(seconds)


def curve(text: str) -> ServiceCurve:
    """`1=0.056,16=0.206`: seconds of a pass by the sentences in it."""
    return ServiceCurve({int(size): float(taken_s) for size, _, taken_s in (p.partition("=") for p in text.split(","))})


def parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--seed", type=int, default=0, help="of everything that is left to chance; %(default)s")
    common.add_argument(
        "--refuse-at",
        type=int,
        default=LimitSettings().max_sessions,
        help="sessions of one instance past which it refuses; %(default)s, limits.max_sessions",
    )
    commands = parser.add_subparsers(dest="command", required=True)
    planning = commands.add_parser("plan", parents=[common], help="scaling values for one deployment")
    planning.set_defaults(run=run_plan)
    planning.add_argument("--ladder", type=Path, required=True, help=".parquet, .csv or .json of a load test")
    planning.add_argument("--promise-s", type=float, required=True, help="p95 of the time to first audio to be kept")
    planning.add_argument("--startup-log", type=Path, metavar="FILE", help="a container's log, from its first line")
    planning.add_argument(
        "--stage",
        type=stage,
        action="append",
        default=[],
        metavar="NAME=S",
        help=f"seconds of one of {', '.join(STAGES)}, where the log does not tell",
    )
    planning.add_argument("--trough", type=float, required=True, help="sessions at the same time, quietest")
    planning.add_argument("--peak", type=float, required=True, help="the same, busiest, as a mean")
    planning.add_argument("--surge", type=float, required=True, help="sessions that may come on top of either")
    planning.add_argument("--surge-over-s", type=float, default=60.0, help="in so many seconds; %(default)s")
    planning.add_argument("--seconds-per-answer", type=float, required=True, help="how long a session stays open")
    planning.add_argument("--per-second", action="store_true", help="trough, peak and surge are requests per second")
    planning.add_argument("--to", type=Path, metavar="FILE", help="write the values there instead of to stdout")
    comparing = commands.add_parser("compare", parents=[common], help="one sentence at a time against batches")
    comparing.set_defaults(run=run_compare)
    comparing.add_argument(
        "--curve", type=curve, default=BATCHES, metavar="1=S,N=S", help="seconds of a pass by sentences in it"
    )
    comparing.add_argument("--plot", type=Path, metavar="FILE", help="draw it there, as PNG")
    return parser


def main() -> None:
    options = parser().parse_args()
    try:
        options.run(options)
    except (LadderError, StartupError, TrafficError, OSError) as exc:
        sys.exit(str(exc))


if __name__ == "__main__":
    main()
