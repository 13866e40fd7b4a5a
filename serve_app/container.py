"""The process of the server's image: `python -m serve_app.container serve`, first in its container (docs/image.md).

It starts Ray and the application, waits for SIGTERM, lets open sessions finish, and ends. What cannot start ends it
with exit code 1 and the reason on its last line: whoever runs the container sees one that is gone, not one that hangs.
"""

import asyncio
import logging
import os
import pkgutil
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import ray
import yaml
from ray import serve

from serve_app import draining
from serve_app.config import DeploymentSettings, Settings, SettingsError, load_settings
from serve_app.engine.files import WeightsError
from serve_app.engine.sources import find_folder

log = logging.getLogger("serve_app.container")

HOME = Path(__file__).resolve().parent.parent
CONFIG = HOME / "configs" / "sagemaker.yaml"
BAKED_WEIGHTS = HOME / "weights"
MODEL_FOLDER = Path("/opt/ml/model")
"""Where SageMaker puts an endpoint's model, read-only."""

MIN_MEMORY_BYTES = 3 << 30
"""Ray and the replicas peak at 2.9 GiB on a CPU, page cache included (docs/image.md)."""

EXIT_WITHIN_S = 28.0
"""From SIGTERM to the end, whatever hangs."""


class CannotStart(Exception):
    """The container cannot do its work. The message is a sentence that says what to change."""


class Stopped(BaseException):
    """SIGTERM or SIGINT came while starting. No Exception: what only handles failures must let it pass."""


class Stack(Protocol):
    """What runs in the container."""

    def start(self, on_signals_taken: Callable[[], None]) -> None:
        """Return once it is ready to speak; call `on_signals_taken` whenever other code has set signal handlers.

        Raises:
            CannotStart, SettingsError, WeightsError.
        """
        ...

    def drain(self, within_s: float) -> None:
        """Refuse what comes from now on; return when what is in hand has finished, or at the end of `within_s`."""
        ...

    def stop(self) -> None: ...


