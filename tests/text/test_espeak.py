import pytest

from serve_app.text.espeak import LANGUAGES, EspeakLanguage, open_fallback
from serve_app.text.normalize import normalize

SENTENCES = {
    "e": "¿Qué tal? Cuesta 14 euros (hola), nada más.",
    "f": "C'est l'été, il y a de la neige; oui!",
    "h": "नमस्ते दुनिया, यह परीक्षण है",
    "i": "Perché no? L'amico è qui: va bene.",
    "p": "Olá, você está bem? Não sei.",
}


def phonemes(language: EspeakLanguage, text: str, lang: str) -> str:
    return "".join(part for _, part in language.parts(normalize(text, lang))).strip()


@pytest.mark.parametrize("lang", LANGUAGES)
def test_ordinary_text_is_read_as_misaki_reads_it(lang: str) -> None:
    from misaki.espeak import EspeakG2P

    stock, _ = EspeakG2P(language={"e": "es", "f": "fr-fr", "h": "hi", "i": "it", "p": "pt-br"}[lang])(SENTENCES[lang])
    assert phonemes(EspeakLanguage(lang), SENTENCES[lang], lang) == stock.replace("¿", "")


def test_languages_in_turn_sound_as_each_alone() -> None:
    """espeak-ng keeps its voice in global state; each phonemizer must have its own."""
    alone = {lang: phonemes(EspeakLanguage(lang), text, lang) for lang, text in SENTENCES.items()}
    together = {lang: EspeakLanguage(lang) for lang in LANGUAGES}
    fallback = open_fallback(british=False)
    for _ in range(2):
        for lang in (*LANGUAGES, *reversed(LANGUAGES)):
            fallback(Token("Kubernetes"))
            assert phonemes(together[lang], SENTENCES[lang], lang) == alone[lang]
    assert len(set(alone.values())) == len(alone)


class Token:
    def __init__(self, text: str) -> None:
        self.text = text


def test_each_word_owns_its_phonemes_though_a_number_is_read_as_several() -> None:
    words = normalize("Son 1234 cosas, ejemplo.com y 3.14 más.", "e")
    owned: dict[str, str] = {}
    for index, part in EspeakLanguage("e").parts(words):
        owned[words[index].written] = owned.get(words[index].written, "") + part
    assert owned["Son"].strip() == "sˈon"
    assert owned["1234"].split()[0] == "mˈil"
    assert len(owned["1234"].split()) >= 3
    assert owned["cosas,"].strip() == "kˈosas,"
    assert len(owned["ejemplo.com"].split()) == 3
    assert "." not in owned["3.14"]
    assert owned["más."].endswith(".")


def test_a_clause_of_hundreds_of_words_loses_none() -> None:
    language = EspeakLanguage("e")
    assert (
        phonemes(language, "no " * 1000, "e").count("nˈo") + phonemes(language, "no " * 1000, "e").count("no") >= 1000
    )


@pytest.mark.parametrize("british", [False, True])
def test_the_fallback_speaks_no_language_marks(british: bool) -> None:
    heard, _ = open_fallback(british)(Token("नमस्ते"))
    assert heard
    assert "(" not in heard
