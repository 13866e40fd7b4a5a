"""The engine and the phonemizer behind Serve handles, with the interfaces of the ones in this process.

A call whose replica dies is made once more, on another one: nothing of its answer has come, and the same call gives the
same answer. Once, and only if it was lost early, as the call itself may be what the replica died of.
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, cast

from ray.exceptions import RayActorError
from ray.serve.exceptions import BackPressureError, DeploymentUnavailableError
from ray.serve.handle import DeploymentHandle, DeploymentResponse

from serve_app.config import EngineSettings
from serve_app.engine.types import AudioChunk, EngineInfo, Segment, check_segment
from serve_app.errors import EngineUnavailable, QueueSaturated, SpeechError
from serve_app.text.pieces import Piece
from serve_app.tracing import NO_TRACER, Tracer

PIECES_WITHIN_S = 10.0
"""For a sentence, which takes milliseconds. A machine that loses its network does not even close its connections."""


class RemoteEngine:
    """An Engine over a handle to the Kokoro deployment."""

    def __init__(self, handle: DeploymentHandle, settings: EngineSettings, tracer: Tracer = NO_TRACER) -> None:
        self._synthesize, self._info = handle.synthesize, handle.info
        self._settings, self._tracer = settings, tracer

    async def synthesize(self, segment: Segment) -> AudioChunk:
        check_segment(segment)
        # Longer than any wait that the engine lets a listener in for, and the longest forward pass after it.
        within_s = segment.slack_s + self._settings.max_wait_s + self._settings.job_overdue_s
        call = partial(self._synthesize.remote, segment, *self._tracer.carried())
        return cast(AudioChunk, await _answer(call, within_s, early_s=self._settings.job_overdue_s))

    async def info(self) -> EngineInfo:
        return cast(EngineInfo, await _answer(self._info.remote))


class RemotePhonemizer:
    """A Phonemizer over a handle to the Chunker deployment."""

    def __init__(self, handle: DeploymentHandle, tracer: Tracer = NO_TRACER) -> None:
        self._pieces, self._languages = handle.pieces, handle.languages
        self._tracer = tracer

    async def pieces(self, sentence: str, lang: str) -> Sequence[Piece]:
        call = partial(self._pieces.remote, sentence, lang, *self._tracer.carried())
        return cast(Sequence[Piece], await _answer(call))

    async def languages(self) -> tuple[str, ...]:
        return cast(tuple[str, ...], await _answer(self._languages.remote))


async def _answer(
    call: Callable[[], DeploymentResponse], within_s: float = PIECES_WITHIN_S, *, early_s: float = PIECES_WITHIN_S
) -> Any:
    """Call, and once more if the replica is lost within `early_s`: later it may be wedged, and was ended for it."""
    clock = asyncio.get_running_loop().time
    began_s = clock()
    try:
        async with asyncio.timeout(within_s):
            try:
                return await _result(call())
            except RayActorError:
                if clock() - began_s > early_s:
                    raise
            return await _result(call())
    except TimeoutError as exc:
        raise EngineUnavailable("a replica does not answer; retry") from exc
    except (RayActorError, DeploymentUnavailableError) as exc:
        raise EngineUnavailable("a replica went away while it worked on this; retry") from exc


async def _result(response: DeploymentResponse) -> Any:
    """Await a call. A refusal among the answers is raised, cancelling cancels the call."""
    try:
        result = await response
    except asyncio.CancelledError:
        response.cancel()  # not every transport passes the cancellation of an await on
        raise
    except BackPressureError as exc:
        raise QueueSaturated("every replica's queue is full; retry later", bound="replicas") from exc
    if isinstance(result, SpeechError):
        raise result
    return result