class Signals:
    """SIGTERM and SIGINT: they end a start at once, and are waited for once it is over."""

    def __init__(self) -> None:
        self._starting, self._asked = True, threading.Event()

    def take(self) -> None:
        """Install the handlers. Process 1 of a container has none by default, not even the one that ends it."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self._hear())

    def started(self) -> None:
        """From now on signals are waited for."""
        self.take()
        self._starting = False

    def wait(self) -> None:
        """Wait for the order to stop."""
        self._asked.wait()

    def _hear(self) -> None:
        self._asked.set()
        if self._starting:
            self._starting = False  # a second signal must not interrupt the end of the first
            raise Stopped


def main(arguments: Sequence[str], stack: Stack) -> int:
    """Run until SIGTERM. Returns the exit code: 0 stopped as asked, 1 could not start, 2 called wrongly."""
    if list(arguments) not in ([], ["serve"]):
        print(f"this image knows one argument, `serve`, and got: {' '.join(arguments)}", file=sys.stderr)
        return 2
    signals = Signals()
    signals.take()
    try:
        stack.start(signals.take)
        signals.started()
    except (CannotStart, SettingsError, WeightsError) as exc:
        with ended_within(EXIT_WITHIN_S):
            stack.stop()
        log.error("cannot start: %s", exc)
        return 1
    except (Stopped, SystemExit):  # the latter from Ray's handlers, which are in force for moments
        with ended_within(EXIT_WITHIN_S):
            stack.stop()
        log.info("stopped before it was ready")
        return 0
    log.info("ready")
    signals.wait()
    log.info("stopping: what is in hand is finished")
    with ended_within(EXIT_WITHIN_S):
        stack.drain(draining.WITHIN_S)
        stack.stop()
    log.info("stopped")
    return 0


@contextmanager
def ended_within(seconds: float) -> Iterator[None]:
    """End this process, and with it the container, when the block takes longer."""
    timer = threading.Timer(seconds, os._exit, (1,))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


class RayServe:
    """Ray, started for this container alone, and the one application of a configuration file."""

    def __init__(self, config: dict[str, Any]) -> None:
        self._config = config
        self._gateway: serve.handle.DeploymentHandle | None = None
        self._loop = asyncio.Runner()  # one for drain and stop: in the throughput mode a handle lives in its loop

    def start(self, on_signals_taken: Callable[[], None]) -> None:
        (application,) = self._config["applications"]
        arguments, name = application["args"], application["name"]
        settings = load_settings(arguments)
        source = weights_source(settings.weights.source, MODEL_FOLDER, BAKED_WEIGHTS)
        arguments["weights"] = {**arguments.get("weights", {}), "source": source}
        require_memory(memory_bytes())
        try:
            ray.init(include_dashboard=False)
        except Exception as exc:  # ValueError: its object store does not fit; a bare one: too slow to start
            raise CannotStart(f"Ray does not start here; give the container more memory and CPUs ({exc})") from exc
        on_signals_taken()
        cpus = ray.cluster_resources()["CPU"]
        require_cpus(cpus, settings)
        # By the container's quota, which only Ray looks at; torch would start a thread for each core of the machine.
        arguments["engine"] = {"threads": int(cpus), **arguments.get("engine", {})}
        serve.start(
            self._config["proxy_location"], self._config["http_options"], logging_config=self._config["logging_config"]
        )
        build = pkgutil.resolve_name(application["import_path"])
        try:
            self._gateway = serve.run(build(arguments), name=name, route_prefix=application["route_prefix"])
        except RuntimeError as exc:  # Serve's word for a deployment that failed to start, again and again
            deployments = serve.status().applications[name].deployments.values()
            raise CannotStart(cause([*(deployment.message for deployment in deployments), str(exc)])) from exc

    def drain(self, within_s: float) -> None:
        assert self._gateway is not None
        try:
            self._loop.run(draining.drain(self._gateway, within_s))
        except Exception as exc:  # a replica that is too slow, or gone: the process ends all the same
            log.warning("not all that was in hand could finish: %s %s", type(exc).__name__, exc)

    def stop(self) -> None:
        if self._gateway is not None:
            self._loop.run(serve.shutdown_async())
        ray.shutdown()


def weights_source(configured: str, model: Path, baked: Path) -> str:
    """Where the weights come from: what the operator set, else the endpoint's model, the image's own, the hub.

    Raises:
        WeightsError: the endpoint has a model folder with something in it, but not the model.
    """
    if Path(configured) != model:
        return configured
    if model.is_dir() and any(model.iterdir()):
        return str(find_folder(model))
    if baked.is_dir() and any(baked.iterdir()):
        return str(baked)
    log.warning("no weights in %s and none in the image: they are fetched from the hub at every start", model)
    return "hub"


def memory_bytes(root: Path = Path("/")) -> int:
    """What this container may use: the machine's memory, or less where a control group says so."""
    limits = [int(re.findall(r"MemTotal: +(\d+) kB", (root / "proc/meminfo").read_text())[0]) << 10]
    for file in ("sys/fs/cgroup/memory.max", "sys/fs/cgroup/memory/memory.limit_in_bytes"):  # of version 2, of 1
        if (root / file).exists() and (limit := (root / file).read_text().strip()) != "max":
            limits.append(int(limit))
    return min(limits)


def require_memory(available_bytes: int) -> None:
    """Raises CannotStart below MIN_MEMORY_BYTES: the kernel would end one process after the other, without a word."""
    if available_bytes < MIN_MEMORY_BYTES:
        raise CannotStart(
            f"this container has {available_bytes / 2**30:.1f} GiB of memory and needs {MIN_MEMORY_BYTES >> 30}: raise "
            "`docker run --memory`, or take a larger instance"
        )


def require_cpus(available: float, settings: Settings) -> None:
    """Raises CannotStart where the replicas ask for more than there is: Ray would wait for another machine for ever."""
    deployments = (settings.gateway, settings.chunker, settings.kokoro)
    asked = sum(deployment.num_cpus * replicas(deployment) for deployment in deployments)
    if asked > available:
        raise CannotStart(
            f"this container has {available:g} CPUs and its replicas ask for {asked:g}: raise `docker run --cpus`, "
            "take a larger instance, or lower num_cpus or num_replicas (KOKORO_CHUNKER__NUM_REPLICAS=1)"
        )


def replicas(deployment: DeploymentSettings) -> int:
    """How many of it are started."""
    return deployment.autoscaling.min_replicas if deployment.autoscaling else deployment.num_replicas or 1


def cause(messages: Sequence[str]) -> str:
    """The sentence at the end of the first traceback among Serve's messages, else the first message."""
    for message in messages:
        if found := re.findall(r"^(?:\w+\.)*\w+(?:Error|Exception): (.+)$", message, re.MULTILINE):
            return str(found[-1])
    return next((message for message in messages if message), "a deployment did not start")


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
    exit_code = main(sys.argv[1:], RayServe(yaml.safe_load(CONFIG.read_text())))
    logging.shutdown()
    os._exit(exit_code)  # all is stopped: what Ray left behind in this process is not waited for
