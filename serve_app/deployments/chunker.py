"""The text front end in one Serve replica: a sentence in, pieces for the model out."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

from serve_app.errors import SpeechError
from serve_app.metrics import NO_RECORDER, SENTENCES_IN_HAND, Recorder
from serve_app.text.pieces import Piece
from serve_app.tracing import NO_TRACER, Tracer


class BlockingFrontEnd(Protocol):
    """What the phonemizer offers; not thread-safe, so that one thread owns it."""

    @property
    def languages(self) -> tuple[str, ...]: ...

    def pieces(self, sentence: str, lang: str) -> list[Piece]: ...


class Chunker:
    """Runs the front end on a thread of its own: the phonemizer keeps state between calls and two must never mix."""

    def __init__(
        self, load: Callable[[], BlockingFrontEnd], tracer: Tracer = NO_TRACER, recorder: Recorder = NO_RECORDER
    ) -> None:
        self._tracer, self._recorder = tracer, recorder
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="front-end")
        self._front_end = self._thread.submit(load).result()
        self._in_hand = 0
        self._count(0)  # from its start on: where no Chunker tells, there is none

    async def pieces(self, sentence: str, lang: str, context: str = "") -> list[Piece] | SpeechError:
        """The pieces, or UnsupportedLanguage as an answer. Cancelling drops a sentence that has not begun.

        `context`: of the caller's span, for the tracer.
        """
        loop = asyncio.get_running_loop()
        with self._tracer.begin("phonemize", context):
            self._count(+1)
            try:
                return await loop.run_in_executor(self._thread, self._front_end.pieces, sentence, lang)
            except SpeechError as error:
                return error
            finally:
                self._count(-1)

    def _count(self, change: int) -> None:
        self._in_hand += change
        self._recorder.record(SENTENCES_IN_HAND, self._in_hand)

    async def languages(self) -> tuple[str, ...]:
        """Codes of the languages whose front end is installed."""
        return self._front_end.languages
