"""Rows to audio in one process: the front end and the engine of the service, without the service.

A row is spoken by the class that answers POST /invocations, so its audio is that answer's body, byte for byte where the
engine has as many threads (docs/engine-cpu.md).
"""

import asyncio
import hashlib
import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Protocol

from scripts.corpus.parts import Footer
from scripts.corpus.rows import Rejected, Row, request_for
from serve_app.audio.encoders import open_encoder
from serve_app.audio.pcm import duration_s, slices
from serve_app.config import Settings
from serve_app.deployments.chunker import BlockingFrontEnd, Chunker
from serve_app.engine.types import Engine
from serve_app.errors import EngineUnavailable, NothingToSpeak, QueueSaturated, SpeechError
from serve_app.metrics import NoRecorder
from serve_app.server.listener import Listener
from serve_app.server.speech import Phonemizer, Sentences, Speech
from serve_app.text.chunker import split_sentences
from serve_app.text.pieces import Piece

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
        self, rows: Sequence[Row], manner: Manner, heard: Callable[[Row, float], None]
    ) -> tuple[list[dict[str, Any]], Footer]:
        """The rows of a part as SCHEMA has them, and its footer.

        Args:
            heard: is told of each row as it is done, with its seconds of audio.
        Raises:
            EngineUnavailable, QueueSaturated: of the engine and no row's fault.
        """
        max_batch = self._settings.engine.max_batch
        speech = Speech(
            self._phonemizer,
            self._engine,
            NoRecorder(),
            lookahead_segments=max(self._settings.limits.lookahead_segments, max_batch),
            first_cut_above=self._settings.text.first_cut_above,
        )
        at_once = asyncio.Semaphore(max_batch + 1)

        async def spoken(row: Row) -> dict[str, Any] | Rejected:
            async with at_once:
                try:
                    told = await self._speak(speech, row, manner)
                except (EngineUnavailable, QueueSaturated):
                    raise
                except SpeechError as error:
                    heard(row, 0.0)
                    return Rejected.row_of(row, error)
                heard(row, told["duration_s"])
                return told

        async with asyncio.TaskGroup() as tasks:
            begun = [tasks.create_task(spoken(row)) for row in rows]
        outcomes = [task.result() for task in begun]
        done = [outcome for outcome in outcomes if not isinstance(outcome, Rejected)]
        rejected = tuple(outcome for outcome in outcomes if isinstance(outcome, Rejected))
        audio_s = sum(row["duration_s"] for row in done)
        return done, Footer(len(done), sum(len(row.text) for row in rows), audio_s, rejected)

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
