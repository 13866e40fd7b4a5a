"""Machines that are namespaces of this one: each with its own network, processes and Ray, and to be lost at will.

What happens when a machine is lost can only be seen with machines of their own: on one address all nodes share Ray
Serve's proxy port, and HAProxy outlives its node. Needs root on Linux, and iproute2 and util-linux. Nothing outlives
the processes: neither an interface nor a namespace of the network has a name outside.
"""

import itertools
import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

NETWORK = "198.18.0"
"""The first three numbers of every address: of a range for benchmarks (RFC 2544), in a network of its own anyhow."""

BRIDGE = "switch"

# Process 1 of the machine: it ends, and the machine with it, when whoever holds its input has gone.
BOOT = f"""
mount -t tmpfs tmpfs /tmp/ray
ip link set lo up
ip link set wire name eth0
ip address add "$0/24" dev eth0
ip link set eth0 up
ip route add default via {NETWORK}.254
"$@" >&2
read switched_off
"""


CANNOT_ISOLATE = 3
"""Exit status of a check that needs machines where there can be none."""


class CannotIsolate(Exception):
    """This process may not make namespaces. The message says what it takes."""


class Machine:
    """A machine with an address in the network, which runs one command first; what commands say is in `output`."""

    def __init__(self, address: str, command: Sequence[str], environment: Mapping[str, str], output: Path) -> None:
        self.address, self.output = address, output
        self._environment = dict(environment)
        self._wire = f"wire{address.rpartition('.')[2]}"
        # The network is of a process of its own, so that it outlives the others as a real machine's kernel does.
        self._network = self._popen("unshare", "--net", "sh", "-c", "echo there; read gone")
        if _line(self._network) != "there":
            raise CannotIsolate(f"no namespaces on this machine: {output.read_text().strip()}")
        _ip(f"link add {self._wire} type veth peer name wire netns {self._network.pid}")
        _ip(f"link set {self._wire} master {BRIDGE} up")
        self._boot = self._popen(
            *("nsenter", f"--net=/proc/{self._network.pid}/ns/net", "unshare", "--mount", "--pid", "--fork"),
            *("--kill-child", "--mount-proc", "sh", "-ec", BOOT, address, *command),
        )

    def run(self, *command: str) -> None:
        """Run a command there, and wait for its end. Raises CalledProcessError."""
        boot = self._boot.pid
        [first] = Path(f"/proc/{boot}/task/{boot}/children").read_text().split()
        inside = ["nsenter", f"--target={first}", "--net", "--mount", "--pid", "--", *command]
        with self.output.open("ab") as output:
            subprocess.run(inside, env=self._environment, stdout=output, stderr=output, check=True)

    def kill(self) -> None:
        """End every process of it at once. The network tells those who were connected, and refuses who asks anew."""
        self._boot.kill()
        self._boot.wait()

    def cut_off(self) -> None:
        """Pull the plug of its network: it goes on, and nobody hears of it, not even that it is gone."""
        _ip(f"link set {self._wire} down")

    def remove(self) -> None:
        """End what is left of it."""
        self.kill()
        self._network.kill()
        self._network.wait()

    def _popen(self, *command: str) -> "subprocess.Popen[str]":
        with self.output.open("ab") as output:
            return subprocess.Popen(
                command,
                env=self._environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                text=True,
            )


@contextmanager
def network() -> Iterator[None]:
    """Move this process into a network of its own, with a switch that machines are plugged into.

    For good: a process has no way back. To be entered before there are other threads.
    """
    if os.geteuid() != 0:
        raise CannotIsolate("namespaces take root; run it as root, in a container with CAP_SYS_ADMIN")
    try:
        os.unshare(os.CLONE_NEWNET)
    except PermissionError as exc:
        raise CannotIsolate("no namespaces in this container; give it CAP_SYS_ADMIN") from exc
    Path("/tmp/ray").mkdir(exist_ok=True)
    _ip("link set lo up")
    _ip(f"link add {BRIDGE} type bridge")
    _ip(f"address add {NETWORK}.254/24 dev {BRIDGE}")
    _ip(f"link set {BRIDGE} up")
    yield


def addresses() -> Iterator[str]:
    """Addresses for machines, each once: a new machine is not an old one."""
    return (f"{NETWORK}.{number}" for number in itertools.count(1))


def _line(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def _ip(arguments: str) -> None:
    subprocess.run(["ip", *arguments.split()], check=True)
