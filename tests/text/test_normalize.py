import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serve_app.text.normalize import Word, normalize


def spoken(text: str, lang: str = "a") -> str:
    return " ".join(word.spoken for word in normalize(text, lang) if word.spoken)


def written(text: str, lang: str = "a") -> list[str]:
    return [word.written for word in normalize(text, lang)]


@pytest.mark.parametrize(
    ("marked", "plain"),
    [
        ("**bold** and *italic* and __bold__ and _italic_.", "bold and italic and bold and italic."),
        ("***both*** and **bold with *italic* inside**", "both and bold with italic inside"),
        ("~~gone~~ and `code here` and ``more``", "gone and code here and more"),
        ("[the docs](https://example.com/a_(b)) are ![here](x.png)", "the docs are here"),
        ("a claim[^1] here", "a claim here"),
        ("## Heading", "Heading"),
        ("- item", "item"),
        ("* [x] item", "item"),
        ("> quoted", "quoted"),
        ("<b>bold</b> and<br/>new <span class='x'>text</span>", "bold and new text"),
        ("<speak>Hi <break time='1s'/> there</speak>", "Hi there"),
        ("Tom &amp; Jerry &#8212; here", "Tom & Jerry — here"),
        ("<https://example.com>", "example dot com"),
        ("**unclosed and ~~this", "unclosed and this"),
    ],
)
def test_marks_of_formatting_are_not_spoken(marked: str, plain: str) -> None:
    assert spoken(marked) == plain


@pytest.mark.parametrize("text", ["2 * 3 * 4", "2*3*4"])
def test_stars_between_numbers_are_no_emphasis(text: str) -> None:
    assert spoken(text) == "2 times 3 times 4"


def test_written_words_are_those_of_the_text() -> None:
    assert written("It cost $14.20 — **really**, 10%!") == ["It", "cost", "$14.20", "—", "really,", "10%!"]


def test_inline_pronunciations_reach_misaki_and_are_written_without_markup() -> None:
    words = normalize("([New York](/nu jɔɹk/)), [read](#a#) it [so](+1).", "a")
    assert words == [
        Word("(New York),", "([New York](/nu jɔɹk/)),"),
        Word("read", "[read](#a#)"),
        Word("it", "it"),
        Word("so.", "[so](+1)."),
    ]


def test_inline_forms_are_kept_apart_from_letters_beside_them() -> None:
    assert spoken("x[a](/æ/)y [b](/b/)[c](/s/)") == "x [a](/æ/) y [b](/b/) [c](/s/)"


def test_inline_pronunciations_are_english_only() -> None:
    assert spoken("[Hola](/ola/) amigo", "e") == "Hola amigo"


@pytest.mark.parametrize(
    ("typed", "plain"),
    [
        ("don’t donʼt don`t", "don't don't don't"),
        ("„so“ «so»", "“so“ “so”"),
        ("𝗛𝗲𝗹𝗹𝗼 Ｗｏｒｌｄ ﬁne Ⅷ", "Hello World fine VIII"),
        ("non\u00adbreaking\u00a0hyphen\u2011here", "nonbreaking hyphen-here"),
        ("zero\u200bwidth\ufeff", "zerowidth"),
        ("1\ufe0f\u20e3 ❤\ufe0f 👩\u200d💻 ok", "1 ok"),
        ("e\u0301te\u0301", "été"),
        ("١٢٣", "123"),
        ("好。", "好."),
        ("a\x00b\ud800c\uffff", "abc"),
    ],
)
def test_characters_become_what_the_phonemizer_knows(typed: str, plain: str) -> None:
    assert spoken(typed) == plain


def test_other_languages_are_cleaned_and_keep_their_numbers() -> None:
    assert spoken("¿**Cuesta** $14,20 😀? snake_case", "e") == "Cuesta $14,20 ? snake case"
    assert spoken("नमस्ते दुनिया।", "h") == "नमस्ते दुनिया."


def test_joiners_stay_in_hindi_only() -> None:
    assert "\u200d" in spoken("क्\u200dष", "h")
    assert "\u200d" not in spoken("क्\u200dष", "e")


def test_east_asian_text_is_not_broken_up() -> None:
    text = "今日はとても良い天気ですから、散歩に行きましょう。"
    assert spoken(text + "😀", "j") == text


@pytest.mark.parametrize("lang", ["a", "e"])
@pytest.mark.parametrize("text", ["a" * 2000, "ab-" * 500, "aB" * 500, "你" * 300, "1" * 400, "x." * 300])
def test_words_too_long_for_a_phonemizer_are_broken_and_nothing_is_lost(text: str, lang: str) -> None:
    [word] = normalize(text, lang)
    chunks = word.spoken.split(" ")
    assert max(map(len, chunks)) <= 40
    letters = [character for character in text if character.isalnum()]
    assert [character for character in "".join(chunks) if character.isalnum()] == letters
    assert word.written == text


def test_long_rules_of_punctuation_are_cut_short() -> None:
    assert spoken("wow" + "!" * 5000) == "wow!!!"


@pytest.mark.parametrize(("lang", "step"), [("a", 1), ("e", 7)])
def test_no_code_point_of_the_basic_plane_raises(lang: str, step: int) -> None:
    for code in range(0x20, 0x10000, step):
        words = normalize(f"one {chr(code)} two", lang)
        assert words[0].spoken == "one"
        assert words[-1].spoken.endswith("two")


MARKUP = st.sampled_from(
    [*"*_~`#<>[]()/&$£%@+-–—.,:;!?'’\"“” \t\n", "](", "**", "<b>", "&amp;", "http://", ".com", "[a](/x/)"]
)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.one_of(MARKUP, st.text(max_size=6), st.integers(0, 10**6).map(str)), max_size=12).map("".join))
def test_any_text_becomes_words_with_single_blanks(text: str) -> None:
    for lang in "abeh":
        for word in normalize(text, lang):
            assert word.written
            assert word.spoken == " ".join(word.spoken.split())
            assert not any(unicodedata.category(character) in ("Cc", "Cs") for character in word.spoken)
