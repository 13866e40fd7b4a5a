"""A front end without dictionaries, and the speech that tests drive the routes with."""

from collections.abc import Mapping, Sequence
from typing import Any

from starlette.applications import Starlette

from serve_app.config import AccessSettings, LimitSettings
from serve_app.engine.fake import FakeEngine
from serve_app.errors import UnsupportedLanguage
from serve_app.metrics import Metric
from serve_app.server.gateway import create_app
from serve_app.server.speech import Speech
from serve_app.text.pieces import Piece, WordSpan


class FakePhonemizer:
    """One phoneme a character; a sentence is one piece. Language `a` only."""

    async def pieces(self, sentence: str, lang: str) -> Sequence[Piece]:
        if lang != "a":
            raise UnsupportedLanguage("only a is supported here")
        ids = tuple(1 + ord(character) % 170 for character in sentence[:510])
        return [Piece(ids, words=(WordSpan(sentence, 0, len(ids)),))] if ids else []

    async def languages(self) -> tuple[str, ...]:
        return ("a",)


class CountingRecorder:
    """Remembers every value, by metric name; holds the tags against the table of metrics."""

    def __init__(self) -> None:
        self.values: dict[str, list[tuple[float, dict[str, str]]]] = {}

    def record(self, metric: Metric, value: float = 1.0, /, **tags: str) -> None:
        assert metric.bounded(tags) == tags, f"{metric.name} has tags or values of tags that its table has not: {tags}"
        self.values.setdefault(metric.name, []).append((value, tags))

    def outcomes(self, metric: Metric) -> list[str]:
        return [tags["outcome"] for _, tags in self.values.get(metric.name, [])]


def app_over(
    engine: FakeEngine,
    recorder: CountingRecorder | None = None,
    *,
    lookahead_segments: int = 2,
    access: Mapping[str, Any] | None = None,
    **limits: float,
) -> Starlette:
    """The routes over a fake front end and `engine`."""
    recorder = recorder or CountingRecorder()
    speech = Speech(FakePhonemizer(), engine, recorder, lookahead_segments=lookahead_segments)
    settings = AccessSettings.model_validate(access or {})
    return create_app(speech, LimitSettings.model_validate(limits), recorder, access=settings)
