import subprocess
import sys
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from serve_app.config import TextSettings
from serve_app.errors import UnsupportedLanguage
from serve_app.text import espeak
from serve_app.text.chunker import IncrementalSentenceChunker
from serve_app.text.pauses import split_at_pauses
from serve_app.text.phonemes import FrontEnd
from serve_app.text.pieces import Piece
from serve_app.text.vocab import MAX_PHONEMES, VOCAB, is_sound

SYMBOL = {token: symbol for symbol, token in VOCAB.items()}


def phonemes(piece: Piece) -> str:
    return "".join(SYMBOL[token] for token in piece.phoneme_ids)


def heard(front_end: FrontEnd, text: str, lang: str = "a") -> str:
    return " ".join(phonemes(piece) for piece in front_end.pieces(text, lang))


@pytest.fixture(scope="module")
def stock(tagger: Any) -> Any:
    """Kokoro's own pipeline without a model, on the same tagger instead of the one that it would download."""
    import spacy
    from kokoro import KPipeline

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(spacy.util, "is_package", lambda name: True)
        patch.setattr(spacy, "load", lambda name, enable: tagger)
        return {lang: KPipeline(lang_code=lang, repo_id="hexgrad/Kokoro-82M", model=False) for lang in "ab"}


ORDINARY = [
    "Hello there.",
    "This is a post deployment check.",
    "It has three sentences.",
    "The quick brown fox didn't jump, did it?",
    'He said "hi" (quietly); then — well, you know… he left!',
    "In 1984 the 3rd of 1,234 well-known birds flew to the U.S. at 5 p.m.",
    "Kubernetes schedules pods; Zyblorp doesn't.",
    "A rotten mitten lay there.",
    "Dr. Smith and Mrs. Jones live in a state-of-the-art house, e.g. here.",
]


@pytest.mark.parametrize("lang", ["a", "b"])
@pytest.mark.parametrize("sentence", ORDINARY)
def test_ordinary_english_sounds_as_in_kokoros_own_pipeline(
    front_end: FrontEnd, stock: Any, sentence: str, lang: str
) -> None:
    expected = [result.phonemes for result in stock[lang](sentence)]
    assert [phonemes(piece) for piece in front_end.pieces(sentence, lang)] == expected


def test_sentences_of_the_published_figures_have_their_phonemes(front_end: FrontEnd) -> None:
    assert heard(front_end, "Hello there.") == "həlˈO ðˈɛɹ."
    assert heard(front_end, "This is a post deployment check.") == "ðˌɪs ɪz ɐ pˈOst dəplˈYmənt ʧˈɛk."
    assert heard(front_end, "It has three sentences.") == "ˌɪt hæz θɹˈi sˈɛntᵊnsᵻz."


def test_word_spans_hold_the_phonemes_of_the_written_words(front_end: FrontEnd) -> None:
    [piece] = front_end.pieces("It costs $14.20 today 😀.", "a")
    assert [(word.text, phonemes(piece)[word.start : word.end]) for word in piece.words] == [
        ("It", "ˌɪt"),
        ("costs", "kˈɔsts"),
        ("$14.20", "fˌɔɹtˈin dˈɑləɹz ænd twˈɛnti sˈɛnts"),
        ("today", "tədˈA"),
    ]


@pytest.mark.parametrize("text", ["", "   ", "...", "😀", "—!?", "***", "( )", "\x00", "\ud800", "\u0301"])
def test_text_without_anything_to_say_is_no_piece(front_end: FrontEnd, text: str) -> None:
    for lang in front_end.languages:
        assert front_end.pieces(text, lang) == []


def test_words_without_punctuation_past_the_limit_are_cut_between_words(front_end: FrontEnd) -> None:
    words = ("river stone window garden silver morning yellow paper " * 17).split()[:130]
    pieces = front_end.pieces(" ".join(words), "a")
    assert len(pieces) == 2
    assert pieces[0].continues
    assert not pieces[-1].continues
    assert [word.text for piece in pieces for word in piece.words] == words
    assert sum(piece.dropped for piece in pieces) == 0


@pytest.mark.parametrize("lang", ["a", "b", "e", "f", "h", "i", "p"])
@pytest.mark.parametrize("text", ["a" * 2000, "ab-" * 300, "nine 9 " * 300, "你好" * 200, "4" * 400])
def test_no_piece_is_longer_than_the_model_allows(front_end: FrontEnd, text: str, lang: str) -> None:
    pieces = front_end.pieces(text, lang)
    assert pieces
    assert max(len(piece.phoneme_ids) for piece in pieces) <= MAX_PHONEMES


