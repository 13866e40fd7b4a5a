import pytest
from hypothesis import given
from hypothesis import strategies as st

from serve_app.text.spelling import spell
from serve_app.text.vocab import VOCAB, is_sound

LETTERS = {letter: letter.lower().replace("g", "ɡ") for letter in "ABCDEFGHIJKLMNOPQRSTUVWXYZ"}


@pytest.mark.parametrize(
    ("word", "american", "british"),
    [
        ("ship", "ʃˈɪp", "ʃˈɪp"),
        ("grate", "ɡɹˈAt", "ɡɹˈAt"),
        ("letter", "lˈɛtəɹ", "lˈɛtə"),
        ("boot", "bˈut", "bˈuːt"),
        ("nation", "nˈæʃən", "nˈæʃən"),
    ],
)
def test_words_are_read_by_the_commonest_spellings(word: str, american: str, british: str) -> None:
    assert spell(word, LETTERS, british=False) == american
    assert spell(word, LETTERS, british=True) == british


def test_words_without_a_vowel_are_spelt() -> None:
    assert spell("bcd", LETTERS, british=False) == "bcd"


def test_accents_digits_and_other_scripts_are_read_too() -> None:
    assert spell("é", LETTERS, british=False) == spell("e", LETTERS, british=False)
    assert spell("Straße", LETTERS, british=False) == spell("strasse", LETTERS, british=False)
    assert spell("7", LETTERS, british=False) == spell("seven", LETTERS, british=False)
    assert spell("да", LETTERS, british=False) == f"{spell('de', LETTERS, british=False)} ˈæ"


@given(st.text(max_size=20))
def test_whatever_holds_a_letter_is_heard(text: str) -> None:
    for british in (False, True):
        phonemes = spell(text, LETTERS, british=british)
        assert all(symbol in VOCAB for symbol in phonemes)
        if any(character.isalpha() for character in text):
            assert any(map(is_sound, phonemes))
