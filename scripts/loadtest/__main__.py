"""Load on speech servers, told as their listeners hear it: `uv run python -m scripts.loadtest --help`.

How to read what it prints is in docs/load-test.md.
"""

import argparse
import asyncio
import re
import sys
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path

from scripts.arguments import count, positive
from scripts.capacity.ladder import LadderError, q_max
from scripts.loadtest import report
from scripts.loadtest.arrivals import Session, closed_loop, open_loop
from scripts.loadtest.client import ROUTES, Manner, Server, clock_s
from scripts.loadtest.idle import NotLocal, measure_idle
from scripts.loadtest.ladder import climb
from scripts.loadtest.rounds import Load, alternate, run_round
from scripts.loadtest.stats import Answer, Outcome, Summary, summary

DEFAULT_URL = "http://127.0.0.1:8000"
DEFAULT_SESSIONS = 8
LEAST_ANSWERS = 20
"""Of a ladder's rung, and of an open round: with fewer, the 95th percentile is the worst of them."""

_UNCOUNTED = -1
"""The number of a round that does not count."""


def arguments(given: Sequence[str]) -> argparse.Namespace:
    """The command line. Exits with a sentence for a person when it makes no sense."""
    parser = argparse.ArgumentParser(prog="python -m scripts.loadtest", description=__doc__.partition("\n")[0])
    servers = parser.add_argument_group("servers")
    servers.add_argument(
        "--server",
        default=("server", DEFAULT_URL),
        type=_server,
        metavar="[NAME=]URL",
        help=f"(default: {DEFAULT_URL})",
    )
    servers.add_argument(
        "--against",
        default=[],
        action="append",
        type=_named,
        metavar="NAME=URL",
        help="another server, which takes turns with the first; may be given again",
    )
    servers.add_argument(
        "--route",
        action="append",
        choices=ROUTES,
        help=f"how to ask; may be given again (default: {ROUTES[0]})",
    )
    kind = parser.add_argument_group("what kind of load").add_mutually_exclusive_group()
    kind.add_argument("--sessions", type=count, metavar="N", help=f"so many at once (default: {DEFAULT_SESSIONS})")
    kind.add_argument("--rate", type=positive, metavar="PER_S", help="Poisson arrivals, whatever is still in work")
    kind.add_argument(
        "--ladder", type=Path, metavar="FILE", help="find the most sessions within --promise-s; writes a Parquet file"
    )
    kind.add_argument("--idle", type=count, metavar="N", help="what so many silent sessions cost a local server")
    load = parser.add_argument_group("how much of it")
    load.add_argument(
        "--answers",
        type=count,
        metavar="N",
        help=f"a round or rung (default: one a session; at least {LEAST_ANSWERS} with --rate and --ladder)",
    )
    load.add_argument("--rounds", type=count, default=3, help="(default: %(default)s)")
    load.add_argument("--sentences", type=count, default=4, help="of an answer (default: %(default)s)")
    load.add_argument(
        "--tokens-per-s", type=positive, default=40.0, help="how fast they are written (default: %(default)s)"
    )
    load.add_argument(
        "--listen", action="store_true", help="a session asks again when it has heard the last answer, not when it came"
    )
    load.add_argument("--promise-s", type=positive, default=0.3, help="of --ladder, p95 (default: %(default)s)")
    load.add_argument("--most", type=count, default=64, help="sessions that --ladder tries (default: %(default)s)")
    load.add_argument(
        "--warm-up", type=int, default=2, metavar="N", help="answers that don't count (default: %(default)s)"
    )
    load.add_argument("--seed", type=int, default=0, help="of texts and arrivals (default: %(default)s)")
    load.add_argument(
        "--patience-s", type=positive, default=120.0, help="of a client to whom nothing comes (default: %(default)s)"
    )
    load.add_argument("--limit-s", type=positive, default=1800.0, help="of the whole run (default: %(default)s)")
    load.add_argument(
        "--idle-for-s", type=positive, default=20.0, help="how long --idle watches, twice (default: %(default)s)"
    )
    results = parser.add_argument_group("results")
    results.add_argument("--parquet", type=Path, metavar="FILE", help="a row an answer")
    results.add_argument("--plot", type=Path, metavar="FILE", help="a PNG")
    options = parser.parse_args(given)
    names = [options.server[0], *(name for name, _ in options.against)]
    if len(set(names)) < len(names):
        parser.error("every server must have a name of its own")
    if (options.ladder or options.idle) and (options.against or len(options.route or ()) > 1):
        parser.error("--ladder and --idle take one server and one route")
    return options