def test_twice_the_text_is_twice_the_phonemes(front_end: FrontEnd) -> None:
    text = "El río baja lento, la tarde cae, y nadie dice nada, "
    for lang in ("a", "e"):
        once = sum(len(piece.phoneme_ids) for piece in front_end.pieces(text * 20, lang))
        twice = sum(len(piece.phoneme_ids) for piece in front_end.pieces(text * 40, lang))
        assert twice == pytest.approx(2 * once, rel=0.01)


def test_symbols_of_an_inline_pronunciation_outside_the_vocabulary_are_counted(front_end: FrontEnd) -> None:
    [piece] = front_end.pieces("A [rotten](/ɹˈɑt\u0329n/) mitten.", "a")
    assert phonemes(piece) == "ɐ ɹˈɑtn mˈɪtn."
    assert piece.dropped == 1


def test_an_inline_pronunciation_written_bit_by_bit_is_heard_and_its_word_is_written_plainly(
    front_end: FrontEnd,
) -> None:
    chunker = IncrementalSentenceChunker()
    text = (
        "I love [Kokoro](/kˈOkəɹO/). And [Kokoro](/kˈOkəɹO/)'s ([New York](/nu jˈɔɹk/)) fans [pause:1s] "
        "love **[us](/ˈʌs/)**!"
    )
    sentences = [sentence for character in text for sentence in chunker.feed(character)] + [chunker.flush() or ""]
    parts = [part for sentence in sentences for part in split_at_pauses(sentence)]
    pieces = [piece for part in parts if isinstance(part, str) for piece in front_end.pieces(part, "a")]
    assert [phonemes(piece) for piece in pieces] == [
        "ˌI lˈʌv kˈOkəɹO.",
        "ˌænd kˈOkəɹOs (nu jˈɔɹk) fˈænz",
        "lˈʌv ˈʌs!",
    ]
    assert pieces[0].phoneme_ids == tuple(VOCAB[symbol] for symbol in "ˌI lˈʌv kˈOkəɹO.")
    assert [(word.text, phonemes(piece)[word.start : word.end]) for piece in pieces for word in piece.words] == [
        ("I", "ˌI"),
        ("love", "lˈʌv"),
        ("Kokoro.", "kˈOkəɹO"),
        ("And", "ˌænd"),
        ("Kokoro's", "kˈOkəɹOs"),
        ("(New York)", "nu jˈɔɹk"),
        ("fans", "fˈænz"),
        ("love", "lˈʌv"),
        ("us", "ˈʌs"),
    ]
    assert parts.count(1.0) == 1


@pytest.mark.parametrize(
    ("marked", "said"),
    [
        ("banana", "bənˈænə"),
        ("[banana](-1)", "bənˌænə"),
        ("[banana](-2)", "bənænə"),
        ("[banana](0)", "bənˌænə"),
        ("the", "ðə"),
        ("[the](+1)", "ðˌə"),
        ("[the](+2)", "ðˈə"),
        ("[banana](+7)", "bənˈænə"),
        ("[banana](+10)", "bənˈænə"),
        ("[banana](1.5)", "bənˈænə"),
    ],
)
def test_inline_stress_is_raised_and_lowered(front_end: FrontEnd, marked: str, said: str) -> None:
    [piece] = front_end.pieces(f"Take {marked} today.", "a")
    assert phonemes(piece).split()[1] == said
    assert [word.text for word in piece.words][1] in ("banana", "the")


@pytest.mark.parametrize("lang", ["e", "f", "h", "i", "p"])
def test_inline_forms_in_other_languages_are_the_words_they_mark(front_end: FrontEnd, lang: str) -> None:
    marked = "[Kokoro](/kˈOkəɹO/) para [bueno](+1) y [no](-2), [1984](#a#)."
    assert front_end.pieces(marked, lang) == front_end.pieces("Kokoro para bueno y no, 1984.", lang)


@pytest.mark.parametrize(
    "inside",
    ["", " ", "/", "//", "/ /", "/*/", "/\x00/", "/😀/", "/%s{0}/", "/ˈ/", "/a/b/", f"/{'a' * 1200}/", f"/{'ˈ' * 600}/"]
    + ["#", "##", "#%n{}#", f"#{'&' * 900}#", "+", "+99", "-0", "0.55", "nan", "1e9", "((", "](", "[a](/b/)"],
)
@pytest.mark.parametrize("word", ["word", "two words", "1984", "$5", "é", "<b>", "w " * 150])
def test_no_inline_form_breaks_its_sentence(front_end: FrontEnd, word: str, inside: str) -> None:
    pieces = front_end.pieces(f"Before [{word.strip()}]({inside}) after.", "a")
    assert max(len(piece.phoneme_ids) for piece in pieces) <= MAX_PHONEMES
    words = [word.text for piece in pieces for word in piece.words]
    assert (words[0], words[-1]) == ("Before", "after.")


