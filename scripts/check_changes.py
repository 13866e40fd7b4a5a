"""Change the service under load, load it in tides, overload it: `uv run python scripts/check_changes.py --help`.

Each subcommand starts a stack of its own, prints what its clients saw, and exits 1 when a promise is broken. See
docs/changes.md.
"""

import argparse
import asyncio
import sys

from scripts.changes.overload import MAX_WAIT_S, ROOM, check_overload
from scripts.changes.tide import AUTOSCALING, check_tide
from scripts.changes.update import CHANGES, check_update
from scripts.promises import CameNot, Promises
from scripts.running import REAL_APP, TIMED_APP, local_config, serve_running


def main() -> int:
    parser = argparse.ArgumentParser(prog="python scripts/check_changes.py", description=__doc__.partition("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    update = commands.add_parser("update", help="`serve deploy` of changed configurations, with sessions open")
    update.add_argument("--timed", action="store_true", help="an engine that only takes its time")
    update.add_argument("--change", action="append", choices=CHANGES, help="may be given again (default: all)")
    update.add_argument("--talkers", type=int, default=2, help="(default: %(default)s)")
    update.add_argument("--silent", type=int, default=8, help="(default: %(default)s)")
    tide = commands.add_parser("tide", help="sessions that rise and fall, and timed engines with them")
    tide.add_argument("--period-s", type=float, default=90.0, help="of one tide (default: %(default)s)")
    tide.add_argument("--tides", type=int, default=2, help="(default: %(default)s)")
    overload = commands.add_parser("overload", help="more clients than there is room for, with the real model")
    overload.add_argument("--answers", type=int, default=4, help="of each session in a round (default: %(default)s)")
    options = parser.parse_args()
    promises = Promises()
    try:
        {"update": _update, "tide": _tide, "overload": _overload}[options.command](options, promises)
    except CameNot as exc:
        print(f"BROKEN  {exc}")
        return 1
    print(f"{promises.broken} promises broken" if promises.broken else "every promise kept")
    return 1 if promises.broken else 0


def _update(options: argparse.Namespace, promises: Promises) -> None:
    config = local_config(import_path=TIMED_APP if options.timed else REAL_APP)
    changes = options.change or list(CHANGES)
    with serve_running(config) as running:
        asyncio.run(check_update(running, config, promises, changes, talkers=options.talkers, silent=options.silent))


def _tide(options: argparse.Namespace, promises: Promises) -> None:
    config = local_config(import_path=TIMED_APP, args={"kokoro": {"num_cpus": 0.1, "autoscaling": AUTOSCALING}})
    with serve_running(config) as running:
        asyncio.run(check_tide(running, config, promises, period_s=options.period_s, tides=options.tides))


def _overload(options: argparse.Namespace, promises: Promises) -> None:
    config = local_config()
    config["applications"][0]["args"] |= {"limits": ROOM, "engine": {"max_wait_s": MAX_WAIT_S}}
    with serve_running(config) as running:
        asyncio.run(check_overload(running, promises, rounds=2, answers=options.answers, sentences=4, burst=40))


if __name__ == "__main__":
    sys.exit(main())
