"""The real engine's queue and thread over a model of tones that hangs on one word; an application for `serve run`."""

import threading
from collections.abc import Mapping, Sequence
from typing import Any

from ray.serve import Application

from scripts.fake_app import FakeChunkerReplica, FakeFrontEnd
from serve_app.app import compose
from serve_app.config import Settings, load_settings
from serve_app.deployments.kokoro import Kokoro
from serve_app.deployments.telemetry import log_through_serve, open_tracer
from serve_app.engine.engine import KokoroEngine
from serve_app.engine.fake import tone
from serve_app.engine.types import AudioChunk, EngineInfo, Segment

WEDGE = "Wedge."
_WEDGE_IDS = FakeFrontEnd().pieces(WEDGE, "a")[0].phoneme_ids


class FragileSynthesizer:
    """Tones; two minutes of silence in the worker thread for the word that wedges it."""

    info = EngineInfo(24_000, ("af_heart",), device="none", weights="tones")

    def check(self, segment: Segment) -> None:
        return None

    def synthesize(self, batch: Sequence[Segment]) -> list[AudioChunk]:
        if any(segment.phoneme_ids == _WEDGE_IDS for segment in batch):
            threading.Event().wait(120)
        return [tone(segment) for segment in batch]


class FragileKokoroReplica(Kokoro):
    def __init__(self, settings: Settings) -> None:
        log_through_serve()
        engine = KokoroEngine(FragileSynthesizer(), settings.engine)
        super().__init__(engine, open_tracer(settings.tracing, "kokoro-engine"))


def build(args: Mapping[str, Any]) -> Application:
    return compose(load_settings(args), FakeChunkerReplica, FragileKokoroReplica)
