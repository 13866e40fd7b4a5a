"""Rows to audio in one process: the front end and the engine of the service, without the service.

A row is spoken by the class that answers POST /invocations, so its audio is that answer's body, byte for byte where the
engine has as many threads (docs/engine-cpu.md).
"""

import asyncio
import hashlib
import logging
import math
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Protocol

from scripts.corpus.parts import Outcome
from scripts.corpus.rows import Rejected, Row, request_for
from serve_app.audio.encoders import open_encoder
from serve_app.audio.pcm import duration_s, slices
from serve_app.config import Settings
from serve_app.deployments.chunker import BlockingFrontEnd, Chunker
from serve_app.engine.types import Engine
from serve_app.errors import EngineUnavailable, Internal, NothingToSpeak, SpeechError
from serve_app.metrics import NoRecorder
from serve_app.server.listener import Listener
from serve_app.server.speech import Phonemizer, Sentences, Speech
from serve_app.text.chunker import split_sentences
from serve_app.text.pieces import Piece

logger = logging.getLogger(__name__)

TRIES = 3
"""Of a row that fails by no fault of its own; each after the part's other rows, when what hindered it may be over."""

LOOK_EVERY_S = 30.0

SEED = "content"
"""The noise of a segment is seeded by its phonemes, speed and voice (serve_app/engine/model.py): no number to keep."""


@dataclass(frozen=True, slots=True)
class Identity:
    """What a model is: its origin for people, the SHA-256 of its tensors and voices, and the names of the voices."""

    source: str
    sha256: str
    voices: tuple[str, ...]


class Model(Protocol):
    """What speaks. Workers get it by its import path, so it is a class with static methods and no state."""

    @staticmethod
    def identify(settings: Settings) -> Identity: ...

    @staticmethod
    def load(settings: Settings) -> tuple[BlockingFrontEnd, Engine]: ...


class KokoroModel:
    """The real one. Everything heavy is imported by whoever loads it."""

    @staticmethod
    def identify(settings: Settings) -> Identity:
        """Raises WeightsError."""
        from serve_app.engine.weights import load_weights

        weights = load_weights(settings.weights)
        tensors = dict(weights.state_dict) | {
            f"voices/{name}": weights.voices.pack(name) for name in weights.voices.names
        }
        digest = hashlib.sha256()
        for name, tensor in sorted(tensors.items()):
            digest.update(name.encode())
            digest.update(memoryview(tensor.contiguous().numpy()).cast("B"))
        return Identity(weights.source, digest.hexdigest(), weights.voices.names)

    @staticmethod
    def load(settings: Settings) -> tuple[BlockingFrontEnd, Engine]:
        """Raises WeightsError."""
        from serve_app.engine.engine import KokoroEngine
        from serve_app.text.phonemes import FrontEnd

        with ThreadPoolExecutor(1) as beside:
            front_end = beside.submit(FrontEnd, settings.text)
            return front_end.result(), KokoroEngine.load(settings.engine, settings.weights)


class LocalPhonemizer:
    """A `Phonemizer` over the service's front end in this process."""

    def __init__(self, front_end: BlockingFrontEnd) -> None:
        self._chunker = Chunker(lambda: front_end)
        self.languages = self._chunker.languages

    async def pieces(self, sentence: str, lang: str) -> Sequence[Piece]:
        """Raises UnsupportedLanguage."""
        found = await self._chunker.pieces(sentence, lang)
        if isinstance(found, SpeechError):
            raise found
        return found


def offline(settings: Settings, *, threads: int, max_batch: int, on_gpu: bool) -> Settings:
    """The service's settings where nobody waits: nothing is refused, and a long pass is no wedged worker."""
    changes = {
        "device": settings.engine.device if on_gpu else "cpu",
        "threads": threads,
        "max_batch": max_batch,
        "max_wait_s": math.inf,
        "max_queue": sys.maxsize,
        "job_overdue_s": 1800.0,
    }
    return settings.model_copy(update={"engine": settings.engine.model_copy(update=changes)})


@dataclass(frozen=True, slots=True)
class Manner:
    """How every row of a corpus is spoken and told of."""

    audio_format: str
    sample_rate: int
    keeps_text: bool
    product: str
    created: str


