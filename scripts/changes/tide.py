"""Sessions rise and fall, and engines with them."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from scripts.changes.service import Service, until
from scripts.loadtest.arrivals import tide
from scripts.loadtest.client import Manner, Server, clock_s
from scripts.loadtest.rounds import Load, run_round
from scripts.loadtest.stats import Answer, Outcome, summary
from scripts.promises import Promises
from scripts.running import Running

AUTOSCALING = {
    "min_replicas": 1,
    "max_replicas": 4,
    "target_ongoing_requests": 0.4,
    "upscale_delay_s": 1,
    "downscale_delay_s": 8,
    "metrics_interval_s": 1,
    "look_back_period_s": 4,
}
"""Of Kokoro. Quick, so that a tide of a minute is followed; a real one takes hours."""

ROUTE = "websocket-sentences"
HIGH_PER_S, LOW_PER_S = 1.5, 0.2
SENTENCES, ANSWERS = 4, 2
BACK_WITHIN_S = 90.0
PAUSE_S = 0.2
"""A silence that nobody notices between two sentences. An engine that starts takes the cores from those that speak."""

_LOOK_EVERY_S = 1.0
_ROW_S = 5.0
_PATIENCE_S = 60.0


@dataclass(frozen=True, slots=True)
class _Seen:
    at_s: float
    engines: int


async def check_tide(
    running: Running, config: Mapping[str, Any], promises: Promises, *, period_s: float, tides: int
) -> None:
    """Let sessions come in tides, and hold what they heard and how many engines there were against the promises."""
    service = Service(config)
    server = Server("service", running.http, Manner(tokens_per_s=40.0, patience_s=_PATIENCE_S))
    lasts_s = period_s * tides
    load = Load(SENTENCES, listening=True, seed=0, ends_at_s=clock_s() + lasts_s + _PATIENCE_S)
    began_s = clock_s()
    seen: list[_Seen] = []
    watching = asyncio.create_task(_watch(service, began_s, seen))
    try:
        sessions = tide(LOW_PER_S, HIGH_PER_S, period_s, lasts_s, ANSWERS, "0")
        answers = await run_round(server, ROUTE, 0, sessions, load)
        await until(lambda: service.counts()["Kokoro"] == AUTOSCALING["min_replicas"], BACK_WITHIN_S, "low water")
        seen.append(_Seen(clock_s() - began_s, service.counts()["Kokoro"]))
    finally:
        watching.cancel()
        await server.aclose()
    _tell(seen, answers)
    found = summary(answers)
    assert found.ttfa_s is not None
    most = max(one.engines for one in seen)
    promises.keep(
        "every answer complete", found.outcomes == {Outcome.COMPLETE: len(answers)}, str(dict(found.outcomes))
    )
    promises.keep("engines rise", most > AUTOSCALING["min_replicas"], f"to {most}")
    promises.keep("and fall", seen[-1].engines == AUTOSCALING["min_replicas"], f"to {seen[-1].engines}")
    longest_s = max(one.longest_gap_s for one in answers)
    gaps = f"the longest, {found.with_gaps} of {len(answers)} answers with one"
    promises.keep_within("no gap is longer than a pause between sentences", longest_s, PAUSE_S, gaps)
    print("time to first audio, p50, p95, p99: " + ", ".join(f"{one_s:.3f} s" for one_s in found.ttfa_s))


async def _watch(service: Service, began_s: float, seen: list[_Seen]) -> None:
    while True:
        engines = (await asyncio.to_thread(service.counts))["Kokoro"]
        seen.append(_Seen(clock_s() - began_s, engines))
        await asyncio.sleep(_LOOK_EVERY_S)


def _tell(seen: Sequence[_Seen], answers: Sequence[Answer]) -> None:
    print("| from s | answers being heard | engines | answers with a gap |\n| --: | --: | --: | --: |")
    for row in range(int(seen[-1].at_s / _ROW_S) + 1):
        from_s, to_s = row * _ROW_S, (row + 1) * _ROW_S
        heard = [one for one in answers if one.began_s < to_s and one.began_s + max(one.ended_s, one.audio_s) > from_s]
        engines = [one.engines for one in seen if from_s <= one.at_s < to_s]
        print(
            f"| {from_s:.0f} | {len(heard)} | {max(engines, default='?')} | "
            f"{sum(one.gaps > 0 for one in answers if from_s <= one.began_s < to_s)} |"
        )
