"""The product on machines that are namespaces: started by hand as docs/cluster.md says, and looked at from outside."""

import os
import re
import secrets
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self

import httpx
import yaml

from scripts.cluster.machines import Machine, addresses
from scripts.promises import CameNot
from scripts.running import DEPLOYMENTS, ROOT

CLUSTER_CONFIG = ROOT / "configs" / "cluster.yaml"
RAY = str(Path(sys.executable).with_name("ray"))
PORT = 8000
METRICS_PORT = 8090
DASHBOARD_PORT = 8265
LOOK_EVERY_S = 0.25


def config(import_path: str, machines: int) -> dict[str, Any]:
    """configs/cluster.yaml for so many machines without a GPU: one replica of each deployment on each of them."""
    loaded: dict[str, Any] = yaml.safe_load(CLUSTER_CONFIG.read_text())
    [application] = loaded["applications"]
    application["import_path"] = import_path
    application["args"]["engine"]["threads"] = 1
    for deployment in ("gateway", "chunker", "kokoro"):
        options = application["args"][deployment]
        options.pop("autoscaling", None)
        options |= {"num_replicas": machines, "max_replicas_per_node": 1, "num_cpus": 0.25, "num_gpus": 0}
    return loaded


class Cluster:
    """Ray on a head and other machines. The head works, too."""

    def __init__(self, logs: Path) -> None:
        self._logs, self._addresses = logs, addresses()
        token = secrets.token_hex(32)
        self._environment = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "RAY_AUTH_TOKEN": token,
            "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "1",  # else a machine is alone, on loopback (docs/security.md)
            "RAY_metrics_report_interval_ms": "500",  # of what this script reads
        }
        self._client = httpx.Client(headers={"Authorization": f"Bearer {token}"}, timeout=5.0, trust_env=False)
        self.head = self._start("--head", "--dashboard-host=0.0.0.0", f"--dashboard-port={DASHBOARD_PORT}")
        self.machines = [self.head]
        self._lost: list[Machine] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for machine in (*self._lost, *self.machines[::-1]):
            machine.remove()
        self._client.close()

    def add_machine(self) -> Machine:
        """Start one more."""
        self.machines.append(self._start(f"--address={self.head.address}:6379"))
        return self.machines[-1]

    def kill(self, machine: Machine) -> None:
        """End all its processes."""
        machine.kill()
        self._lose(machine)

    def cut_off(self, machine: Machine) -> None:
        """Take its network away."""
        machine.cut_off()
        self._lose(machine)

    def drain(self, machine: Machine, within_s: int) -> None:
        """Tell Ray that the machine is to end; what configs/kuberay.yaml does before a pod ends."""
        why = ["--reason=DRAIN_NODE_REASON_PREEMPTION", "--reason-message=it is to end"]
        machine.run(RAY, "drain-node", *why, f"--deadline-remaining-seconds={within_s}")

    def deploy(self, serve_config: Mapping[str, Any], within_s: float = 90.0) -> None:
        """What `serve deploy` does, once the dashboard answers."""

        def put() -> bool:
            # The first one starts Serve.
            url = f"{self._dashboard}/api/serve/applications/"
            return self._client.put(url, json=serve_config, timeout=within_s).is_success

        until(put, within_s, "the dashboard to take the application")

    def replicas(self) -> Counter[tuple[str, str, str]]:
        """How many replicas there are, by address of the machine, deployment and state."""
        answer = self._client.get(f"{self._dashboard}/api/serve/applications/").raise_for_status().json()
        return Counter(
            (replica.get("node_ip", ""), name, replica["state"])  # one that starts has no place yet
            for application in answer["applications"].values()
            for name, deployment in application["deployments"].items()
            for replica in deployment["replicas"]
        )

    def replicas_at(self, address: str) -> int:
        """How many replicas Serve still has there, those that are being stopped included."""
        return sum(count for (at, _, _), count in self.replicas().items() if at == address)

    def wait_until_whole(self, within_s: float) -> None:
        """Wait until each machine has its replicas and answers /ping with 200."""

        def whole() -> bool:
            here = {machine.address for machine in self.machines}
            wanted = {(address, name, "RUNNING") for address in here for name in DEPLOYMENTS}
            return set(self.replicas()) >= wanted and all(
                self._client.get(f"http://{address}:{PORT}/ping").status_code == 200 for address in here
            )

        until(whole, within_s, f"{len(self.machines)} machines to be ready")

    def metric(self, name: str, **labels: str) -> Counter[str]:
        """Sums of a metric by machine, of the series that have these labels."""
        sums: Counter[str] = Counter()
        for machine in self.machines:
            text = self._client.get(f"http://{machine.address}:{METRICS_PORT}/metrics").text
            for tags, value in re.findall(rf"^ray_{name}{{(.*)}} (.+)$", text, re.MULTILINE):
                if all(f'{label}="{wanted}"' in tags for label, wanted in labels.items()):
                    sums[machine.address] += round(float(value))
        return sums

    def _lose(self, machine: Machine) -> None:
        self.machines.remove(machine)
        self._lost.append(machine)

    @property
    def _dashboard(self) -> str:
        return f"http://{self.head.address}:{DASHBOARD_PORT}"

    def _start(self, *role: str) -> Machine:
        address = next(self._addresses)
        command = [RAY, "start", *role, f"--node-ip-address={address}", f"--metrics-export-port={METRICS_PORT}"]
        command += ["--num-cpus=2", "--disable-usage-stats", "--include-log-monitor=false"]
        return Machine(address, command, self._environment, self._logs / f"{address}.log")


def until(condition: Callable[[], bool], within_s: float, what: str) -> None:
    """Look again and again. Raises CameNot."""
    deadline_s = time.monotonic() + within_s
    while time.monotonic() < deadline_s:
        try:
            if condition():
                return
        except httpx.HTTPError:
            pass  # not there yet
        time.sleep(LOOK_EVERY_S)
    raise CameNot(f"waited {within_s:.0f} s for {what}")
