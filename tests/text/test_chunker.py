import codecs
import re
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serve_app.text.chunker import IncrementalSentenceChunker, is_cut_short, is_speakable, split_sentences


def read_cases(path: Path) -> list[tuple[str, list[str]]]:
    """The text and its pieces, for each case of the table; the table's head says how it is written."""
    cases = []
    for part in re.split(r"^%%\n", path.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]:
        lines = [line for line in part.rstrip("\n").split("\n") if not line.startswith("%%% ")]
        first = next(at for at, line in enumerate(lines) if line.startswith("=>"))
        cases.append(("\n".join(lines[:first]), [line[3:] for line in lines[first:] if line != "=>"]))
    return cases


CASES = read_cases(Path(__file__).parent / "chunker_cases.txt")


def run(*slices: str, max_chars: int = 400) -> tuple[list[list[str]], str | None]:
    """What each feed() returned, and what flush() did."""
    chunker = IncrementalSentenceChunker(max_chars)
    return [chunker.feed(part) for part in slices], chunker.flush()


def pieces_of(*slices: str, max_chars: int = 400) -> list[str]:
    fed, rest = run(*slices, max_chars=max_chars)
    return [piece for part in fed for piece in part] + ([] if rest is None else [rest])


def released_at(text: str) -> int:
    """How many characters were fed when the first piece came out."""
    chunker = IncrementalSentenceChunker()
    return next(at for at, char in enumerate(text, start=1) if chunker.feed(char))


def spoken(text: str) -> str:
    """Letters, digits, marks and symbols that must survive, without blanks."""
    return "".join(char for char in text if char.isalnum() or char in "%&@€$°")


# --- The table


@pytest.mark.parametrize(("text", "pieces"), CASES, ids=[repr(text[:40]) for text, _ in CASES])
def test_text_is_cut_into_the_right_pieces(text, pieces):
    assert split_sentences(text) == pieces


@pytest.mark.parametrize(("text", "pieces"), CASES, ids=[repr(text[:40]) for text, _ in CASES])
def test_one_character_at_a_time_gives_the_same_pieces(text, pieces):
    assert pieces_of(*text) == pieces


def test_every_cut_in_two_gives_the_same_pieces():
    for text, pieces in CASES:
        for at in range(1, len(text)):
            assert pieces_of(text[:at], text[at:]) == pieces


def test_windows_line_ends_change_nothing():
    for text, pieces in CASES:
        assert pieces_of(*text.replace("\n", "\r\n")) == pieces


# --- When a piece comes out


@pytest.mark.parametrize("closer", [")", "]", "”", "’", '"', "」", "»", ".”).", "**"])
def test_a_closer_that_comes_in_the_next_token_belongs_to_its_sentence(closer):
    fed, rest = run("Press star to hear it again.", closer, " Then hang up.")
    assert fed == [[], [], ["Press star to hear it again." + closer]]
    assert rest == "Then hang up."


def test_a_bracketed_sentence_is_kept_whole_over_three_tokens():
    fed, rest = run("(Press star to hear it again.", ")", " Then hang up.")
    assert fed == [[], [], ["(Press star to hear it again.)"]]
    assert rest == "Then hang up."


def test_a_sentence_that_ends_in_a_number_is_out_with_the_next_word():
    assert run("They landed in 1969. ", "Nobody slept.") == ([[], ["They landed in 1969."]], "Nobody slept.")
    assert run("They landed in 1969. ", "N")[0] == [[], ["They landed in 1969."]]


