"""More clients than the service has room for: the surplus is refused at once, the others do not notice it."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import httpx

from scripts.changes.tide import PAUSE_S
from scripts.loadtest.arrivals import closed_loop
from scripts.loadtest.client import Failure, Manner, Server, clock_s, open_socket
from scripts.loadtest.rounds import Load, run_round
from scripts.loadtest.stats import Answer, Outcome, Summary, summary
from scripts.promises import Promises
from scripts.running import Running

ROOM = {"max_sessions": 2}
"""Who listens in real time; two cores carry so many without a gap, whatever else they do."""

MAX_WAIT_S = 3.0
"""engine.max_wait_s: how long a burst may queue."""

REFUSED_WITHIN_S = 1.0
SLOWER_BY = 1.5
"""The median time to first audio beside a surplus may be so much longer than without: two cores serve both."""

_SURPLUS_PER_S = 10.0
_ROUTE = "websocket-sentences"
_PATIENCE_S = 120.0
_TEXT = "There are twelve of them left, in two colours."
_LET_IN = "status 200"
_LET_OUT_S, _LET_IN_S = 1.0, 2.0
"""For those of the round before to be gone, and for those with a place to take it, at the beginning of a round."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """What became of one of the surplus: a status, how long it took, what it was told."""

    status: str
    took_s: float
    retry_after_s: float | None


async def check_overload(
    running: Running, promises: Promises, *, rounds: int, answers: int, sentences: int, burst: int
) -> None:
    """Speak with as many as there is room for, with and without a surplus in turn, then in a burst.

    Args:
        running: has room for ROOM, and engine.max_wait_s is far below what a burst takes to be spoken.
        rounds: with a surplus, and as many without.
        answers: of each session in a round.
        sentences: of each answer.
        burst: requests at once.
    """
    load = Load(sentences, listening=True, seed=0, ends_at_s=clock_s() + 1800.0)
    server = Server("service", running.http, Manner(tokens_per_s=40.0, patience_s=_PATIENCE_S))
    alone: list[Answer] = []
    beside: list[Answer] = []
    refusals: list[Refusal] = []
    try:
        for number in range(rounds):
            alone += await _round(server, number, answers, load)
            surplus = asyncio.create_task(_surplus(running, refusals))
            beside += await _round(server, number, answers, load)
            surplus.cancel()
            await asyncio.gather(surplus, return_exceptions=True)
        after = await _round(server, rounds, answers, load)
    finally:
        await server.aclose()
    tables = {"alone": summary(alone), "beside a surplus": summary(beside), "after it": summary(after)}
    _tell(tables)
    _judge(promises, "surplus", refusals)
    for what, found in tables.items():
        promises.keep(f"{what}: all answers complete", found.errors == 0, str(dict(found.outcomes)))
    median_s = _median_s(tables["alone"])
    for what in ("beside a surplus", "after it"):
        seen = f"the median, {median_s:.2f} s alone"
        promises.keep_within(f"{what}: first audio no later", _median_s(tables[what]), SLOWER_BY * median_s, seen)
    longest_s = max(one.longest_gap_s for one in beside)
    gaps = f"the longest, {tables['beside a surplus'].with_gaps} of {len(beside)} answers with one"
    promises.keep_within("beside a surplus: no gap is longer than a pause between sentences", longest_s, PAUSE_S, gaps)
    await _burst(running, promises, burst)


async def _round(server: Server, number: int, answers: int, load: Load) -> list[Answer]:
    await asyncio.sleep(_LET_OUT_S)
    sessions = ROOM["max_sessions"]
    return await run_round(server, _ROUTE, number, closed_loop(sessions, sessions * answers), load)


async def _surplus(running: Running, refusals: list[Refusal]) -> None:
    """Sessions that there is no room for, as from a crowd of clients who do not wait; until cancelled."""
    await asyncio.sleep(_LET_OUT_S + _LET_IN_S)
    async with asyncio.TaskGroup() as tasks:
        while True:
            tasks.create_task(_try_session(running, refusals))
            await asyncio.sleep(1 / _SURPLUS_PER_S)


async def _try_session(running: Running, refusals: list[Refusal]) -> None:
    began_s = clock_s()
    try:
        socket = await open_socket(running.websocket, _PATIENCE_S)
    except Failure as exc:
        refusals.append(Refusal(exc.reason, clock_s() - began_s, exc.retry_after_s))
    else:  # the round is nearly over
        await socket.close()


async def _try_request(client: httpx.AsyncClient, refusals: list[Refusal]) -> Refusal:
    began_s = clock_s()
    answer = await client.post("/invocations", json={"text": _TEXT, "format": "pcm"})
    told = answer.headers.get("retry-after", "")
    refusals.append(
        Refusal(f"status {answer.status_code}", clock_s() - began_s, float(told) if told.isdecimal() else None)
    )
    return refusals[-1]


async def _burst(running: Running, promises: Promises, requests: int) -> None:
    """More at once than the engine begins with in time; who then waits as long as it was told is let in."""
    seen: list[Refusal] = []
    async with _client(running) as client:
        await asyncio.gather(*(_try_request(client, seen) for _ in range(requests)))
        refused = [one for one in seen if one.status != _LET_IN]
        _judge(promises, "burst", refused)
        longest_s = max((one.retry_after_s or 0.0 for one in refused), default=0.0)
        last_s = max((one.took_s for one in refused), default=0.0)
        # The clock of those who were refused began then; the others were answered meanwhile.
        await asyncio.sleep(max(0.0, longest_s - (max(one.took_s for one in seen) - last_s)))
        again = await _try_request(client, [])
    promises.keep("burst: Retry-After is true", again.status == _LET_IN, f"{again.status} after {longest_s:g} s")
    print(f"burst of {requests}: {requests - len(refused)} were let in and answered, {len(refused)} refused")


def _judge(promises: Promises, what: str, refusals: Sequence[Refusal]) -> None:
    wrong = {one.status for one in refusals} - {"status 503"}
    promises.keep(
        f"{what}: refused with 503", refusals and not wrong, f"{len(refusals)} times" if not wrong else str(wrong)
    )
    slowest_s = max((one.took_s for one in refusals), default=0.0)
    promises.keep_within(f"{what}: at once", slowest_s, REFUSED_WITHIN_S, "the slowest")
    untold = sum(one.retry_after_s is None for one in refusals)
    promises.keep(f"{what}: with a Retry-After", not untold, f"{untold} without")


def _tell(tables: Mapping[str, Summary]) -> None:
    print(
        "| | answers | complete | TTFA p50 s | p95 s | with gaps | worst silence s |\n"
        "| --- | --: | --: | --: | --: | --: | --: |"
    )
    for what, found in tables.items():
        assert found.ttfa_s is not None
        complete = found.outcomes[Outcome.COMPLETE]
        print(
            f"| {what} | {found.answers} | {complete} | {found.ttfa_s[0]:.2f} | {found.ttfa_s[1]:.2f} | "
            f"{found.with_gaps} | {found.worst_silent_s:.2f} |"
        )


def _median_s(found: Summary) -> float:
    assert found.ttfa_s is not None
    return found.ttfa_s[0]


def _client(running: Running) -> httpx.AsyncClient:
    limits = httpx.Limits(max_connections=None)
    return httpx.AsyncClient(base_url=running.http, timeout=_PATIENCE_S, trust_env=False, limits=limits)
