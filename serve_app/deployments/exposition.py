"""GET /metrics: the product's metrics as Prometheus text, on the port of everything else.

Ray gathers the metrics of a node in its agent, which exports them on a port of its own, among some hundreds of Ray's.
SageMaker reads /metrics of a container's one port and keeps what it finds, so this passes on the product's alone.
"""

import asyncio
import re
from collections.abc import Callable

import httpx
import ray
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from serve_app.errors import EngineUnavailable
from serve_app.server.responses import error_response

PROMETHEUS_TEXT = "text/plain; version=0.0.4; charset=utf-8"
ANSWER_WITHIN_S = 5.0
_OURS = re.compile(rb"^(?:# (?:HELP|TYPE) )?ray_kokoro_.*\n", re.MULTILINE)


class MetricsText:
    """The ASGI endpoint. `exporter` tells the exporter's address; it may block, and is asked once."""

    def __init__(self, exporter: Callable[[], str]) -> None:
        self._exporter = exporter
        self._url: str | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        response: Response
        try:
            if self._url is None:
                self._url = await asyncio.to_thread(self._exporter)
            # No TLS on this machine's own address: reading the authorities would hold up the audio of every session.
            async with httpx.AsyncClient(timeout=ANSWER_WITHIN_S, trust_env=False, verify=False) as client:
                answer = await client.get(self._url)
                answer.raise_for_status()
            response = Response(ours(answer.content), media_type=PROMETHEUS_TEXT)
        except httpx.HTTPError:
            response = error_response(EngineUnavailable("the metrics exporter of this node does not answer"))
        await response(scope, receive, send)


def node_exporter() -> str:
    """The address of Ray's exporter on this node."""
    node_id = ray.get_runtime_context().get_node_id()
    node = next(node for node in ray.nodes() if node["NodeID"] == node_id)
    return f"http://{node['NodeManagerAddress']}:{node['MetricsExportPort']}/metrics"


def ours(exposition: bytes) -> bytes:
    """The lines of Prometheus text that are of this product's metrics, comments with their help and type included."""
    return b"".join(_OURS.findall(exposition))