def test_single_code_points_between_words_are_borne(front_end: FrontEnd) -> None:
    """Every 11th of the basic plane, forty to a sentence; `test_normalize` holds each of them alone."""
    codes = [code for code in range(0x20, 0x10000, 11) if not 0xD800 <= code <= 0xDFFF]
    for start in range(0, len(codes), 40):
        text = " ".join(f"one {chr(code)} two{chr(code)}three" for code in codes[start : start + 40])
        pieces = front_end.pieces(text, "a")
        assert sum("one" in word.text for piece in pieces for word in piece.words) == len(codes[start : start + 40])


PARTS = st.sampled_from(
    [
        *"$£€#@&%+=*_~`<>[](){}/\\|^'’\"“”.,;:!?…—–-",
        "1",
        "2.5",
        "1,234",
        "007",
        "3:30",
        "1/2",
        "’s",
        "ed",
        "ing",
        "th",
        "st",
    ]
    + [
        "the",
        "Hello",
        "X",
        "é",
        "ß",
        "Привет",
        "你好",
        "नमस्ते",
        "\u0301",
        "\u0329",
        "😀",
        "\u200d",
        "½",
        "²",
        "٣",
        " ",
        "  ",
        "\n",
    ]
    + [
        "[a](/x/)",
        "[b c](+1)",
        "[d](#a#)",
        "](",
        "http://",
        ".com",
        "v1.",
        "\x00",
        "\ud800",
        "\uffff",
        "^ɪ",
        "ː",
        "ˈ",
        "❓",
    ]
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    text=st.lists(st.one_of(PARTS, st.text(max_size=4)), max_size=10).map("".join),
    lang=st.sampled_from("aaabefhip"),
)
def test_no_text_raises_and_every_piece_is_well_formed(front_end: FrontEnd, text: str, lang: str) -> None:
    for piece in front_end.pieces(text, lang):
        assert 1 <= len(piece.phoneme_ids) <= MAX_PHONEMES
        assert any(map(is_sound, phonemes(piece)))
        at = 0
        for word in piece.words:
            assert at <= word.start < word.end <= len(piece.phoneme_ids)
            at = word.end


def test_languages_are_those_that_can_be_spoken(front_end: FrontEnd) -> None:
    assert set(front_end.languages) >= set("abefhip")


@pytest.mark.parametrize(("lang", "needed"), [("j", "misaki[ja]"), ("z", "misaki[zh]")])
def test_a_language_whose_phonemizer_is_missing_is_refused_by_name(front_end: FrontEnd, lang: str, needed: str) -> None:
    if lang in front_end.languages:
        pytest.skip("its phonemizer is installed here")
    with pytest.raises(UnsupportedLanguage) as caught:
        front_end.pieces("こんにちは。", lang)
    assert needed in caught.value.message
    assert "a, b, e, f, h, i, p" in caught.value.message


@pytest.mark.parametrize("lang", ["", "x", "en-us", "A"])
def test_an_unknown_language_is_refused_with_the_known_ones(front_end: FrontEnd, lang: str) -> None:
    with pytest.raises(UnsupportedLanguage, match="unknown language; supported here: a, b"):
        front_end.pieces("Hello.", lang)


@pytest.fixture(scope="module")
def without_espeak() -> FrontEnd:
    return FrontEnd(TextSettings(espeak=False))


def test_without_espeak_only_english_is_spoken_and_unknown_words_are_not_dropped(without_espeak: FrontEnd) -> None:
    assert not set(without_espeak.languages) & set(espeak.LANGUAGES)
    [piece] = without_espeak.pieces("Zyblorp and Kubernetes say Привет.", "a")
    assert [word.text for word in piece.words] == ["Zyblorp", "and", "Kubernetes", "say", "Привет."]
    with pytest.raises(UnsupportedLanguage, match="espeak-ng"):
        without_espeak.pieces("Hola.", "e")


def test_espeak_that_does_not_load_leaves_english_speaking(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from misaki.espeak import EspeakWrapper

    monkeypatch.setattr(EspeakWrapper, "_ESPEAK_LIBRARY", "libno-such-espeak.so")
    front_end = FrontEnd(TextSettings())
    assert not set(front_end.languages) & set(espeak.LANGUAGES)
    assert front_end.pieces("Zyblorp.", "b")
    assert "approximated by their letters" in caplog.text


def test_importing_the_front_end_is_light_and_building_it_brings_no_torch() -> None:
    code = """
import sys
from serve_app.config import TextSettings
from serve_app.text.phonemes import FrontEnd
assert "spacy" not in sys.modules
FrontEnd(TextSettings())
assert "spacy" in sys.modules and "torch" not in sys.modules
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
