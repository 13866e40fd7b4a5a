"""The real routes over an engine that takes as long as a GPU's: `import_path: scripts.cluster.app:build`."""

from collections.abc import Mapping
from typing import Any

from ray.serve import Application

from scripts.fake_app import FakeChunkerReplica
from serve_app.app import compose
from serve_app.config import Settings, load_settings
from serve_app.deployments.kokoro import Kokoro
from serve_app.deployments.telemetry import log_through_serve
from serve_app.engine.fake import FakeEngine

GPU_SENTENCE_S = 0.056
"""A sentence on ml.g5.xlarge, one at a time, as published (docs/capacity.md)."""


class TimedKokoroReplica(Kokoro):
    def __init__(self, settings: Settings) -> None:
        log_through_serve()
        super().__init__(FakeEngine(cost_s=GPU_SENTENCE_S, max_queue=settings.engine.max_queue))


def build(args: Mapping[str, Any]) -> Application:
    return compose(load_settings(args), FakeChunkerReplica, TimedKokoroReplica)
