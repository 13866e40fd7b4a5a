"""One engine in one Serve replica: segments in, audio out."""

from typing import Protocol

from serve_app.engine.types import AudioChunk, Engine, EngineInfo, Segment
from serve_app.errors import SpeechError


class CheckedEngine(Engine, Protocol):
    """An engine that can tell whether it is wedged."""

    def check(self) -> None:
        """Raises EngineUnavailable: a forward pass is overdue or the worker is gone."""
        ...


class Kokoro:
    """The engine's calls and its health, as Serve asks for them. app.py wraps it; tests call it as it is.

    Refusals are answers, not exceptions: Serve logs every exception of a replica as an error of the service.
    """

    def __init__(self, engine: CheckedEngine) -> None:
        self._engine = engine

    async def synthesize(self, segment: Segment) -> AudioChunk | SpeechError:
        """One call a segment: segments of every session meet in the engine's queue, where batches are formed."""
        try:
            return await self._engine.synthesize(segment)
        except SpeechError as error:
            return error

    async def info(self) -> EngineInfo | SpeechError:
        """What is loaded, or EngineUnavailable."""
        try:
            return await self._engine.info()
        except SpeechError as error:
            return error

    async def check_health(self) -> None:
        """Serve replaces the replica when this raises; the default check never touches the worker."""
        self._engine.check()
