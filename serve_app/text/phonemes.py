"""From one sentence to phoneme pieces for the model: the front of the text layer.

Kokoro's languages: a American English, b British English, e Spanish, f French, h Hindi, i Italian, j Japanese,
p Brazilian Portuguese, z Mandarin Chinese.
"""

import logging
from collections.abc import Sequence
from contextlib import suppress
from typing import Protocol

from serve_app.config import TextSettings
from serve_app.errors import UnsupportedLanguage
from serve_app.text import east_asian, espeak
from serve_app.text.espeak import Fallback
from serve_app.text.normalize import Word, normalize
from serve_app.text.pieces import Piece
from serve_app.text.split import Part, split

log = logging.getLogger(__name__)

LANGUAGES = frozenset("abefhijpz")

_PACKAGES = {
    **dict.fromkeys(
        espeak.LANGUAGES, "espeak-ng (packages espeakng-loader and phonemizer-fork, and the setting text.espeak)"
    ),
    **east_asian.PACKAGES,
}


class _Phonemizer(Protocol):
    def parts(self, words: Sequence[Word]) -> list[Part]: ...


class FrontEnd:
    """Loaded phonemizers. Building takes seconds (spaCy, dictionaries).

    NOT thread-safe: spaCy's memory zones and espeak-ng's state allow one call at a time, so the owner calls `pieces`
    from one thread. It blocks for milliseconds, longer for text of many kilobytes.
    """

    def __init__(self, settings: TextSettings) -> None:
        self._phonemizers: dict[str, _Phonemizer] = {}
        fallbacks = self._open_espeak() if settings.espeak else {}
        for lang in east_asian.LANGUAGES:
            with suppress(east_asian.NotInstalled):
                self._phonemizers[lang] = east_asian.EastAsian(lang)
        from serve_app.text import english  # imports spaCy, which whoever only imports us can do without

        tagger = english.load_tagger()
        for lang, british in (("a", False), ("b", True)):
            self._phonemizers[lang] = english.English(tagger, british=british, fallback=fallbacks.get(lang))

    def _open_espeak(self) -> dict[str, Fallback]:
        """All that espeak-ng reads, opened at once: 35 ms and 3 MB a language, and no request waits for it."""
        try:
            self._phonemizers |= {lang: espeak.EspeakLanguage(lang) for lang in espeak.LANGUAGES}
            return {"a": espeak.open_fallback(british=False), "b": espeak.open_fallback(british=True)}
        except espeak.EspeakMissing as exc:
            self._phonemizers.clear()
            log.warning("%s: unknown English words are approximated by their letters", exc)
            return {}

    @property
    def languages(self) -> tuple[str, ...]:
        """Codes of the languages that `pieces` can speak."""
        return tuple(sorted(self._phonemizers))

    def pieces(self, sentence: str, lang: str) -> list[Piece]:
        """Phonemes of one sentence, in as many pieces as the model's limit asks for; [] if nothing of it is spoken.

        Raises:
            UnsupportedLanguage: unknown, or its phonemizer is not installed. No text raises anything.
        """
        phonemizer = self._phonemizers.get(lang)
        if phonemizer is None:
            raise UnsupportedLanguage(_refusal(lang, self.languages))
        words = normalize(sentence, lang)
        if not any(any(map(str.isalnum, word.spoken)) for word in words):
            return []
        return split(phonemizer.parts(words), [word.written for word in words])


def _refusal(lang: str, supported: Sequence[str]) -> str:
    installed = f"supported here: {', '.join(supported)}"
    if lang not in LANGUAGES:
        return f"unknown language; {installed}"
    return f"the language {lang} needs {_PACKAGES[lang]}, not installed here; {installed}"
