"""What sessions cost a server while nobody speaks: its processes' CPU and memory with many of them and with none."""

import asyncio
import os
import resource
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from urllib.parse import urlsplit

import psutil
from websockets.asyncio.client import ClientConnection
from websockets.protocol import State

from scripts.loadtest.client import Failure, clock_s, open_socket

_SPARE_FILES = 100


class NotLocal(Exception):
    """The server's processes cannot be seen from here. The message says what to do."""


@dataclass(frozen=True, slots=True)
class Cost:
    """What a server's processes held and used.

    Attributes:
        memory_bytes: what would be free if they ended (USS).
        cpu: seconds of CPU in a second; 1 is one core.
    """

    memory_bytes: int
    cpu: float


@dataclass(frozen=True, slots=True)
class Idle:
    """The cost without sessions, and with `kept` of them open all the time.

    Attributes:
        reasons: why the others are not among them.
    """

    wanted: int
    kept: int
    reasons: Sequence[str]
    without: Cost
    with_them: Cost

    @property
    def bytes_per_session(self) -> float:
        """Memory that a session adds."""
        return (self.with_them.memory_bytes - self.without.memory_bytes) / max(1, self.kept)

    @property
    def added_cpu(self) -> float:
        """CPU that all of them add."""
        return self.with_them.cpu - self.without.cpu


def processes_behind(url: str) -> list[psutil.Process]:
    """The process that listens at the server's port, its ancestors up to one that is ours too, and all they started.

    Under Ray Serve the port belongs to one of many processes, all of which `serve run` has started.

    Raises:
        NotLocal: nobody listens here, or we may not see who.
    """
    parts = urlsplit(url)
    port = parts.port or {"https": 443, "wss": 443}.get(parts.scheme, 80)
    try:
        listening = [
            connection.pid
            for connection in psutil.net_connections("tcp")
            if connection.status == psutil.CONN_LISTEN and connection.laddr.port == port and connection.pid
        ]
        ours = {os.getpid(), *(parent.pid for parent in psutil.Process().parents())}
        roots = {_root(psutil.Process(pid), ours) for pid in listening}
        found = {process for root in roots for process in (root, *root.children(recursive=True))}
    except psutil.Error as exc:
        raise NotLocal("the server's processes may not be looked at; run this as the user who runs the server") from exc
    if not found:
        raise NotLocal(f"no process of this machine listens at port {port}; --idle wants a server that runs here")
    return sorted((process for process in found if process.pid not in ours), key=lambda process: process.pid)


def _root(process: psutil.Process, ours: set[int]) -> psutil.Process:
    while (parent := process.parent()) is not None and parent.pid not in ours and parent.pid != 1:
        process = parent
    return process


async def cost_of(processes: Sequence[psutil.Process], for_s: float) -> Cost:
    """CPU over the next `for_s` seconds, and memory at their end."""
    before_s, began_s = _cpu_s(processes), clock_s()
    await asyncio.sleep(for_s)
    cpu = (_cpu_s(processes) - before_s) / (clock_s() - began_s)
    memory_bytes = 0
    for process in processes:
        with suppress(psutil.Error):
            memory_bytes += process.memory_full_info().uss
    return Cost(memory_bytes, cpu)


def _cpu_s(processes: Iterable[psutil.Process]) -> float:
    used_s = 0.0
    for process in processes:
        with suppress(psutil.Error):
            times = process.cpu_times()
            used_s += times.user + times.system
    return used_s


async def measure_idle(url: str, sessions: int, for_s: float, patience_s: float) -> Idle:
    """Open so many sessions with a local server, say nothing, and close them. Raises NotLocal."""
    _allow_files(sessions + _SPARE_FILES)
    processes = processes_behind(url)
    await _open_and_close(url, patience_s)  # what the first session makes for all is no session's cost
    without = await cost_of(processes, for_s)
    opened = await asyncio.gather(*(_opened(url, patience_s) for _ in range(sessions)))
    sockets = [one for one in opened if isinstance(one, ClientConnection)]
    try:
        with_them = await cost_of(processes, for_s)
        alive = [socket for socket in sockets if socket.state is State.OPEN]
    finally:
        await asyncio.gather(*(socket.close() for socket in sockets))
    reasons = [one for one in opened if isinstance(one, str)] + ["closed by the server"] * (len(sockets) - len(alive))
    return Idle(sessions, len(alive), reasons, without, with_them)


async def _opened(url: str, patience_s: float) -> ClientConnection | str:
    try:
        return await open_socket(url, patience_s)
    except Failure as exc:
        return exc.reason


async def _open_and_close(url: str, patience_s: float) -> None:
    socket = await _opened(url, patience_s)
    if isinstance(socket, ClientConnection):
        await socket.close()


def _allow_files(wanted: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
