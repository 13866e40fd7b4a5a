"""The engine and the phonemizer behind Serve handles, with the interfaces of the ones in this process."""

import asyncio
from collections.abc import Sequence
from typing import Any, cast

from ray.exceptions import RayActorError
from ray.serve.exceptions import BackPressureError, DeploymentUnavailableError
from ray.serve.handle import DeploymentHandle, DeploymentResponse

from serve_app.engine.types import AudioChunk, EngineInfo, Segment
from serve_app.errors import EngineUnavailable, QueueSaturated, SpeechError
from serve_app.text.pieces import Piece


class RemoteEngine:
    """An Engine over a handle to the Kokoro deployment."""

    def __init__(self, handle: DeploymentHandle) -> None:
        self._synthesize, self._info = handle.synthesize, handle.info

    async def synthesize(self, segment: Segment) -> AudioChunk:
        return cast(AudioChunk, await _result(self._synthesize.remote(segment)))

    async def info(self) -> EngineInfo:
        return cast(EngineInfo, await _result(self._info.remote()))


class RemotePhonemizer:
    """A Phonemizer over a handle to the Chunker deployment."""

    def __init__(self, handle: DeploymentHandle) -> None:
        self._pieces, self._languages = handle.pieces, handle.languages

    async def pieces(self, sentence: str, lang: str) -> Sequence[Piece]:
        return cast(Sequence[Piece], await _result(self._pieces.remote(sentence, lang)))

    async def languages(self) -> tuple[str, ...]:
        return cast(tuple[str, ...], await _result(self._languages.remote()))


async def _result(response: DeploymentResponse) -> Any:
    """Await a call. A refusal among the answers is raised, Ray's failures become ours, cancelling cancels the call."""
    try:
        result = await response
    except asyncio.CancelledError:
        response.cancel()  # not every transport passes the cancellation of an await on
        raise
    except BackPressureError as exc:
        raise QueueSaturated("every replica's queue is full; retry later") from exc
    except (RayActorError, DeploymentUnavailableError) as exc:
        raise EngineUnavailable("a replica went away while it worked on this; retry") from exc
    if isinstance(result, SpeechError):
        raise result
    return result