@pytest.mark.parametrize(
    ("text", "sure_after"),
    [
        ("Stop! Go", "Stop! "),
        ("Why? Go", "Why? "),
        ("What?! Go", "What?! "),
        ("Stop!\nGo", "Stop!\n"),
        ("晴れ。雨", "晴れ。雨"),
        ("晴れ。\n雨", "晴れ。\n"),
        ("「晴れ。」雨", "「晴れ。」雨"),
        ("ठीक। अब", "ठीक। "),
        ('"Stop!" Go', '"Stop!" G'),
        ("Stop. Go", "Stop. G"),
        ("Stop.\nGo", "Stop.\n"),
        ("In 1969.\nGo", "In 1969.\n"),
        ("In 1969. 4", "In 1969. 4"),
        ("Hm... Go", "Hm... G"),
        ("In the U.S. She", "In the U.S. She"),
        ("It is 5 p.m. Please", "It is 5 p.m. Pl"),
        ("I have 5. No more", "I have 5. No "),
        ("I have 5. He does", "I have 5. H"),
        ("Well, etc. We do", "Well, etc. W"),
        ("# Title\nText", "# Title\n"),
        ("- milk\n- rice", "- milk\n"),
        ("1. milk\n2. rice", "1. milk\n"),
        ("Shopping\n- milk", "Shopping\n- "),
        ("Shopping\n1. milk", "Shopping\n1. "),
        ("One\n\nTwo", "One\n\n"),
        ("```\nx = 1\n```", "```\nx = 1\n"),
        ("One\n---\nTwo", "One\n---\n"),
    ],
)
def test_a_piece_comes_out_as_soon_as_it_is_sure(text, sure_after):
    more = " and on" if text == sure_after else ""
    expected = len(sure_after) + (1 if text == "In the U.S. She" else 0)  # the blank that completes the word
    assert released_at(text + more) == expected


def test_list_items_come_out_at_their_line_break():
    fed, rest = run("Shopping\n- oat milk\n", "- two limes\n", "- rice")
    assert fed == [["Shopping", "oat milk"], ["two limes"], []]
    assert rest == "rice"


def test_flush_settles_open_questions_as_no_end():
    assert run("In the U.S. She") == ([[]], "In the U.S. She")
    assert run("I have 5. No") == ([[]], "I have 5. No")
    assert run("True.[1") == ([[]], "True.[1")
    assert run("He has\n12") == ([[]], "He has 12")


def test_a_chunker_is_as_new_after_flush():
    chunker = IncrementalSentenceChunker()
    chunker.feed("```\n> « [a `b (c. In the U.S. Sh")
    chunker.flush()
    assert chunker.feed("- One! Two! «") == ["One!", "Two!"]
    assert chunker.flush() is None


# --- Whole behaviours


def test_titles_times_and_initials_do_not_cut():
    text = (
        "Prof. Okafor rang at 7 a.m. about St. Ives, J. K. Mbeki and the U.K. market, i.e. nothing new. "
        "It was 3.30 p.m. by then."
    )
    pieces = pieces_of(*text)
    assert len(pieces) == 2
    assert pieces[0].endswith("nothing new.")
    assert " ".join(pieces) == text


def test_bytes_cut_inside_a_character_arrive_whole():
    text = "café 🌧 naïve."
    data = text.encode()
    for at in range(len(data) + 1):
        decode = codecs.getincrementaldecoder("utf-8")().decode
        assert pieces_of(decode(data[:at]), decode(data[at:])) == [text]


def test_japanese_paragraphs_are_cut_at_their_own_marks_and_nothing_is_lost():
    paragraph = "今日は朝から雨が降っていて、駅前の通りには傘をさした人がたくさん並んでいました。" * 10
    assert len(split_sentences(paragraph)) == 10
    assert split_sentences(paragraph * 2) == split_sentences(paragraph) * 2
    assert "".join(split_sentences(paragraph)) == paragraph


@pytest.mark.parametrize("number", ["48,250", "18,6", "1.234,56", "48 250", "48, 250"])
def test_the_length_fallback_never_cuts_a_number(number):
    for before in range(40):
        text = "x" * before + f" about {number} people, or more than that, came to see it and stayed for a while"
        pieces = pieces_of(*text, max_chars=40)
        assert len(pieces) > 1
        assert any(number in piece for piece in pieces)
        assert "".join(pieces).replace(" ", "") == text.replace(" ", "")


