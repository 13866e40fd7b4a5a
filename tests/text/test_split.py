import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serve_app.text.pieces import Piece
from serve_app.text.split import split
from serve_app.text.vocab import MAX_PHONEMES, VOCAB, is_sound

SYMBOL = {token: symbol for symbol, token in VOCAB.items()}


def phonemes(piece: Piece) -> str:
    return "".join(SYMBOL[token] for token in piece.phoneme_ids)


def pieces(text: str, limit: int = MAX_PHONEMES) -> list[Piece]:
    """Split a line whose words are their own phonemes."""
    words = text.split()
    return split([(at, f"{word} ") for at, word in enumerate(words)], words, limit)


def test_a_line_that_fits_is_one_piece() -> None:
    [piece] = pieces("wˈʌn tˈu.")
    assert phonemes(piece) == "wˈʌn tˈu."
    assert not piece.continues
    assert [(word.text, phonemes(piece)[word.start : word.end]) for word in piece.words] == [
        ("wˈʌn", "wˈʌn"),
        ("tˈu.", "tˈu"),
    ]


@pytest.mark.parametrize("text", ["", "...", "— !", "ˈ", "ː"])
def test_a_line_without_a_sound_is_no_piece(text: str) -> None:
    assert pieces(text) == []


def test_symbols_outside_the_vocabulary_are_dropped_and_counted() -> None:
    [piece] = pieces("ɹˈɑt\u0329n❓ mˈɪtn")
    assert phonemes(piece) == "ɹˈɑtn mˈɪtn"
    assert piece.dropped == 2


def test_blanks_are_single_and_stand_before_no_closing_mark() -> None:
    [piece] = split([(0, " a "), (1, " "), (2, "“ b ” "), (3, "! ")], ["a", "-", "b", "!"])
    assert phonemes(piece) == "a “b”!"


def test_the_cut_falls_behind_the_strongest_mark_near_the_middle() -> None:
    text = "aa aa, aa aa aa; aa aa aa aa, aa aa"
    first, second = pieces(text, limit=24)
    assert (phonemes(first), phonemes(second)) == ("aa aa, aa aa aa;", "aa aa aa aa, aa aa")
    assert not first.continues


def test_marks_inside_closing_quotes_count() -> None:
    first, second = pieces("aa aa aa aa.” aa aa aa aa", limit=20)
    assert (phonemes(first), phonemes(second)) == ("aa aa aa aa.”", "aa aa aa aa")


def test_without_punctuation_the_pieces_are_even_cut_between_words_and_said_to_continue() -> None:
    result = pieces(" ".join(["wɜɹd"] * 130))
    assert [piece.continues for piece in result] == [True, False]
    lengths = [len(piece.phoneme_ids) for piece in result]
    assert max(lengths) - min(lengths) <= 5
    assert all(word.end - word.start == 4 for piece in result for word in piece.words)
    assert sum(len(piece.words) for piece in result) == 130


def test_a_written_word_of_several_spoken_words_stays_whole_if_it_can() -> None:
    words = ["aaaa", "bb bb bb", "cccc"]
    first, second = split([(0, "aaaa "), (1, "bb bb bb "), (2, "cccc")], words, limit=14)
    assert (phonemes(first), phonemes(second)) in [("aaaa bb bb bb", "cccc"), ("aaaa", "bb bb bb cccc")]


def test_a_word_longer_than_a_piece_is_cut_hard_and_belongs_to_the_piece_where_it_begins() -> None:
    result = split([(0, "a "), (1, "b" * 1200), (2, " s")], ["a", "b", "s"])
    assert "".join(map(phonemes, result)).replace(" ", "") == f"a{'b' * 1200}s"
    assert max(len(piece.phoneme_ids) for piece in result) <= MAX_PHONEMES
    assert [word.text for piece in result for word in piece.words] == ["a", "b", "s"]
    assert all(piece.continues for piece in result[:-1])


def test_a_hard_cut_separates_no_length_mark_from_its_sound() -> None:
    result = split([(0, "ˈiː" * 400)], ["word"])
    assert len(result) == 3
    for piece in result:
        assert phonemes(piece).startswith("ˈ")
        assert phonemes(piece).endswith("ː")


def test_a_line_of_length_marks_alone_is_no_piece() -> None:
    assert split([(0, "ː" * 2000)], ["word"]) == []


def test_parts_of_unknown_words_have_no_spans() -> None:
    [piece] = split([(-1, "ni↓xau↓")], ["你好"])
    assert piece.words == ()


def heard_words(split_pieces: list[Piece]) -> list[str]:
    return [word.text for piece in split_pieces for word in piece.words if any(map(is_sound, word.text))]


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.text(alphabet="abəˈː.,!—…;“”() ❓", max_size=30), max_size=40),
    st.integers(min_value=5, max_value=60),
)
def test_any_line_is_split_without_loss(words: list[str], limit: int) -> None:
    parts = [(at, f"{word} ") for at, word in enumerate(words)]
    whole = split(parts, words, limit=10**6)
    result = split(parts, words, limit)
    heard = [symbol for piece in whole for symbol in phonemes(piece) if is_sound(symbol)]
    assert [symbol for piece in result for symbol in phonemes(piece) if is_sound(symbol)] == heard
    for piece in result:
        assert 1 <= len(piece.phoneme_ids) <= limit
        assert any(map(is_sound, phonemes(piece)))
        at = 0
        for word in piece.words:
            assert at <= word.start < word.end <= len(piece.phoneme_ids)
            at = word.end
    assert heard_words(result) == heard_words(whole)
