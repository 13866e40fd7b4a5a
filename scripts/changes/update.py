"""The service is changed while clients are there: its limits, all of it, into what does not start, its size."""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from scripts.changes.clients import CROSSED, GOING_AWAY, Account, Crowd, worst
from scripts.changes.service import Service, takes, until
from scripts.promises import Promises
from scripts.running import DEPLOYMENTS, Running
from serve_app.errors import EngineUnavailable

WITHIN_S = 300.0
"""For a change to be done: the real engine starts in a minute, more where it shares two cores with itself."""

AGAIN_WITHIN_S = 5.0
"""From the end of a session to the next one; there is always a replica that takes it."""

ALL = frozenset(DEPLOYMENTS)

OTHER_ARGUMENTS = {"limits": {"max_text_chars": 49_999}}


async def check_update(
    running: Running,
    config: Mapping[str, Any],
    promises: Promises,
    changes: Sequence[str],
    *,
    talkers: int,
    silent: int,
) -> None:
    """Make some of CHANGES, one after the other, to the service that `running` runs from `config`."""
    service = Service(config)
    async with Crowd(running, talkers=talkers, silent=silent) as crowd:
        await crowd.settled()
        crowd.turn()
        for what in changes:
            change, renewed = CHANGES[what]
            await _change(crowd, service, promises, what, lambda change=change: change(running, service), renewed)
    ledger = crowd.ledger
    promises.keep("messages without an end", not ledger.lost, str(ledger.lost))
    wrong = ledger.short + ledger.doubled.total()
    promises.keep("messages that came twice or not whole", not wrong, str(wrong))
    promises.keep("texts that sounded otherwise the second time", not ledger.altered, str(len(ledger.altered)))


async def _change(
    crowd: Crowd,
    service: Service,
    promises: Promises,
    what: str,
    change: Callable[[], Awaitable[str]],
    renewed: frozenset[str],
) -> None:
    """Make one change and hold what the clients saw of it against what they are promised."""
    before = await asyncio.to_thread(service.replicas, "RUNNING")
    fewest = _Fewest(service)
    watching = asyncio.create_task(fewest.watch())
    began_s = time.monotonic()
    seen = await change()
    took_s = time.monotonic() - began_s
    await crowd.settled()
    watching.cancel()
    after = await asyncio.to_thread(service.replicas, "RUNNING")
    account = crowd.turn()
    _tell(what, took_s, seen, account)
    kept = {name for name in ALL if before[name] <= after[name]}
    gone = {name for name in ALL if not before[name] & after[name]}
    promises.keep(
        f"{what}: replicas renewed", gone == renewed and kept == ALL - renewed, ", ".join(sorted(gone)) or "-"
    )
    promises.keep(f"{what}: always one of each", min(fewest.running.values()) >= 1, str(dict(fewest.running)))
    allowed = {"complete", CROSSED, EngineUnavailable.code} if "Gateway" in renewed else {"complete"}
    promises.keep(
        f"{what}: every message complete or told", set(account.messages) <= allowed, str(dict(account.messages))
    )
    closes = set(account.closes["talking"] + account.closes["silent"])
    promises.keep(f"{what}: sessions end with 1001", closes == ({GOING_AWAY} if renewed else set()), str(closes or "-"))
    promises.keep_within(f"{what}: another session at once", max(account.again_s, default=0.0), AGAIN_WITHIN_S)
    promises.keep(f"{what}: requests answered", set(account.requests) == {"200"}, str(dict(account.requests)))


def _tell(what: str, took_s: float, seen: str, account: Account) -> None:
    print(
        f"{what}: {seen}, {took_s:.1f} s; messages {dict(account.messages)}, sessions ended: "
        f"{dict(account.closes['talking'])} in talk, {dict(account.closes['silent'])} in silence, "
        f"next one after at most {worst(account.again_s)}; requests {dict(account.requests)}; "
        f"messages with a gap {len(account.gaps_s)}, longest {worst(account.gaps_s)}",
        flush=True,
    )


async def _other_limits(running: Running, service: Service) -> str:
    """Fewer sessions than are open; the next one is refused, those there are not."""
    await asyncio.to_thread(service.deploy, Gateway={"user_config": {"max_sessions": 1}})
    took_s = await until(lambda: not takes(running, 1), WITHIN_S, "the new limit")
    await asyncio.to_thread(service.deploy)
    await until(lambda: takes(running, 1), WITHIN_S, "the old limit")
    return f"in force after {took_s:.1f} s, and taken back"


async def _other_arguments(_running: Running, service: Service) -> str:
    """Anything under `args`: Serve takes it for another application and replaces every replica."""
    before = await asyncio.to_thread(service.replicas)
    await asyncio.to_thread(service.deploy, args=OTHER_ARGUMENTS)

    def replaced() -> bool:
        now = service.replicas()
        return service.status == "RUNNING" and not any(now[name] & before[name] for name in ALL)

    await until(replaced, WITHIN_S, "replicas with other arguments")
    return "every replica replaced"


async def _mistake(_running: Running, service: Service) -> str:
    """A setting that does not exist, and the way back."""
    config = service.config
    await asyncio.to_thread(service.deploy, args={"limits": {"max_session": 1}})
    await until(lambda: service.status == "DEPLOY_FAILED", WITHIN_S, "the refusal of a misspelt setting")
    service.config = config
    await asyncio.to_thread(service.deploy)
    await until(lambda: service.status == "RUNNING", WITHIN_S, "the way back")
    return "refused, and taken back"


async def _other_size(_running: Running, service: Service) -> str:
    """Two engines, and one again."""
    await asyncio.to_thread(service.deploy, Kokoro={"num_replicas": 2})
    await until(lambda: service.counts()["Kokoro"] == 2, WITHIN_S, "a second engine")
    await asyncio.to_thread(service.deploy)
    await until(lambda: len(service.replicas()["Kokoro"]) == 1, WITHIN_S, "one engine again")
    return "two engines, and one again"


CHANGES: dict[str, tuple[Callable[[Running, Service], Awaitable[str]], frozenset[str]]] = {
    "limits": (_other_limits, frozenset()),
    "arguments": (_other_arguments, ALL),
    "mistake": (_mistake, frozenset()),
    "size": (_other_size, frozenset()),
}
"""By name: what is done, and which deployments get other replicas by it."""


class _Fewest:
    """The fewest running replicas of each deployment that were seen."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self.running: Counter[str] = Counter(dict.fromkeys(ALL, 99))

    async def watch(self) -> None:
        while True:
            counts = await asyncio.to_thread(self._service.counts)
            if counts:
                self.running = Counter({name: min(self.running[name], counts[name]) for name in ALL})
            await asyncio.sleep(0.5)