def test_long_text_is_cut_at_a_clause_mark_before_a_blank():
    text = "we walked along the river for an hour, and then we sat down to eat our bread"
    assert split_sentences(text, max_chars=60) == [
        "we walked along the river for an hour,",
        "and then we sat down to eat our bread",
    ]
    assert (
        split_sentences(text.replace(",", ""), max_chars=60)[0]
        == "we walked along the river for an hour and then we sat down"
    )


def test_a_clause_mark_near_the_start_leaves_no_stub():
    pieces = split_sentences("so, " + "word " * 30, max_chars=60)
    assert len(pieces[0]) > 40


def test_japanese_without_a_full_stop_is_cut_at_a_comma():
    pieces = split_sentences("雨が降っていて、" * 20, max_chars=60)
    assert all(piece.endswith("、") for piece in pieces)
    assert "".join(pieces) == "雨が降っていて、" * 20


def test_long_links_addresses_and_words_are_never_cut():
    url = "https://example.com/" + "path/" * 15
    link = "[a link with many words in its text, and more](/kˈOkəɹO wˈɜɹd/)"
    pieces = pieces_of(*f"go to {url} and then to {link} and on", max_chars=40)
    assert any(url in piece for piece in pieces)
    assert any(link in piece for piece in pieces)


def test_a_bracket_that_is_never_closed_holds_nothing_back_for_long():
    text = "An [open bracket. " + "This is a sentence. " * 30
    assert len(pieces_of(*text)) > 10
    assert len(pieces_of(*text.replace("[", "`"))) > 10


ENDLESS = [
    "a",
    "word ",
    "日",
    ".",
    "-",
    "#",
    "`",
    "[a ",
    "`a ",
    "a.[1 ",
    "U.S. ",
    '"',
    "! ",
    "1. ",
    "a😀",
    "😀",
    "e\u0301",
]


@pytest.mark.parametrize("text", [*ENDLESS, "\u0301", "> ", "\n", "a\n", "[pause:1s] ", 'a. "'])
def test_endless_text_is_released_with_bounded_memory(text):
    chunker = IncrementalSentenceChunker()
    text *= 20_000 // len(text)
    longest = chars = 0
    tracemalloc.start()
    try:
        for char in text:
            for piece in chunker.feed(char):
                longest = max(longest, len(piece))
                chars += len(spoken(piece))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert longest <= 4 * 400 + 1
    assert peak < 150_000
    if "pause" not in text:
        assert chars + len(spoken(chunker.flush() or "")) == len(spoken(text))


@pytest.mark.parametrize("char", ["a", ".", "`", "日"])
def test_two_hundred_thousand_characters_without_an_end_pass_one_by_one(char):
    """With work that grew with what was read before, this would not end."""
    pieces = pieces_of(*(char * 200_000))
    assert len("".join(pieces)) == (200_000 if char.isalpha() else 0)


def test_a_bound_too_small_for_a_word_is_refused():
    with pytest.raises(ValueError, match="max_chars"):
        IncrementalSentenceChunker(7)


# --- Speakable


@pytest.mark.parametrize("text", ["a", "é", "7", "日", "ठ", "%", "€", "&", "+1", "# 5", "- x", "...a", "[Kokoro](/k/)"])
def test_text_with_something_to_say_is_speakable(text):
    assert is_speakable(text)


@pytest.mark.parametrize(
    "text", ["", " ", "...", "🎉", "?!", "—", "[pause:300ms]", "```python\n```", "---", "“”", "\u0301"]
)
def test_text_without_anything_to_say_is_not_speakable(text):
    assert not is_speakable(text)


# --- Properties

