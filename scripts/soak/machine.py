"""The processes of a running service: what they hold, and what else the machine does."""

import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import PurePath

import psutil

from scripts.loadtest.idle import processes_behind
from scripts.running import DEPLOYMENTS
from scripts.soak.ledger import DRIFT_SHARE

_TITLE = re.compile(r"ray::(?:ServeReplica:[^:]+:)?(\w+?)(?:Replica)?(?:\b|$)")
SETTLED_AFTER_S = 30.0
"""Of a process's life: before that, libraries, codecs and the allocator's arenas are still being filled."""


@dataclass(frozen=True, slots=True)
class Sample:
    """What a process held at a moment.

    Attributes:
        part: one of DEPLOYMENTS, or what else runs for the service.
        memory_bytes: what would be free if it ended (USS).
        handles: open files and sockets.
    """

    part: str
    pid: int
    at_s: float
    memory_bytes: int
    handles: int


@dataclass(frozen=True, slots=True)
class Growth:
    """From the median of a process's first samples that count to the median of its last ones."""

    part: str
    pid: int
    watched_s: float
    memory_bytes: int
    grown_bytes: int
    grown_handles: int


def parts(url: str) -> list[tuple[str, psutil.Process]]:
    """All processes of a service on this machine, its own and Ray's, with what they are. Raises NotLocal."""
    found = []
    for process in processes_behind(url):
        with suppress(psutil.Error):
            if command := process.cmdline():
                found.append((part_of(command), process))
    return found


def replicas(url: str) -> list[tuple[str, psutil.Process]]:
    """Those of them that are replicas. Raises NotLocal."""
    return [(part, process) for part, process in parts(url) if part in DEPLOYMENTS]


def part_of(command: Sequence[str]) -> str:
    """What a process is, by its command line: Ray's actors have a title in its place."""
    if match := _TITLE.match(command[0]):
        return match[1]
    script = next((word for word in command if word.endswith(".py")), command[0].partition(" ")[0])
    return PurePath(script).name


def sample(of: Iterable[tuple[str, psutil.Process]], now_s: float) -> list[Sample]:
    """What each of them holds; those that have ended are left out."""
    samples = []
    for part, process in of:
        with suppress(psutil.Error):
            samples.append(Sample(part, process.pid, now_s, process.memory_full_info().uss, process.num_fds()))
    return samples


def cpu_time(of: Iterable[tuple[str, psutil.Process]]) -> tuple[dict[int, float], float]:
    """Seconds that these processes and this one have used, by process, and all that the machine's cores were busy."""
    used_s = {}
    for process in (psutil.Process(), *(process for _, process in of)):
        with suppress(psutil.Error):
            used = process.cpu_times()
            used_s[process.pid] = used.user + used.system
    of_all = psutil.cpu_times()
    return used_s, sum(of_all) - of_all.idle - getattr(of_all, "iowait", 0.0)


class Others:
    """How many cores are taken by what is neither the service nor this check; the machine may be shared."""

    def __init__(self) -> None:
        self._used_s: dict[int, float] = {}  # by process, of those that have ended too
        self._seen: list[tuple[float, float]] = []  # when, and CPU seconds of others up to then

    def look(self, used_s: Mapping[int, float], busy_s: float, now_s: float) -> None:
        """See `cpu_time`."""
        self._used_s |= used_s
        self._seen.append((now_s, busy_s - sum(self._used_s.values())))

    def cores(self) -> tuple[float, float]:
        """On average in the first and in the last part of the time, those that drift compares."""
        begun_s, ended_s = self._seen[0][0], self._seen[-1][0]
        part_s = (ended_s - begun_s) * DRIFT_SHARE
        first = [one for one in self._seen if one[0] <= begun_s + part_s]
        last = [one for one in self._seen if one[0] >= ended_s - part_s]
        return _slope(first), _slope(last)


def _slope(seen: Sequence[tuple[float, float]]) -> float:
    (from_s, used_from_s), (to_s, used_to_s) = seen[0], seen[-1]
    return (used_to_s - used_from_s) / (to_s - from_s) if to_s > from_s else 0.0


def growth(samples: Sequence[Sample]) -> list[Growth]:
    """How each process has grown since it was settled; those that were seen too seldom are left out."""
    grown = []
    for pid in dict.fromkeys(one.pid for one in samples):
        of_it = [one for one in samples if one.pid == pid]
        settled = [one for one in of_it if one.at_s >= of_it[0].at_s + SETTLED_AFTER_S]
        if len(settled) < 6:
            continue
        third = len(settled) // 3
        first, last = (
            [
                statistics.median_high(held)
                for held in zip(*((one.memory_bytes, one.handles) for one in of), strict=True)
            ]
            for of in (settled[:third], settled[-third:])
        )
        watched_s = settled[-1].at_s - settled[0].at_s
        grown.append(Growth(of_it[-1].part, pid, watched_s, last[0], last[0] - first[0], last[1] - first[1]))
    return grown
