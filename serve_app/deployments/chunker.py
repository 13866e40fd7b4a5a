"""The text front end in one Serve replica: a sentence in, pieces for the model out."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

from serve_app.errors import SpeechError
from serve_app.text.pieces import Piece
from serve_app.tracing import NO_TRACER, Tracer


class BlockingFrontEnd(Protocol):
    """What the phonemizer offers; not thread-safe, so that one thread owns it."""

    @property
    def languages(self) -> tuple[str, ...]: ...

    def pieces(self, sentence: str, lang: str) -> list[Piece]: ...


class Chunker:
    """Runs the front end on a thread of its own: the phonemizer keeps state between calls and two must never mix."""

    def __init__(self, load: Callable[[], BlockingFrontEnd], tracer: Tracer = NO_TRACER) -> None:
        self._tracer = tracer
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="front-end")
        self._front_end = self._thread.submit(load).result()

    async def pieces(self, sentence: str, lang: str, context: str = "") -> list[Piece] | SpeechError:
        """The pieces, or UnsupportedLanguage as an answer. Cancelling drops a sentence that has not begun.

        `context`: of the caller's span, for the tracer.
        """
        loop = asyncio.get_running_loop()
        with self._tracer.begin("phonemize", context):
            try:
                return await loop.run_in_executor(self._thread, self._front_end.pieces, sentence, lang)
            except SpeechError as error:
                return error

    async def languages(self) -> tuple[str, ...]:
        """Codes of the languages whose front end is installed."""
        return self._front_end.languages
