import pytest
from hypothesis import given
from hypothesis import strategies as st

from serve_app.text.first_cut import GROWTH, MIN_TOKENS, cut_first
from serve_app.text.pieces import Piece
from serve_app.text.split import split
from serve_app.text.vocab import VOCAB

SYMBOL = {token: symbol for symbol, token in VOCAB.items()}
CLAUSE = "one two three four five"  # 23 tokens, 24 with its mark


def piece(text: str) -> Piece:
    """A line whose words are spoken as they are written, capitals and digits apart."""
    words = text.split()
    return split([(at, f"{_said(word)} ") for at, word in enumerate(words)], words)[0]


def _said(word: str) -> str:
    return "".join("o" if character.isdigit() else character.lower() for character in word)


def parts(text: str, above: int = 40) -> list[str]:
    return [spoken(part) for part in cut_first(piece(text), above)]


def spoken(part: Piece) -> str:
    start, end = part.part or (0, len(part.phoneme_ids))
    return "".join(SYMBOL[token] for token in part.phoneme_ids[start:end])


@pytest.mark.parametrize("mark", [",", ";", ":", "—", " —", ",”", ",)"])
def test_a_long_sentence_is_cut_where_its_first_clause_ends_and_the_mark_begins(mark: str) -> None:
    assert parts(f"{CLAUSE}{mark} {CLAUSE}.") == [CLAUSE, f"{mark} {CLAUSE}."]


@pytest.mark.parametrize(
    "text",
    [
        f"{CLAUSE}.",
        f"{CLAUSE} {CLAUSE} {CLAUSE}.",
        f"well, {CLAUSE} {CLAUSE}.",
        f"{CLAUSE} {CLAUSE}, too.",
        f"{CLAUSE}. {CLAUSE}.",
        f"{CLAUSE}.{CLAUSE}.",
        f"{CLAUSE} 1,250,000 {CLAUSE}.",
        f"{CLAUSE} Paris, France {CLAUSE}.",
        f"{CLAUSE} “Paris, France” {CLAUSE}.",
        f"{CLAUSE} King, Jr. {CLAUSE}.",
        f"{CLAUSE} May 3, 2024 {CLAUSE}.",
        f"{CLAUSE} 3, 4 {CLAUSE}.",
    ],
)
def test_it_stays_whole_without_a_place_to_breathe_or_if_a_part_were_too_short(text: str) -> None:
    assert len(parts(text)) == 1


def test_before_a_capital_that_is_no_name_there_is_room_for_a_cut() -> None:
    assert len(parts(f"{CLAUSE} in Paris, I {CLAUSE}.")) == 2
    assert len(parts(f"{CLAUSE} in a town, Bob {CLAUSE}.")) == 2


def test_one_written_word_spoken_as_several_is_not_cut() -> None:
    spoken = "fourteen, dollars"
    [part] = cut_first(split([(0, f"{CLAUSE} "), (1, f"{spoken} "), (2, CLAUSE)], ["a", "$14", "b"])[0], 40)
    assert len(part.words) == 3


def test_a_sentence_of_no_more_tokens_than_asked_for_stays_whole() -> None:
    text = f"{CLAUSE}, {CLAUSE}."
    assert len(parts(text, above=len(piece(text).phoneme_ids))) == 1
    assert len(parts(text, above=len(piece(text).phoneme_ids) - 1)) == 2


def test_later_parts_are_no_longer_than_can_be_computed_while_the_one_before_plays() -> None:
    cut = parts(", ".join([CLAUSE] * 12))
    assert [round(len(part) / 24) for part in cut] == [1, 2, 6, 3]


def test_where_no_mark_is_in_reach_the_rest_stays_whole() -> None:
    assert len(parts(f"{CLAUSE}, {CLAUSE} {CLAUSE} {CLAUSE} {CLAUSE}, {CLAUSE}")) == 2


def test_each_part_is_told_the_whole_sentence_and_only_the_last_one_goes_on() -> None:
    long = Piece(piece(", ".join([CLAUSE] * 12)).phoneme_ids, continues=True, dropped=2)
    first, *others = cut_first(long, 40)
    assert all(part.phoneme_ids == long.phoneme_ids for part in (first, *others))
    assert (first.continues, first.dropped, first.is_begun, first.is_unfinished) == (False, 2, False, True)
    assert [(part.is_begun, part.is_unfinished) for part in others] == [(True, True), (True, True), (True, False)]
    assert [(part.continues, part.dropped) for part in others] == [(False, 0), (False, 0), (True, 0)]


@given(
    st.lists(
        st.sampled_from(["ab", "abcdefgh", "a,", "abc;", "Abc,", "12,", "abc:", "—", "“ab", "ab,”", "(a"]), min_size=1
    )
)
def test_nothing_is_lost_and_no_part_is_short(words: list[str]) -> None:
    [whole, *_] = split([(at, f"{_said(word)} ") for at, word in enumerate(words)], words) or [piece("a")]
    cut = cut_first(whole, 40)
    assert "".join(map(spoken, cut)) == spoken(whole)
    assert [word.text for part in cut for word in part.words] == [word.text for word in whole.words]
    for part in cut:
        for word in part.words:
            start, end = part.part or (0, len(part.phoneme_ids))
            assert start <= word.start < word.end <= end
        assert len(cut) == 1 or part.spoken_tokens >= MIN_TOKENS
    assert all(b.spoken_tokens <= GROWTH * a.spoken_tokens for a, b in zip(cut, cut[1:-1], strict=False))