WORDS = """
    Mr. Dr. a.m. p.m. U.S. e.g. etc. No. J. I. Inc. St. Jan. Sun. 1969. 5. 3.30 2.0.1 $14.20 48,250 18,6 She Nobody
    Oktober Monday the word then ... … . ! ? ?! 。 ！ ？ । ) ] ” ’ " 」 » ( [ “ ‘ 「 « ¿ ¡ , ; : 、 — - * ** _ ` ```
    # ## > | 日本 と ठीक 🎉 👍🏽 https://x.example/a.b?c=D. kim.r@example.museum, [docs.](http://a.b/c)
    [Kokoro](/kˈOkəɹO/) [pause:300ms] [1] 1. a) (2) - • --- |---| é e\u0301 % & @
"""
FRAGMENTS = st.sampled_from(WORDS.split())
BLANKS = st.sampled_from(["", "", " ", " ", " ", "  ", "\n", "\n\n", "\r\n", "\u00a0", "\t"])
TEXTS = st.lists(st.tuples(FRAGMENTS, BLANKS), max_size=40).map(lambda parts: "".join(a + b for a, b in parts))
BOUNDS = st.sampled_from([8, 20, 60, 400])


@settings(max_examples=200, deadline=None)
@given(text=TEXTS, max_chars=BOUNDS, data=st.data())
def test_any_slicing_gives_the_same_pieces(text, max_chars, data):
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=12)))
    slices = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    whole = split_sentences(text, max_chars)
    assert pieces_of(*slices, max_chars=max_chars) == whole
    assert pieces_of(*text, max_chars=max_chars) == whole


@settings(max_examples=200, deadline=None)
@given(text=TEXTS, max_chars=BOUNDS)
def test_no_spoken_character_is_lost_doubled_or_moved(text, max_chars):
    """Code fences are left out: the language after one is not spoken. So are pause marks in a text without words."""
    text = text.replace("```", "`").replace("[pause:300ms]", "")
    assert spoken("".join(split_sentences(text, max_chars))) == spoken(text)


@settings(max_examples=200, deadline=None)
@given(text=TEXTS, max_chars=BOUNDS)
def test_pieces_are_trimmed_speakable_and_bounded(text, max_chars):
    pieces = split_sentences(text, max_chars)
    assert is_speakable(text) == bool(split_sentences(text))
    for piece in pieces:
        assert piece == piece.strip()
        assert spoken(piece)
        assert "\n" not in piece
        assert len(piece) <= 4 * max_chars + 60


@settings(max_examples=200, deadline=None)
@given(text=TEXTS, mark=st.sampled_from(["[pause:300ms]", "[Kokoro](/kˈOkəɹO/)"]))
def test_pause_and_pronunciation_marks_before_a_word_survive_whole(text, mark):
    text = text.replace("`", "").replace("[", "").replace("]", "")
    pieces = split_sentences(f"{text}\n\nSay {mark} now")
    assert any(mark in piece for piece in pieces)


@settings(max_examples=200, deadline=None)
@given(text=st.text(max_size=60), data=st.data())
def test_any_text_at_all_is_cut_the_same_in_every_slicing(text, data):
    at = data.draw(st.integers(0, len(text)))
    assert pieces_of(text[:at], text[at:]) == pieces_of(*text) == split_sentences(text)


@pytest.mark.parametrize("end", ["[pause:1s]", " [pause:1s]", "\n\n[pause:1s]\n", "[pause:1s] …", "\n- [pause:1s]"])
def test_pauses_after_the_last_words_are_a_piece_of_their_own_and_start_no_new_text(end):
    assert pieces_of(*f"Hello.{end}") == ["Hello.", "[pause:1s]"]
    chunker = IncrementalSentenceChunker()
    chunker.feed(f"Hello. {end}")
    chunker.flush()
    assert chunker.feed("[pause:1s]") == []
    assert chunker.flush() is None


def test_a_piece_cut_for_its_length_can_be_told_from_one_that_ends():
    cut, *_ = split_sentences("plain words that go on " * 40)
    assert is_cut_short(cut)
    for ended in ("Shopping", "oat milk", "He left.", "It was said (twice)", "x" * 300 + ","):
        assert not is_cut_short(ended)
