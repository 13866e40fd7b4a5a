"""espeak-ng behind misaki: Spanish, French, Hindi, Italian, Portuguese, and English words outside the dictionaries.

espeak-ng is GPL and optional; nothing here is imported before it is wanted. Each phonemizer has its own copy of the
library, since its state is global; none may be called from two threads.
"""

import logging
import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate
from typing import Any, Protocol

from serve_app.text.normalize import Word
from serve_app.text.split import Part

_LANGUAGES = {"e": "es", "f": "fr-fr", "h": "hi", "i": "it", "p": "pt-br"}
LANGUAGES = tuple(_LANGUAGES)

# phonemizer wants at least one mark to split at, and would split "3.14"; clauses are split here, so it gets one that
# no text holds.
_NO_MARKS = "\n"
_CLAUSE_WORDS = 50  # espeak-ng drops words of clauses with some hundreds
_MARKS = re.compile(r'[;:,.!?—…“”"()]+(?![^\W_])|(?<![^\W_])[;:,.!?—…“”"()]+')


Fallback = Callable[[Any], tuple[str | None, int | None]]
"""From a token of misaki's to (phonemes, rating)."""


class EspeakMissing(Exception):
    """espeak-ng, or what binds it to Python, is not installed or does not load."""


class _Backend(Protocol):
    def phonemize(self, text: list[str]) -> list[str]: ...


def open_fallback(british: bool) -> Fallback:
    """misaki's reader of unknown English words.

    Raises:
        EspeakMissing
    """
    espeak = _import()
    fallback = espeak.EspeakFallback.__new__(espeak.EspeakFallback)
    fallback.british, fallback.version = british, None
    # Its own backend would leave marks such as "(hi)" where the script changes, and they would be spoken.
    fallback.backend = _open_backend("en-gb" if british else "en-us")
    read: Fallback = fallback
    return read


class EspeakLanguage:
    """Words of one language to phonemes, clause by clause, so that words can be told apart in what comes back.

    Raises:
        EspeakMissing
    """

    def __init__(self, lang: str) -> None:
        espeak = _import()
        with _loading():
            self._g2p = espeak.EspeakG2P(language=_LANGUAGES[lang])
        self._g2p.backend = _open_backend(_LANGUAGES[lang], marks=_NO_MARKS)

    def parts(self, words: Sequence[Word]) -> list[Part]:
        """Phonemes word by word, blanks and punctuation included."""
        parts: list[Part] = []
        clause: list[tuple[int, str]] = []
        for index, word in enumerate(words):
            gap = " "
            for text, is_mark in _segments(word.spoken):
                if is_mark:
                    parts += self._clause(clause)
                    clause = []
                    parts.append((index, gap + text))
                else:
                    if not clause:
                        parts.append((index, gap))
                    for core in text.split():
                        clause.append((index, core))
                        if len(clause) == _CLAUSE_WORDS:
                            parts += [*self._clause(clause), (index, " ")]
                            clause = []
                gap = ""
        return parts + self._clause(clause)

    def _clause(self, clause: Sequence[tuple[int, str]]) -> list[Part]:
        """Read together, since words change beside each other; then matched with the words they came from."""
        if not clause:
            return []
        groups = self._read(" ".join(core for _, core in clause)).split()
        owners = [index for index, _ in clause]
        if len(groups) != len(clause):  # a number became several words, or two words one
            owners = _shared_out(groups, owners, [len(self._read(core)) for _, core in clause])
        return [
            (owner, f" {group}" if at else group) for at, (owner, group) in enumerate(zip(owners, groups, strict=True))
        ]

    def _read(self, text: str) -> str:
        phonemes, _ = self._g2p(text)
        return str(phonemes)


def _segments(text: str) -> Iterator[tuple[str, bool]]:
    at = 0
    for mark in _MARKS.finditer(text):
        if at < mark.start():
            yield text[at : mark.start()], False
        yield mark[0], True
        at = mark.end()
    if at < len(text):
        yield text[at:], False


def _shared_out(groups: Sequence[str], owners: Sequence[int], lengths: Sequence[int]) -> list[int]:
    """The owner of each group, by how long each owner's word is when it is read alone."""
    ends = list(accumulate(max(length, 1) for length in lengths))
    scale = ends[-1] / sum(map(len, groups)) if groups else 0.0
    shared = []
    heard = 0
    for group in groups:
        shared.append(owners[min(bisect_right(ends, (heard + len(group) / 2) * scale), len(owners) - 1)])
        heard += len(group)
    return shared


def _import() -> Any:
    try:
        from misaki import espeak
    except (ImportError, OSError, RuntimeError, AttributeError) as exc:
        raise EspeakMissing("espeak-ng is not installed") from exc
    return espeak


@contextmanager
def _loading() -> Iterator[None]:
    try:
        yield
    except (RuntimeError, OSError) as exc:
        raise EspeakMissing("espeak-ng does not load") from exc


def _open_backend(language: str, *, marks: str | None = None) -> _Backend:
    from phonemizer.backend import EspeakBackend

    with _loading():
        backend: _Backend = EspeakBackend(
            language=language,
            punctuation_marks=marks,
            preserve_punctuation=True,
            with_stress=True,
            tie="^",
            language_switch="remove-flags",
        )
    logging.getLogger("phonemizer").setLevel(logging.ERROR)  # it warns of each foreign word, at every call
    return backend