async def run(options: argparse.Namespace, told: str) -> int:
    """Do what the command line says; the exit status: 1 if the first server failed an answer or broke the promise."""
    manner = Manner(options.tokens_per_s, options.patience_s)
    async with AsyncExitStack() as stack:
        servers = [Server(name, url, manner) for name, url in (options.server, *options.against)]
        for server in servers:
            stack.push_async_callback(server.aclose)
        if options.idle:
            return await _idle(options, servers[0])
        load = Load(options.sentences, options.listen, options.seed, clock_s() + options.limit_s)
        routes = options.route or ROUTES[:1]
        await _warm_up(servers, routes, options.warm_up, load)
        if options.ladder:
            return await _ladder(options, servers[0], routes[0], load, told)
        return await _rounds(options, servers, routes, load, told)


async def _warm_up(servers: Sequence[Server], routes: Sequence[str], answers: int, load: Load) -> None:
    """Answers at once over each route, which count for nothing; what went wrong with them is told all the same."""
    for route in routes if answers else ():
        for server in servers:
            for one in await run_round(server, route, _UNCOUNTED, closed_loop(answers, answers), load):
                if one.outcome is not Outcome.COMPLETE:
                    report.tell(f"warm-up of {server.name}, {route}: {one.outcome}: {one.reason}")


async def _rounds(
    options: argparse.Namespace, servers: Sequence[Server], routes: Sequence[str], load: Load, told: str
) -> int:
    answers: list[Answer] = []
    async for of_turn in alternate(servers, routes, options.rounds, _sessions_of(options), load):
        answers += of_turn
        if of_turn:
            whole = sum(one.outcome is Outcome.COMPLETE for one in of_turn)
            turn = of_turn[0]
            report.tell(f"round {turn.round}, {turn.server}, {turn.route}: {whole} of {len(of_turn)} complete")
    if clock_s() >= load.ends_at_s:
        report.tell(f"stopped after --limit-s {options.limit_s:g}: some answers were given up, or never asked for")
    print(report.tables(answers, servers[0].name))
    if options.parquet:
        report.write_answers(answers, options.parquet, told)
    if options.plot:
        report.plot_answers(answers, options.plot)
    ours = [one for one in answers if one.server == servers[0].name]
    return int(not ours or any(one.outcome is not Outcome.COMPLETE for one in ours))


def _sessions_of(options: argparse.Namespace) -> Callable[[int], Sequence[Session]]:
    """The sessions of each round."""
    if options.rate:
        answers = options.answers or LEAST_ANSWERS
        return lambda number: open_loop(options.rate, answers, f"{options.seed}/{number}")
    sessions = options.sessions or DEFAULT_SESSIONS
    return lambda number: closed_loop(sessions, options.answers or sessions)


async def _ladder(options: argparse.Namespace, server: Server, route: str, load: Load, told: str) -> int:
    answers: list[Answer] = []

    async def measure(concurrency: int) -> Summary | None:
        asked = max(concurrency, options.answers or LEAST_ANSWERS)
        of_rung = await run_round(server, route, concurrency, closed_loop(concurrency, asked), load)
        answers.extend(of_rung)
        return summary(of_rung) if clock_s() < load.ends_at_s else None

    climbed = await climb(
        measure, options.promise_s, options.most, lambda one: report.tell(f"{one.rung}, {one.summary.answers} answers")
    )
    if clock_s() >= load.ends_at_s:
        report.tell(f"stopped after --limit-s {options.limit_s:g}: the rung in work does not count")
    if not climbed:
        return 1
    print(report.ladder_table(climbed))
    report.write_ladder(climbed, options.ladder, told)
    if options.parquet:
        report.write_answers(answers, options.parquet, told)
    if options.plot:
        report.plot_ladder(climbed, options.promise_s, options.plot)
    try:
        carries = q_max([one.rung for one in climbed], options.promise_s)
    except LadderError as exc:
        print(f"\nq_max: none; {exc}")
        return 1
    more = ", the most that was tried (--most)" if carries == options.most else ""
    print(f"\nq_max: {carries} sessions within {options.promise_s:g} s and without a gap{more}")
    return 0


async def _idle(options: argparse.Namespace, server: Server) -> int:
    found = await measure_idle(server.socket_url, options.idle, options.idle_for_s, options.patience_s)
    print(report.idle_table(found))
    return int(found.kept < found.wanted)


def _server(text: str) -> tuple[str, str]:
    return _named(text) if re.match(r"[\w .-]+=", text) else ("server", _url(text))


def _named(text: str) -> tuple[str, str]:
    name, _, url = text.partition("=")
    if not re.fullmatch(r"[\w .-]+", name):
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=URL")
    return name, _url(url)


def _url(text: str) -> str:
    if not re.match(r"(http|ws)s?://[^/]", text):
        raise argparse.ArgumentTypeError(f"{text!r} is not http://HOST:PORT")
    return text


def main(given: Sequence[str] | None = None) -> int:
    """The command."""
    given = sys.argv[1:] if given is None else given
    options = arguments(given)
    told = report.heading(given)
    print(told + "\n", flush=True)
    try:
        return asyncio.run(run(options, told))
    except NotLocal as exc:
        print(exc, file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
