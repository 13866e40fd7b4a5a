"""The running service as its operator changes it and sees it: `serve deploy`, and the replicas by Serve's account."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from copy import deepcopy
from typing import Any

from ray.dashboard.modules.serve.sdk import ServeSubmissionClient
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from scripts.promises import CameNot
from scripts.running import Running

_DASHBOARD = "http://127.0.0.1:8265"
_LOOK_EVERY_S = 0.5


class Service:
    """An application that `serve run` has started on this machine."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        """`config` is the one that runs."""
        self.config = deepcopy(dict(config))
        self._client = ServeSubmissionClient(_DASHBOARD)

    def deploy(self, *, args: Mapping[str, Mapping[str, Any]] | None = None, **deployments: Mapping[str, Any]) -> None:
        """`serve deploy` of the configuration with other `args`, or other options of deployments, by name."""
        config = deepcopy(self.config)
        (application,) = config["applications"]
        for section, values in (args or {}).items():
            application["args"] = {
                **application["args"],
                section: {**application["args"].get(section, {}), **values},
            }
        application["deployments"] = [{"name": name, **options} for name, options in deployments.items()]
        self._client.deploy_applications(config)
        self.config = config

    def replicas(self, *states: str) -> dict[str, frozenset[str]]:
        """The ids of replicas, by deployment; of those in one of `states`, or of all."""
        return {
            name: frozenset(
                replica["replica_id"] for replica in deployment["replicas"] if not states or replica["state"] in states
            )
            for name, deployment in self._application()["deployments"].items()
        }

    def counts(self) -> Counter[str]:
        """How many replicas answer, by deployment; empty while Serve builds the application anew."""
        return Counter({name: len(ids) for name, ids in self.replicas("RUNNING", "UPDATING").items()})

    @property
    def status(self) -> str:
        """Of the application: RUNNING, DEPLOYING, DEPLOY_FAILED, ..."""
        status: str = self._application()["status"]
        return status

    def _application(self) -> dict[str, Any]:
        applications: dict[str, Any] = self._client.get_serve_details()["applications"]
        (application,) = applications.values()
        return dict(application)


def takes(running: Running, sessions: int) -> bool:
    """Whether so many more sessions can be open at once."""
    with ExitStack() as opened:
        try:
            for _ in range(sessions):
                opened.enter_context(connect(running.websocket, compression=None))
        except InvalidStatus as exc:
            return exc.response.status_code != 503
    return True


async def until(condition: Callable[[], bool], within_s: float, what: str) -> float:
    """Look again and again, in a thread; the seconds it took. Raises CameNot."""
    began_s = time.monotonic()
    while not await asyncio.to_thread(condition):
        if time.monotonic() - began_s > within_s:
            raise CameNot(f"waited {within_s:g} s for {what}")
        await asyncio.sleep(_LOOK_EVERY_S)
    return time.monotonic() - began_s
