"""One engine in one Serve replica: segments in, audio out."""

from typing import Protocol

from serve_app.engine.types import AudioChunk, Engine, EngineInfo, Segment
from serve_app.errors import SpeechError
from serve_app.tracing import NO_TRACER, Tracer


class CheckedEngine(Engine, Protocol):
    """An engine that can tell whether it is wedged."""

    def check(self) -> None:
        """Raises EngineUnavailable: a forward pass is overdue or the worker is gone."""
        ...


class Kokoro:
    """The engine's calls and its health, as Serve asks for them. app.py wraps it; tests call it as it is.

    Refusals are answers, not exceptions: Serve logs every exception of a replica as an error of the service.
    """

    def __init__(self, engine: CheckedEngine, tracer: Tracer = NO_TRACER) -> None:
        self._engine, self._tracer = engine, tracer

    async def synthesize(self, segment: Segment, context: str = "") -> AudioChunk | SpeechError:
        """One call a segment: segments of every session meet in the engine's queue, where batches are formed.

        `context`: of the caller's span, for the tracer.
        """
        with self._tracer.begin("synthesize", context) as span:
            try:
                chunk = await self._engine.synthesize(segment)
            except SpeechError as error:
                span.set(refused=error.code)
                return error
            span.past("queue", ago_s=chunk.waited_s + chunk.inference_s, lasted_s=chunk.waited_s)
            span.past("pass", ago_s=chunk.inference_s, lasted_s=chunk.inference_s)
            return chunk

    async def info(self) -> EngineInfo | SpeechError:
        """What is loaded, or EngineUnavailable."""
        try:
            return await self._engine.info()
        except SpeechError as error:
            return error

    async def check_health(self) -> None:
        """Serve replaces the replica when this raises; the default check never touches the worker."""
        self._engine.check()
