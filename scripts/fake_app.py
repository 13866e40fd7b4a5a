"""The real routes over a fake front end and a fake engine: what is left is the cost of the way there and back.

`serve_app.app:compose` with other classes, for benchmarks and fault tests: `import_path: scripts.fake_app:build`.
"""

from collections.abc import Mapping
from typing import Any

from ray.serve import Application
from starlette.applications import Starlette

from serve_app.app import compose
from serve_app.config import Settings, load_settings
from serve_app.deployments.chunker import Chunker
from serve_app.deployments.kokoro import Kokoro
from serve_app.deployments.telemetry import log_through_serve, open_tracer
from serve_app.engine.fake import FakeEngine
from serve_app.metrics import NoRecorder
from serve_app.server.gateway import create_app
from serve_app.server.speech import Speech
from serve_app.text.pieces import Piece, WordSpan

ENGINE_COST_S = 0.02
"""What the fake engine takes for a segment; the benchmark takes it off again."""


class FakeFrontEnd:
    """One phoneme a character, one piece a sentence."""

    languages = ("a",)

    def pieces(self, sentence: str, lang: str) -> list[Piece]:
        ids = tuple(1 + ord(character) % 170 for character in sentence[:510])
        return [Piece(ids, words=(WordSpan(sentence, 0, len(ids)),))] if ids else []


class FakeChunkerReplica(Chunker):
    def __init__(self, settings: Settings) -> None:
        log_through_serve()
        super().__init__(FakeFrontEnd, open_tracer(settings.tracing, "kokoro-chunker"))


class FakeKokoroReplica(Kokoro):
    cost_s = ENGINE_COST_S

    def __init__(self, settings: Settings) -> None:
        log_through_serve()
        engine = settings.engine
        super().__init__(FakeEngine(cost_s=self.cost_s, max_queue=engine.max_queue, max_wait_s=engine.max_wait_s))


def build(args: Mapping[str, Any]) -> Application:
    """The application behind Ray Serve."""
    return compose(load_settings(args), FakeChunkerReplica, FakeKokoroReplica)


def bare() -> Starlette:
    """The same application in one process: `uvicorn --factory scripts.fake_app:bare`."""
    settings = load_settings({}, {})
    recorder = NoRecorder()
    speech = Speech(
        Chunker(FakeFrontEnd),
        FakeEngine(cost_s=ENGINE_COST_S, max_queue=settings.engine.max_queue),
        recorder,
        lookahead_segments=settings.limits.lookahead_segments,
    )
    return create_app(speech, settings.limits, recorder)
