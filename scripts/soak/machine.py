"""The processes of a running service: what they hold, and taking one of them away."""

import re
import statistics
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import PurePath

import psutil

from scripts.loadtest.idle import processes_behind
from scripts.running import DEPLOYMENTS

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
        grown.append(Growth(of_it[0].part, pid, watched_s, last[0], last[0] - first[0], last[1] - first[1]))
    return grown
