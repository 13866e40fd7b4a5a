"""The process of the server's image: `python -m serve_app.container serve`, first in its container (docs/image.md).

It starts Ray and the application, waits for SIGTERM, lets open sessions finish, and ends. What cannot start ends it with
exit code 1 and the reason on its last line: whoever runs the container sees a process that is gone, not one that hangs.
"""

import logging
import os
import pkgutil
import re
import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ray
import yaml
from ray import serve

from serve_app.config import Settings, SettingsError, load_settings
from serve_app.engine.files import WeightsError
from serve_app.engine.sources import find_folder

log = logging.getLogger("serve_app.container")

HOME = Path(__file__).resolve().parent.parent
CONFIG = HOME / "configs" / "sagemaker.yaml"
BAKED_WEIGHTS = HOME / "weights"
MODEL_FOLDER = Path("/opt/ml/model")
"""Where SageMaker puts an endpoint's model, read-only."""

MIN_MEMORY_BYTES = 3 << 30
"""What Ray and three replicas take before the first request, with room for a long one."""

DRAIN_WITHIN_S = 20.0
"""For the messages in hand when SIGTERM comes. SageMaker sends SIGKILL 30 s after it."""

EXIT_WITHIN_S = 28.0
"""From SIGTERM to the end, whatever hangs."""


class CannotStart(Exception):
    """The container cannot do its work. The message is a sentence that says what to change."""


def main(arguments: Sequence[str]) -> int:
    """Run until SIGTERM. Returns the exit code: 0 stopped as asked, 1 could not start, 2 called wrongly."""
    if list(arguments) not in ([], ["serve"]):
        print(f"this image knows one argument, `serve`, and got: {' '.join(arguments)}", file=sys.stderr)
        return 2
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
    try:
        handle = start(yaml.safe_load(CONFIG.read_text()))
    except (CannotStart, SettingsError, WeightsError) as exc:
        end_within(EXIT_WITHIN_S, code=1)
        ray.shutdown()
        log.error("cannot start: %s", exc)
        return 1
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):  # Ray's own handlers, until now, end the process at once
        signal.signal(number, lambda *_: stop.set())
    log.info("ready")
    stop.wait()
    log.info("stopping: open sessions finish the message in hand")
    end_within(EXIT_WITHIN_S, code=1)
    drain(handle)
    serve.shutdown()
    ray.shutdown()
    log.info("stopped")
    return 0


def start(config: dict[str, Any]) -> serve.handle.DeploymentHandle:
    """Start Ray and the one application of `config`; returns its gateway, once it is ready to speak.

    Raises:
        CannotStart, SettingsError, WeightsError.
    """
    (application,) = config["applications"]
    arguments = application["args"]
    settings = load_settings(arguments)
    arguments["weights"] = {"source": weights_source(settings.weights.source, MODEL_FOLDER, BAKED_WEIGHTS)}
    require_memory(memory_bytes())
    try:
        ray.init(include_dashboard=False, log_to_driver=True)
    except ValueError as exc:  # Ray's word for a machine on which its object store does not fit
        raise CannotStart(f"Ray does not fit on this machine; give the container more memory ({exc})") from exc
    cpus = ray.cluster_resources()["CPU"]
    require_cpus(cpus, settings)
    arguments.setdefault("engine", {}).setdefault("threads", int(cpus))  # the quota, which torch does not see
    serve.start(config["proxy_location"], config["http_options"], logging_config=config["logging_config"])
    build = pkgutil.resolve_name(application["import_path"])
    name = application["name"]
    try:
        return serve.run(build(arguments), name=name, route_prefix=application["route_prefix"])
    except RuntimeError as exc:  # Serve's word for a deployment that failed to start, again and again
        messages = [deployment.message for deployment in serve.status().applications[name].deployments.values()]
        raise CannotStart(cause([*messages, str(exc)])) from exc


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
    """Raises CannotStart where the replicas ask for more than there is: Ray would wait for a larger machine for ever."""
    deployments = (settings.gateway, settings.chunker, settings.kokoro)
    asked = sum(deployment.num_cpus * replicas(deployment) for deployment in deployments)
    if asked > available:
        raise CannotStart(
            f"this container has {available:g} CPUs and its replicas ask for {asked:g}: raise `docker run --cpus`, take "
            "a larger instance, or lower num_cpus or num_replicas (KOKORO_CHUNKER__NUM_REPLICAS=1)"
        )


def replicas(deployment: Any) -> int:
    """How many of it are started."""
    if deployment.autoscaling is not None:
        return int(deployment.autoscaling.min_replicas)
    return deployment.num_replicas or 1


def cause(messages: Sequence[str]) -> str:
    """The sentence at the end of the first traceback among Serve's messages, else the first message."""
    for message in messages:
        if found := re.findall(r"^(?:\w+\.)*\w+(?:Error|Exception): (.+)$", message, re.MULTILINE):
            return str(found[-1])
    return next((message for message in messages if message), "a deployment did not start")


def drain(gateway: serve.handle.DeploymentHandle) -> None:
    """Let every gateway finish what it has in hand. One that takes too long, or is gone, is not waited for."""
    try:
        gateway.broadcast("drain").results(timeout_s=DRAIN_WITHIN_S)
    except Exception as exc:  # of whatever kind: the process ends now
        log.warning("not every session could finish: %s", type(exc).__name__)


def end_within(seconds: float, *, code: int) -> None:
    """End this process when it has not ended by itself by then; with it ends the container."""
    timer = threading.Timer(seconds, os._exit, (code,))
    timer.daemon = True
    timer.start()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
