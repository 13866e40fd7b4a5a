"""The ASGI ingress in one Serve replica."""

import logging
from collections.abc import Mapping
from typing import Any

from ray.serve.handle import DeploymentHandle
from starlette.applications import Starlette
from starlette.routing import Route

from serve_app.config import Settings, SettingsError, with_limits
from serve_app.deployments.exposition import MetricsText, node_exporter
from serve_app.deployments.leaving import UNROUTED_AFTER_S, leave_when_stopped
from serve_app.deployments.listening import listen_on_node_address
from serve_app.deployments.remote import RemoteEngine, RemotePhonemizer
from serve_app.deployments.sockets import bound_websockets
from serve_app.deployments.telemetry import RayRecorder, log_through_serve, open_tracer
from serve_app.server.gateway import create_app
from serve_app.server.speech import Speech

log = logging.getLogger(__name__)

LAST_WORDS_S = 2.0
"""Left of a replica's time when the messages still in hand are given up, to tell their clients."""


class Gateway:
    """Sessions and requests; phonemes and audio come from the two other deployments."""

    def __init__(self, settings: Settings, chunker: DeploymentHandle, kokoro: DeploymentHandle) -> None:
        log_through_serve()
        listen_on_node_address()
        self._settings, self._limits, self._limited = settings, settings.limits, False
        bound_websockets(lambda: self._limits.max_body_bytes)
        recorder, tracer = RayRecorder(), open_tracer(settings.tracing, "kokoro-gateway")
        self._speech = Speech(
            RemotePhonemizer(chunker, tracer),
            RemoteEngine(kokoro, settings.engine, tracer),
            recorder,
            tracer,
            lookahead_segments=settings.limits.lookahead_segments,
            first_cut_above=settings.text.first_cut_above,
        )
        self._app = create_app(
            self._speech,
            settings.limits,
            recorder,
            [Route("/metrics", MetricsText(node_exporter), methods=["GET"])],
            settings.access,
        )
        within_s = settings.gateway.graceful_shutdown_timeout_s - UNROUTED_AFTER_S - LAST_WORDS_S
        leave_when_stopped(lambda: self._app.leave_soon(max(0.0, within_s)))

    def reconfigure(self, limits: Mapping[str, Any]) -> None:
        """Take other limits, with sessions open. Serve calls it with the deployment's `user_config`.

        One that is misspelt or out of range stops the start of a replica. A running one keeps the limits it has: to
        raise would have Serve replace it, and every other one, by replicas that do not start.
        """
        try:
            changed = with_limits(self._settings, limits).limits
        except SettingsError as exc:
            if not self._limited:
                raise
            log.error("the limits stay as they are: %s", exc)
            return
        self._limits, self._limited = changed, True
        self._speech.lookahead_segments = changed.lookahead_segments
        self._app.limit(changed)

    async def drain(self, within_s: float) -> None:
        """Answer nothing new and finish what is in hand: before Serve is stopped, which cuts every connection."""
        await self._app.drain(within_s)

    def __serve_build_asgi_app__(self) -> Starlette:
        return self._app
