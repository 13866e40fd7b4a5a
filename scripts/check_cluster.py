"""Several machines: `uv run python scripts/check_cluster.py` (as root, Linux). Exits 1 when a promise is broken.

It starts a real Ray cluster on machines that are namespaces of this one (scripts/cluster), deploys
configs/cluster.yaml, adds machines, and takes one away while sessions speak. See docs/cluster.md.
"""

import argparse
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from scripts.cluster.callers import CUT, GOING_AWAY, PAUSE_S, Caller, Crowd, rate, speaks
from scripts.cluster.machines import CANNOT_ISOLATE, CannotIsolate, Machine, network
from scripts.cluster.stack import Cluster, config, until
from scripts.promises import CameNot, Promises
from scripts.running import REAL_APP, TIMED_APP
from serve_app.errors import EngineUnavailable

START_WITHIN_S = 300.0
WHOLE_WITHIN_S = 30.0
SILENT_WHOLE_WITHIN_S = 60.0
"""Of a machine that is cut off: Ray takes 20 s to be sure of it."""

SETTLE_S = 2.0
COUNTED_ALIKE = 8
"""Looks in turn, two seconds; metrics are exported twice a second."""

UNAVAILABLE = EngineUnavailable.code
MIN_GROWTH = {TIMED_APP: 0.75, REAL_APP: 0.5}
"""Of what a machine adds: those of this check share the cores of one, with the model as with all else."""


def throughput(cluster: Cluster, sessions: int, seconds: float) -> float:
    """Sentences a second with so many sessions through each machine; prints where they were and were spoken."""
    spoken_before = engines(cluster)
    with Crowd() as crowd:
        for machine in cluster.machines:
            crowd.connect(machine.address, sessions)
        crowd.go()
        time.sleep(SETTLE_S)
        from_s = time.monotonic()
        time.sleep(seconds)
        to_s = time.monotonic()
        placed = gateways(cluster, crowd)
    per_s = rate(crowd.callers, from_s, to_s)
    print(
        f"{len(cluster.machines)} machines, {per_s:.1f} sentences/s: sessions by gateway {shares(placed)}, "
        f"segments by engine {shares(engines(cluster) - spoken_before)}",
        flush=True,
    )
    return per_s


def lose(
    cluster: Cluster, sessions: int, promises: Promises, within_s: float = WHOLE_WITHIN_S, *, cut_off: bool = False
) -> None:
    """Take a machine away while all speak, and start another one, as a cloud would.

    Args:
        within_s: for the service to be whole again.
        cut_off: it loses its network, so that not even its connections end; else its processes.
    """
    *survivors, victim = cluster.machines
    print(f"a machine of {len(cluster.machines)} is {'cut off' if cut_off else 'killed'}", flush=True)
    with Crowd() as crowd:
        for machine in survivors:
            crowd.connect(machine.address, sessions)
        strays = gateways(cluster, crowd)[victim.address]  # whose gateway is there
        crowd.connect(victim.address, sessions)
        crowd.go()
        time.sleep(SETTLE_S)
        lost_s = time.monotonic()
        if cut_off:
            cluster.cut_off(victim)
        else:
            cluster.kill(victim)
        cluster.add_machine()
        time.sleep(SETTLE_S)
        crowd.slow_down()  # else this machine's cores, which the new one has to start on, have no time for it
        until(lambda: all(speaks(machine.address) for machine in survivors), 60.0, "new sessions to be let in")
        open_s = time.monotonic() - lost_s
        until(lambda: not cluster.replicas_at(victim.address), 120.0, "the loss to be noticed")
        noticed_s = time.monotonic() - lost_s
        cluster.wait_until_whole(START_WITHIN_S)
        whole_s = time.monotonic() - lost_s
        time.sleep(SETTLE_S)
    judge(crowd.callers, victim, strays, lost_s, promises, cut_off=cut_off)
    promises.keep_within("new sessions are spoken to through every machine that is left", open_s, within_s)
    print(f"        Serve has noticed the loss after {noticed_s:.1f} s", flush=True)
    promises.keep_within("the service is whole again", whole_s, within_s, "a new machine included")


def leave(cluster: Cluster, sessions: int, promises: Promises) -> None:
    """Drain a machine while all speak, with another one in its place."""
    *_, leaving = cluster.machines
    print(f"a machine of {len(cluster.machines)} is drained", flush=True)
    with Crowd() as crowd:
        for machine in cluster.machines:
            crowd.connect(machine.address, sessions)
        moved = gateways(cluster, crowd)[leaving.address]
        crowd.go()
        crowd.slow_down()
        cluster.add_machine()
        time.sleep(SETTLE_S)
        began_s = time.monotonic()
        cluster.drain(leaving, within_s=90)
        until(lambda: not cluster.replicas_at(leaving.address), 120.0, "the machine to be empty")
        took_s = time.monotonic() - began_s
        time.sleep(2 * PAUSE_S)
    ends = Counter(answer.outcome for caller in crowd.callers for answer in caller.answers)
    seen = f"{outcomes(crowd.callers)}; {moved} sessions had their gateway there; empty after {took_s:.1f} s"
    promises.keep(
        "every message is spoken, and who is moved is told",
        ends == Counter({"complete": ends["complete"], GOING_AWAY: moved}),
        seen,
    )
    cluster.kill(leaving)
    cluster.wait_until_whole(START_WITHIN_S)