class Speaker:
    """Speaks parts, several rows at once so that the engine has batches to form. Of one event loop."""

    def __init__(self, front_end: BlockingFrontEnd, engine: Engine, identity: Identity, settings: Settings) -> None:
        self._phonemizer: Phonemizer = LocalPhonemizer(front_end)
        self._engine, self._identity, self._settings = engine, identity, settings

    async def speak(
        self,
        rows: Sequence[Row],
        manner: Manner,
        heard: Callable[[Row, float], None],
        look_every_s: float = LOOK_EVERY_S,
    ) -> Outcome:
        """What becomes of the rows.

        Args:
            heard: is told of each row as it is done, with its seconds of audio.
            look_every_s: how often the engine is asked whether it still can; a pass that hangs tells nobody.
        Raises:
            EngineUnavailable, in a group: this engine speaks nothing more.
        """
        async with asyncio.TaskGroup() as watched:
            looking = watched.create_task(self._look(look_every_s))
            outcome = await self._attempt(rows, manner, heard)
            for _ in range(TRIES - 1):
                if outcome.left:
                    outcome = outcome.and_then(await self._attempt(outcome.left_of(rows), manner, heard))
            looking.cancel()
        return outcome

    async def _look(self, every_s: float) -> None:
        while True:
            await asyncio.sleep(every_s)
            await self._engine.info()

    async def _attempt(self, rows: Sequence[Row], manner: Manner, heard: Callable[[Row, float], None]) -> Outcome:
        """Try each row once."""
        max_batch = self._settings.engine.max_batch
        speech = Speech(
            self._phonemizer,
            self._engine,
            NoRecorder(),
            lookahead_segments=max(self._settings.limits.lookahead_segments, max_batch),
            first_cut_above=self._settings.text.first_cut_above,
        )
        at_once = asyncio.Semaphore(max_batch + 1)

        spoken, rejected, left = list[dict[str, Any]](), list[Rejected](), list[Rejected]()
        characters = 0

        async def attempt(row: Row) -> None:
            nonlocal characters
            async with at_once:
                try:
                    told = await self._speak(speech, row, manner)
                except EngineUnavailable:
                    raise
                except Exception as exc:
                    error = _as_speech_error(row, exc)
                    if error.http_status >= 500:  # ours, and maybe of this moment only
                        left.append(Rejected.row_of(row, error))
                        return
                    rejected.append(Rejected.row_of(row, error))
                    heard(row, 0.0)
                else:
                    spoken.append(told)
                    heard(row, told["duration_s"])
                characters += len(row.text)

        async with asyncio.TaskGroup() as tasks:
            for row in rows:
                tasks.create_task(attempt(row))
        return Outcome(spoken, characters, rejected, left)

    async def _speak(self, speech: Speech, row: Row, manner: Manner) -> dict[str, Any]:
        request = request_for(row, manner.audio_format, manner.sample_rate)
        encoder = open_encoder(request.format, request.sample_rate)
        audio, words, audio_s = list[bytes](), [], 0.0
        sentences = Sentences(split_sentences(request.text), final=True)
        # The id of a row is the session's: a row's segments keep their order, and logs name it.
        async with aclosing(speech.speak(request, sentences, listener=Listener(row.id))) as segments:
            async for segment in segments:
                audio_s += duration_s(len(segment.samples), segment.sample_rate)
                words += [word.as_json() for word in segment.words]
                audio += [encoder.encode(part) for part in slices(segment.samples, segment.sample_rate)]
        if not audio_s:
            raise NothingToSpeak("the text has no speakable character")
        audio.append(encoder.finish())
        return {
            "id": row.id,
            "text": row.text if manner.keeps_text else None,
            "text_sha256": hashlib.sha256(row.text.encode()).hexdigest(),
            "audio": encoder.completed(b"".join(audio)),
            "format": manner.audio_format,
            "sample_rate": manner.sample_rate,
            "duration_s": audio_s,
            "words": words,
            "file": row.file,
            "row": row.number,
            "provenance": {
                "product": manner.product,
                "weights": self._identity.source,
                "weights_sha256": self._identity.sha256,
                "voice": row.voice,
                "lang": request.language,
                "speed": row.speed,
                "seed": SEED,
                "created": manner.created,
            },
        }


def _as_speech_error(row: Row, exc: Exception) -> SpeechError:
    """A defect of ours is logged here and told as `internal`."""
    if isinstance(exc, SpeechError):
        return exc
    logger.error("row %s failed", row.id, exc_info=exc)
    return Internal("the row could not be spoken; the worker's log has the cause under its id")
