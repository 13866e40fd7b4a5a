from typing import Any

import pytest

from serve_app.text.english import English
from serve_app.text.normalize import Word, normalize
from serve_app.text.split import split
from serve_app.text.vocab import VOCAB, is_sound

SYMBOL = {token: symbol for symbol, token in VOCAB.items()}


@pytest.fixture(scope="module")
def english(tagger: Any) -> English:
    return English(tagger, british=False, fallback=None)


def heard(english: English, text: str) -> str:
    words = normalize(text, "a")
    pieces = split(english.parts(words), [word.written for word in words])
    return " ".join("".join(SYMBOL[token] for token in piece.phoneme_ids) for piece in pieces)


def test_phonemes_belong_to_the_written_word(english: English) -> None:
    words = normalize("It costs $14.20, see example.com.", "a")
    owned: dict[str, str] = {}
    for index, part in english.parts(words):
        owned[words[index].written] = owned.get(words[index].written, "") + part
    assert owned == {
        "It": "ˌɪt ",
        "costs": "kˈɔsts ",
        "$14.20,": "fˌɔɹtˈin dˈɑləɹz ænd twˈɛnti sˈɛnts, ",
        "see": "sˈi ",
        "example.com.": "ɪɡzˈæmpəl dˈɑt kˈɑm. ",
    }


def test_inline_forms_set_phonemes_stress_and_number_reading(english: English) -> None:
    assert heard(english, "[Kokoro](/kˈOkəɹO/) and ([New York](/nu jɔɹk/)).") == "kˈOkəɹO ænd (nu jɔɹk)."
    assert heard(english, "[and](+2)") == "ˈænd"
    assert heard(english, "[and](-2)") == "ænd"
    assert heard(english, "[101](#a&#)") != heard(english, "101")


def test_an_inline_form_touches_no_other_word(english: English) -> None:
    """Where the tagger's tokens differ from misaki's own, misaki puts the phonemes on a later word."""
    assert heard(english, "[etc](/ɛtsˈɛTəɹə/). [one](/wˈʌn/) two") == "ɛtsˈɛTəɹə wˈʌn tˈu"


def test_unknown_words_are_approximated_without_a_fallback(english: English) -> None:
    for text in ("Kubernetes", "blorptastic", "Привет", "你好", "Łódź"):
        assert any(map(is_sound, heard(english, text)))


def test_a_fallback_that_stays_silent_is_replaced_by_spelling(tagger: Any) -> None:
    silent = English(tagger, british=False, fallback=lambda token: ("", 2))
    assert any(map(is_sound, heard(silent, "blorptastic")))


def test_words_tagged_as_punctuation_are_spoken(english: English) -> None:
    """misaki drops what the tagger takes for a mark: a dash before a number among them."""
    parts = english.parts([Word("--5", "--5"), Word("é", "é"), Word("ñ", "ñ")])
    assert {index for index, part in parts if any(map(is_sound, part))} == {0, 1, 2}


class BrokenOn:
    """misaki's G2P as far as `English` uses it, with a word that it cannot bear."""

    def __init__(self, g2p: Any, word: str) -> None:
        self._g2p, self._word = g2p, word

    def __call__(self, text: str, preprocess: Any) -> Any:
        if self._word in text:
            raise IndexError("list index out of range")
        return self._g2p(text, preprocess=preprocess)


def test_where_misaki_fails_only_the_word_at_fault_is_spelt(
    tagger: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    english = English(tagger, british=False, fallback=None)
    whole = heard(english, "the quick fox")
    monkeypatch.setattr(english, "_g2p", BrokenOn(english._g2p, "quick"))
    words = heard(english, "the quick fox").split()
    assert len(words) == 3
    assert (words[0], words[2]) == (whole.split()[0], whole.split()[2])
    assert any(map(is_sound, words[1]))
    assert "quick" not in caplog.text


def test_the_tagger_forgets_the_words_it_met(english: English, tagger: Any) -> None:
    heard(english, "warm up")
    before = len(tagger.vocab.strings)
    for number in range(20):
        heard(english, f"blorp{chr(97 + number)}tastic zyxx{chr(97 + number)}qq")
    assert len(tagger.vocab.strings) == before