def judge(
    callers: Sequence[Caller], victim: Machine, strays: int, lost_s: float, promises: Promises, *, cut_off: bool
) -> None:
    """What the sessions have seen of it."""
    there = [caller for caller in callers if caller.address == victim.address]
    others = [caller for caller in callers if caller.address != victim.address]
    cut = [caller for caller in others if caller.answers[-1].outcome == CUT]
    rest = [caller for caller in others if caller not in cut]
    promises.keep(
        "sessions through the lost machine end, and are told by that",
        all(caller.answers[-1].outcome == CUT for caller in there),
        f"{len(there)} sessions, {outcomes(there)}",
    )
    promises.keep(
        "of the others only those end whose gateway it had",
        len(cut) == strays,
        f"{len(cut)} of {len(others)}, and it had {strays}",
    )
    failures = [[answer.outcome for answer in caller.answers if answer.outcome != "complete"] for caller in rest]
    if cut_off:
        promise, kept = "the rest get one error at most", all(told in ([], [UNAVAILABLE]) for told in failures)
    else:
        promise, kept = "the rest notice nothing", not any(failures)
    promises.keep(promise, kept, f"{len(rest)} sessions, {outcomes(rest)}")
    hit = [
        answer
        for caller in rest
        for answer in caller.answers
        if answer.sent_s < lost_s + 30 and answer.ended_s > lost_s
    ]
    longest_s = max(answer.ended_s - answer.sent_s for answer in hit)
    usual_s = sorted(a.ended_s - a.sent_s for c in rest for a in c.answers if a.ended_s < lost_s)
    print(
        f"        their longest wait for an answer after it {longest_s:.2f} s; before it, median "
        f"{usual_s[len(usual_s) // 2]:.2f} s, longest {usual_s[-1]:.2f} s",
        flush=True,
    )


def outcomes(callers: Iterable[Caller]) -> str:
    counted = Counter(answer.outcome for caller in callers for answer in caller.answers)
    return ", ".join(f"{number} {outcome}" for outcome, number in counted.most_common())


def gateways(cluster: Cluster, crowd: Crowd) -> Counter[str]:
    """Where the sessions are, by machine, once all are counted: machines report apart, so that one look may mislead."""
    looks: list[Counter[str]] = []

    def counted() -> bool:
        looks.append(cluster.metric("kokoro_active_sessions"))
        latest = looks[-COUNTED_ALIKE:]
        return (
            len(latest) == COUNTED_ALIKE
            and all(look == latest[0] for look in latest)
            and looks[-1].total() == crowd.open
        )

    until(counted, 30.0, "sessions to be counted")
    return looks[-1]


def engines(cluster: Cluster) -> Counter[str]:
    """Segments spoken so far, by machine."""
    return cluster.metric("serve_deployment_request_counter_total", deployment="Kokoro")


def shares(counted: Mapping[str, float]) -> str:
    total = sum(counted.values()) or 1
    return ", ".join(f"{number:.0f} ({number / total:.0%})" for _, number in sorted(counted.items()))


def main() -> int:
    parser = argparse.ArgumentParser(description="Start a cluster on this machine, load it, and take machines away.")
    parser.add_argument("--machines", type=int, default=3)
    parser.add_argument("--sessions", type=int, default=8, help="through each machine")
    parser.add_argument("--seconds", type=float, default=10.0, help="of load for each figure")
    parser.add_argument("--real", action="store_true", help="the model, with one thread an engine; throughput only")
    parser.add_argument("--short", action="store_true", help="two machines, one of them killed, at whatever pace")
    options = parser.parse_args()
    promises = Promises(timed=not options.short)
    try:
        with network(), tempfile.TemporaryDirectory() as logs, Cluster(Path(logs)) as cluster:
            if options.short:
                short(cluster, promises)
            elif options.real:
                grow(cluster, REAL_APP, options, promises)
            else:
                grow(cluster, TIMED_APP, options, promises)
                lose(cluster, options.sessions, promises)
                lose(cluster, options.sessions, promises, SILENT_WHOLE_WITHIN_S, cut_off=True)
                leave(cluster, options.sessions, promises)
    except CannotIsolate as exc:
        print(exc, file=sys.stderr)
        return CANNOT_ISOLATE
    except CameNot as exc:
        print(f"BROKEN  {exc}")
        return 1
    return 1 if promises.broken else 0


def short(cluster: Cluster, promises: Promises) -> None:
    """What the tests run: how long things took is told and breaks nothing."""
    cluster.add_machine()
    cluster.deploy(config(TIMED_APP, 2), START_WITHIN_S)
    cluster.wait_until_whole(START_WITHIN_S)
    lose(cluster, 4, promises)


def grow(cluster: Cluster, application: str, options: argparse.Namespace, promises: Promises) -> None:
    """Measure one machine, and each one more."""
    cluster.deploy(config(application, options.machines), START_WITHIN_S)
    cluster.wait_until_whole(START_WITHIN_S)
    alone = throughput(cluster, options.sessions, options.seconds)
    for number in range(2, options.machines + 1):
        cluster.add_machine()
        cluster.wait_until_whole(START_WITHIN_S)
        ratio = throughput(cluster, options.sessions, options.seconds) / alone
        least = 1 + MIN_GROWTH[application] * (number - 1)
        promises.keep(f"{number} machines carry more than one", ratio >= least, f"{ratio:.2f} times as much")


if __name__ == "__main__":
    sys.exit(main())
