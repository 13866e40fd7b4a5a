"""English words without a dictionary entry, read by their letters: the last resort where espeak-ng is left out.

A reading by rule is often wrong and never silent. It knows the commonest spellings of English and nothing of its
exceptions; a word without a vowel is spelt, other scripts are read through the names of their letters.
"""

import re
import unicodedata

_AMERICAN = {
    "tion": "ʃən", "sion": "ʒən", "cious": "ʃəs", "tious": "ʃəs", "ture": "ʧəɹ", "ough": "O", "augh": "ɔ",
    "eigh": "A", "igh": "I", "tch": "ʧ", "dge": "ʤ", "sch": "sk", "ch": "ʧ", "sh": "ʃ", "th": "θ", "ph": "f", "wh": "w",
    "ck": "k", "ng": "ŋ", "nk": "ŋk", "qu": "kw", "gu": "ɡ", "kn": "n", "wr": "ɹ", "ee": "i", "ea": "i", "oo": "u",
    "ou": "W", "ow": "O", "oi": "Y", "oy": "Y", "ai": "A", "ay": "A", "ei": "A", "ey": "i", "au": "ɔ", "aw": "ɔ",
    "ew": "u", "ie": "i", "oa": "O", "ue": "u", "ar": "ɑɹ", "er": "əɹ", "ir": "ɜɹ", "ur": "ɜɹ", "or": "ɔɹ",
    "ce": "sɛ", "ci": "sɪ", "cy": "si", "a": "æ", "b": "b", "c": "k", "d": "d", "e": "ɛ", "f": "f", "g": "ɡ", "h": "h",
    "i": "ɪ", "j": "ʤ", "k": "k", "l": "l", "m": "m", "n": "n", "o": "ɑ", "p": "p", "q": "k", "r": "ɹ", "s": "s",
    "t": "t", "u": "ʌ", "v": "v", "w": "w", "x": "ks", "y": "i", "z": "z",
}  # fmt: skip
_LONG = {"a": "A", "e": "i", "i": "I", "o": "O", "u": "u"}
_BRITISH = (("əɹ", "ə"), ("ɜɹ", "ɜː"), ("ɑɹ", "ɑː"), ("ɔɹ", "ɔː"), ("ɑ", "ɒ"), ("ɒː", "ɑː"), ("ɔ", "ɔː"), ("ɔːː", "ɔː"),
            ("O", "Q"), ("i", "iː"), ("u", "uː"))  # fmt: skip

_GRAPHEME = re.compile("|".join(sorted(_AMERICAN, key=len, reverse=True)))
_MAGIC_E = re.compile(r"([aeiou])(?=([bcdfgklmnpqstvz])e$)")
_DOUBLED = re.compile(r"([b-df-hj-np-tv-z])\1")
_VOWEL_SOUND = re.compile(r"[AIOQWYaiuæɑɒɔəɛɜɪʊʌ]")

_LATIN = str.maketrans(
    {
        "ß": "ss",
        "æ": "ae",
        "œ": "oe",
        "ø": "o",
        "ł": "l",
        "đ": "d",
        "ð": "th",
        "þ": "th",
        "ı": "i",
        "ŋ": "ng",
        "ʃ": "sh",
    }
)


def spell(text: str, letters: dict[str, str], *, british: bool) -> str:
    """Phonemes for any text; empty only if it holds neither letter nor digit.

    Args:
        letters: phonemes of the names of the letters A to Z.
    """
    words = re.findall(r"[a-z]+|\d", _in_latin(text))
    return " ".join(_read(word, letters, british) for word in words)


def _in_latin(text: str) -> str:
    decomposed = unicodedata.normalize("NFKD", text.lower().translate(_LATIN))
    return "".join(_latin_for(character) for character in decomposed)


def _latin_for(character: str) -> str:
    if character.isascii():
        return character
    if unicodedata.category(character).startswith("M"):
        return ""
    if (digit := unicodedata.digit(character, None)) is not None:
        return str(digit)
    if not character.isalpha():
        return " "
    name = unicodedata.name(character, "letter")  # CYRILLIC SMALL LETTER PE, CJK UNIFIED IDEOGRAPH-4F60
    return f" {name.split(' WITH ')[0].split()[-1].split('-')[0].lower()} "


_DIGITS = ("zero", "one", "too", "three", "for", "five", "six", "seven", "ate", "nine")


def _read(word: str, letters: dict[str, str], british: bool) -> str:
    if word.isdigit():
        word = _DIGITS[int(word)]
    if not re.search(r"[aeiouy]", word):
        return "".join(letters[letter.upper()] for letter in word)
    word = _DOUBLED.sub(r"\1", word)
    if _MAGIC_E.search(word):
        word = _MAGIC_E.sub(lambda vowel: vowel[1].upper(), word)[:-1]
    elif len(word) > 3 and re.search(r"[aeiouy].*[^aeiouy]e$", word):
        word = word[:-1]
    phonemes = "".join(
        _LONG[part.lower()] if part.isupper() else _AMERICAN.get(part, "")
        for part in re.findall(f"{_GRAPHEME.pattern}|[A-Z]", word)
    )
    if british:
        for american, own in _BRITISH:
            phonemes = phonemes.replace(american, own)
    return _VOWEL_SOUND.sub(lambda vowel: f"ˈ{vowel[0]}", phonemes, count=1)
