"""The ASGI ingress in one Serve replica."""

from ray.serve.handle import DeploymentHandle
from starlette.applications import Starlette
from starlette.routing import Route

from serve_app.config import Settings
from serve_app.deployments.exposition import MetricsText, node_exporter
from serve_app.deployments.remote import RemoteEngine, RemotePhonemizer
from serve_app.deployments.telemetry import RayRecorder, log_through_serve
from serve_app.server.gateway import create_app
from serve_app.server.speech import Speech


class Gateway:
    """Sessions and requests; phonemes and audio come from the two other deployments."""

    def __init__(self, settings: Settings, chunker: DeploymentHandle, kokoro: DeploymentHandle) -> None:
        log_through_serve()
        recorder = RayRecorder()
        speech = Speech(
            RemotePhonemizer(chunker),
            RemoteEngine(kokoro),
            recorder,
            lookahead_segments=settings.limits.lookahead_segments,
            first_cut_above=settings.text.first_cut_above,
        )
        self._app = create_app(
            speech, settings.limits, recorder, [Route("/metrics", MetricsText(node_exporter), methods=["GET"])]
        )

    async def drain(self) -> None:
        """Answer nothing new, finish what is in hand: before Serve stops this replica, which cuts its connections."""
        await self._app.drain()

    def __serve_build_asgi_app__(self) -> Starlette:
        return self._app
