"""A long life in short: half load with junk, slow readers, hang-ups and killed replicas; what was lost, what has grown.

    uv run python -m scripts.soak --minutes 30

Starts configs/local.yaml, or speaks to a server of this machine that runs (`--server`), whose replicas it kills, too.
The exit status is 1 when a promise broke; docs/load-test.md has them.
"""

import argparse
import asyncio
import signal
import sys
from collections.abc import Awaitable, Iterator, Sequence
from contextlib import contextmanager

import httpx

from scripts.loadtest.client import clock_s
from scripts.loadtest.idle import NotLocal
from scripts.running import DEPLOYMENTS, local_config, serve_running
from scripts.soak import clients, report
from scripts.soak.clients import Counts, Target
from scripts.soak.ledger import Ledger, Outage
from scripts.soak.machine import Others, Sample, cpu_time, growth, parts, replicas, sample
from serve_app.client.address import socket_url

TALKERS = 2
"""Each listens in real time; two cores carry four to five of them."""

_SAMPLES = 60
_PROBE_EVERY_S = 0.5
_REST_WITHIN_S = 60.0
"""For the gauges to come to rest: what was left in the middle is given up at the end of its segment, and Ray exports
every few seconds."""

_GAUGES = ("kokoro_active_sessions", "kokoro_queue_depth")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m scripts.soak", description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=30.0, help="(default: %(default)s)")
    parser.add_argument("--server", metavar="URL", help="one that runs on this machine (default: start one)")
    options = parser.parse_args()
    try:
        with _server(options.server) as url:
            sys.exit(asyncio.run(soak(url, options.minutes * 60)))
    except NotLocal as exc:
        sys.exit(str(exc))


@contextmanager
def _server(url: str | None) -> Iterator[str]:
    if url is not None:
        yield url
        return
    with serve_running(local_config()) as running:
        yield running.http


async def soak(url: str, for_s: float) -> int:
    """Run it and print its figures; the exit status. Raises NotLocal."""
    ledger, counts = Ledger(), Counts()
    samples: list[Sample] = []
    others = Others()
    outages: list[Outage] = []
    began_s = clock_s()
    target = Target(url, socket_url(url, "/invocations-bidirectional-stream"), began_s + for_s)
    replicas(url)  # raises before any client has begun
    crowd: Sequence[Awaitable[None]] = [
        *(clients.talker(target, f"talker-{number}", ledger, counts) for number in range(TALKERS)),
        clients.requester(target, "requester", ledger, counts),
        clients.junk(target, "junk", counts),
        clients.slow_reader(target, "slow", counts),
        clients.leaver(target, "leaver", counts),
        _kill_in_turn(target, for_s, outages),
        _watch(target, for_s / _SAMPLES, samples, others),
    ]
    await asyncio.gather(*crowd)
    left, grown = await _left(url), growth(samples)
    report.tell(ledger, counts, outages, grown, left, others.cores())
    broken = report.broken(ledger, counts, outages, grown, left, others.cores(), for_s)
    print("\nbroken: " + "; ".join(broken) if broken else "\nevery promise was kept")
    return 1 if broken else 0


async def _kill_in_turn(target: Target, for_s: float, outages: list[Outage]) -> None:
    """Kill one replica of each part, spread over the middle half of the run, and time until the service is whole."""
    for number, part in enumerate(DEPLOYMENTS):
        await asyncio.sleep(max(0.0, target.ends_at_s - for_s * (0.75 - number * 0.2) - clock_s()))
        victim = next(process for of, process in replicas(target.http_url) if of == part)
        from_s = clock_s()
        victim.send_signal(signal.SIGKILL)
        print(f"killed {part}, process {victim.pid}, after {from_s - target.ends_at_s + for_s:.0f} s", file=sys.stderr)
        outages.append(Outage(part, from_s, None))
        outages[-1] = Outage(part, from_s, await _whole_again(target, from_s + 2 * report.WHOLE_WITHIN_S))


async def _whole_again(target: Target, until_s: float) -> float | None:
    """When a new answer was complete."""
    while clock_s() < until_s:
        try:
            async with httpx.AsyncClient(base_url=target.http_url, timeout=10.0, trust_env=False) as client:
                request = {"text": "Are you there?", "stream": False}
                if (await client.post("/invocations", json=request)).status_code == 200:
                    return clock_s()
        except httpx.TransportError:
            pass
        await asyncio.sleep(_PROBE_EVERY_S)
    return None


async def _watch(target: Target, every_s: float, samples: list[Sample], others: Others) -> None:
    while not target.over:
        running = await asyncio.to_thread(parts, target.http_url)
        samples += sample(running, clock_s())
        others.look(*cpu_time(running), clock_s())
        await asyncio.sleep(every_s)


async def _left(url: str) -> dict[str, float]:
    """Sessions and segments that the service still counts after a while with nobody there; 0 is right."""
    until_s = clock_s() + _REST_WITHIN_S
    async with httpx.AsyncClient(base_url=url, timeout=10.0, trust_env=False) as client:
        while True:
            lines = (await client.get("/metrics")).text.splitlines()
            left = {
                name: sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(f"ray_{name}"))
                for name in _GAUGES
            }
            if not any(left.values()) or clock_s() > until_s:
                return left
            await asyncio.sleep(_PROBE_EVERY_S)


if __name__ == "__main__":
    main()
