"""A service that is ended on purpose: its sessions finish the message in hand before Serve is shut down.

Serve stops its proxy first and at once when it is shut down, which cuts every connection. In the image
serve_app/container.py sees to that; `serve run` gives nobody a say in what SIGINT (Ctrl-C) and SIGTERM do to it. But
Ray calls the function that RAY_RUNTIME_ENV_HOOK names (set in serve_app/ray_environment.py) in a process that joins it.
"""

import asyncio
import logging
import signal
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ray.serve.handle import DeploymentHandle

log = logging.getLogger(__name__)

WITHIN_S = 20.0
"""For the messages in hand. SageMaker sends SIGKILL 30 s after SIGTERM."""

LAST_WORDS_S = 1.0
"""Left of that when the messages still in hand are given up, to tell their clients."""

LAST_BYTES_S = 0.5
"""What the replicas have sent is on its way through the proxy, which Serve stops first."""


async def drain(gateway: "DeploymentHandle", within_s: float = WITHIN_S) -> None:
    """Have gateways refuse what comes from now on; returns when what is in hand has finished.

    Raises:
        Exception: whatever Ray raises for a replica that is too slow, or gone.
    """
    await gateway.broadcast("drain", within_s - LAST_WORDS_S).results_async(timeout_s=within_s)
    await asyncio.sleep(LAST_BYTES_S)


def on_join(runtime_env: Any) -> Any:
    """Ray's hook: `serve run` drains on SIGINT and SIGTERM. Returns what it gets."""
    called = Path(sys.argv[0]).name, *sys.argv[1:2]
    if called == ("serve", "run") and threading.current_thread() is threading.main_thread():
        from ray._private import worker  # here: every process that uses Ray imports this module

        # For the end of joining: on the way Ray's C++ takes SIGTERM for a crash, prints its stack and aborts 3 s later.
        worker._post_init_hooks.append(_hear_signals)
    return runtime_env


def _hear_signals() -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _asked_to_end)


def _asked_to_end(_number: int, frame: FrameType | None) -> None:
    """Drain and shut Serve down, then go on as Ray's command line does on Ctrl-C. Another Ctrl-C ends the wait."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    # Its main thread is busy starting Serve unless it sleeps in its own loop: nothing there bears a call of Ray's.
    if frame is not None and frame.f_globals.get("__name__") == "ray.serve.scripts":
        try:
            asyncio.run(_drain_and_shut_down())
        except Exception as exc:  # a replica that is too slow, or gone: Serve is shut down all the same
            log.warning("not all that was in hand could finish: %s %s", type(exc).__name__, exc)
    raise KeyboardInterrupt


async def _drain_and_shut_down() -> None:
    from ray import serve

    try:
        for name, application in serve.status().applications.items():
            gateway = application.deployments.get("Gateway")
            if gateway is not None and gateway.replica_states.get("RUNNING"):
                await drain(serve.get_deployment_handle("Gateway", name))
    finally:
        await serve.shutdown_async()  # in this loop: in the throughput mode a handle lives in its loop
