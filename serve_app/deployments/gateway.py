"""The ASGI ingress in one Serve replica."""

from ray.serve.handle import DeploymentHandle
from starlette.applications import Starlette
from starlette.routing import Route

from serve_app.config import Settings
from serve_app.deployments.exposition import MetricsText, node_exporter
from serve_app.deployments.leaving import end_sessions_by
from serve_app.deployments.remote import RemoteEngine, RemotePhonemizer
from serve_app.deployments.telemetry import RayRecorder, log_through_serve
from serve_app.server.gateway import create_app
from serve_app.server.speech import Speech

LAST_WORDS_S = 2.0
"""Left of a replica's time when the messages still in hand are given up, to tell their clients."""


class Gateway:
    """Sessions and requests; phonemes and audio come from the two other deployments."""

    def __init__(self, settings: Settings, chunker: DeploymentHandle, kokoro: DeploymentHandle) -> None:
        log_through_serve()
        recorder = RayRecorder()
        speech = Speech(
            RemotePhonemizer(chunker),
            RemoteEngine(kokoro, settings.engine),
            recorder,
            lookahead_segments=settings.limits.lookahead_segments,
            first_cut_above=settings.text.first_cut_above,
        )
        self._app = create_app(
            speech, settings.limits, recorder, [Route("/metrics", MetricsText(node_exporter), methods=["GET"])]
        )
        within_s = settings.gateway.graceful_shutdown_timeout_s - LAST_WORDS_S
        end_sessions_by(lambda: self._app.leave_soon(max(0.0, within_s)))

    async def drain(self, within_s: float) -> None:
        """Answer nothing new and finish what is in hand: before Serve is stopped, which cuts every connection."""
        await self._app.drain(within_s)

    def __serve_build_asgi_app__(self) -> Starlette:
        return self._app
