"""Start the real stack as a user does, `serve run CONFIG`, wait until it says that it is ready, and stop it again.

For the benchmarks and for the tests that need a running server.
"""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parent.parent
LOCAL_CONFIG = ROOT / "configs" / "local.yaml"
READY = "is ready at"

SERVE_MODES: dict[str, dict[str, str]] = {
    name: {"RAY_SERVE_THROUGHPUT_OPTIMIZED": throughput, "RAY_SERVE_ENABLE_HA_PROXY": ha_proxy}
    for name, throughput, ha_proxy in (
        ("as it comes", "0", "0"),
        ("throughput", "1", "0"),
        ("ha proxy", "0", "1"),
        ("both", "1", "1"),
    )
}
"""Environments of Ray Serve's modes; they are read when Ray starts."""


@dataclass
class Running:
    """A stack that answers at `host:port`."""

    port: int
    process: subprocess.Popen[str]
    lines: list[str] = field(default_factory=list)
    ready: threading.Event = field(default_factory=threading.Event)

    @property
    def http(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def websocket(self) -> str:
        return f"ws://127.0.0.1:{self.port}/invocations-bidirectional-stream"

    def read_output(self) -> None:
        """Collect the output; the end of it also ends the wait for readiness."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line)
            if READY in line:
                self.ready.set()
        self.ready.set()


def free_port() -> int:
    """A TCP port that nobody listened on a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def local_config(**changes: Any) -> dict[str, Any]:
    """configs/local.yaml on a free port; `changes` replace keys of its application."""
    config: dict[str, Any] = yaml.safe_load(LOCAL_CONFIG.read_text())
    config["http_options"]["port"] = free_port()
    config["applications"][0].update(changes)
    return config


@contextmanager
def serve_running(
    config: Mapping[str, Any], environment: Mapping[str, str] | None = None, *, ready_within_s: float = 300.0
) -> Iterator[Running]:
    """The stack of `config`, up while the context is open. Raises RuntimeError with its output if it does not start."""
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        yaml.safe_dump(dict(config), file)
        file.flush()
        process = subprocess.Popen(
            [Path(sys.executable).with_name("serve"), "run", file.name],
            cwd=ROOT,
            env={**os.environ, **(environment or {})},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        running = Running(config["http_options"]["port"], process)
        reader = threading.Thread(target=running.read_output, daemon=True)
        reader.start()
        try:
            if not running.ready.wait(ready_within_s) or process.poll() is not None:
                raise RuntimeError("serve run did not become ready:\n" + "".join(running.lines[-80:]))
            yield running
        finally:
            process.send_signal(signal.SIGINT)
            try:
                process.wait(90)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
            reader.join(10)
