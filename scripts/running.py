"""Start the real stack as a user does, `serve run CONFIG`, wait until it says that it is ready, and stop it again.

For the benchmarks and for the tests that need a running server.
"""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import yaml

ROOT = Path(__file__).resolve().parent.parent
LOCAL_CONFIG = ROOT / "configs" / "local.yaml"
DEPLOYMENTS = ("Gateway", "Chunker", "Kokoro")

REAL_APP, TIMED_APP = "serve_app.app:build", "scripts.cluster.app:build"
"""The product, and its routes over an engine that only takes its time: what `import_path` may be."""

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


class Running:
    """A stack that answers at `port`, and what it has printed so far."""

    def __init__(self, port: int, process: "subprocess.Popen[str]") -> None:
        self.port, self.process = port, process
        self.lines: list[str] = []
        self._changed = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def http(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def websocket(self) -> str:
        return f"ws://127.0.0.1:{self.port}/invocations-bidirectional-stream"

    def wait_for(self, condition: Callable[[], object], within_s: float = 60.0) -> None:
        """Wait until what the stack has printed fulfils `condition`. Raises RuntimeError when it does not."""
        with self._changed:
            if not self._changed.wait_for(lambda: condition() or self.process.poll() is not None, within_s):
                raise RuntimeError("it did not come; the last lines were:\n" + "".join(self.lines[-80:]))

    def line(self, *parts: str) -> str:
        """The first line that holds all `parts`; waits for it."""

        def found() -> str | None:
            return next((line for line in self.lines if all(part in line for part in parts)), None)

        self.wait_for(found)
        line = found()
        assert line is not None, "the stack has ended"
        return line

    def wait_for_end_of_output(self) -> None:
        """Wait until the process, which is ending, has said its last word."""
        self._reader.join(30)

    def wait_until_ready(self, within_s: float) -> None:
        """Ask /ping when the stack has printed something, or twice a second. Raises RuntimeError at the end of it."""
        deadline_s = time.monotonic() + within_s
        while self.process.poll() is None and time.monotonic() < deadline_s:
            with contextlib.suppress(httpx.TransportError):
                if httpx.get(f"{self.http}/ping", timeout=2.0).status_code == 200:
                    return
            with self._changed:
                self._changed.wait(0.5)
        raise RuntimeError("it did not become ready; its last lines were:\n" + "".join(self.lines[-80:]))

    def utterance(self, request_id: str) -> dict[str, Any]:
        """The log line of an utterance, once it has ended."""
        line = self.line('"event": "utterance"', f'"{request_id}"')
        record: dict[str, Any] = json.loads(line[line.index("{") :])
        return record

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with self._changed:
                self.lines.append(line)
                self._changed.notify_all()
        self.process.wait()
        with self._changed:
            self._changed.notify_all()


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
def python_running(port: int, *arguments: str) -> Iterator[Running]:
    """`python ARGUMENTS`, which will serve at `port`, in a process of its own; to be waited for."""
    process = subprocess.Popen(
        [sys.executable, *arguments], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        yield Running(port, process)
    finally:
        process.terminate()
        process.wait(60)


@contextmanager
def bare_running() -> Iterator[Running]:
    """The application over a fake engine under uvicorn alone, in a process of its own: starts in a second."""
    port = free_port()
    with python_running(port, "-m", "uvicorn", "--factory", "scripts.fake_app:bare", "--port", str(port)) as running:
        running.wait_until_ready(60.0)
        yield running


def _hear_interrupts() -> None:
    """A shell's background jobs ignore Ctrl-C, and so would their children."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


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
            preexec_fn=_hear_interrupts,
        )
        running = Running(config["http_options"]["port"], process)
        try:
            running.wait_until_ready(ready_within_s)
            yield running
        finally:
            process.send_signal(signal.SIGINT)
            try:
                process.wait(90)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
