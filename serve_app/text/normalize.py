"""From a sentence as written to words that a phonemizer can say: marks of writing taken away, spoken forms put in.

The words stay apart, so that what is heard can later be matched with what was written.
"""

import html
import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass

from serve_app.text.spoken import EMAIL, URL, shell, speak_english, speak_url


@dataclass(frozen=True, slots=True)
class Word:
    """One written word, its punctuation included.

    Attributes:
        written: as in the text, less what only formats it.
        spoken: what a phonemizer reads instead, maybe several words with single blanks between; empty: not spoken.
            English may hold misaki's inline forms, `[Kokoro](/kˈOkəɹO/)` and `[word](+1)`.
    """

    written: str
    spoken: str


INLINE = re.compile(r"\[([^\[\]\s](?:[^\[\]]*[^\[\]\s])?)\]\((/[^()/]+/|#[^()#]*#|[-+]?[0-9]|[-+]?0\.5)\)")
"""misaki's markup: a pronunciation, a stress or a way to read a number, for the text in brackets."""

ENGLISH = frozenset("ab")
EAST_ASIAN = frozenset("jz")  # no blanks to split at, and phonemizers that know their own punctuation


def normalize(sentence: str, lang: str) -> list[Word]:
    """The words of a sentence in reading order. Never raises: what nobody can say is dropped.

    Args:
        lang: Kokoro's language code. American and British English (a, b) get spoken forms of numbers, units, currency
            and the like; the phonemizers of the other languages know their own, so those are only cleaned.
    """
    english = lang in ENGLISH
    text = _RUN.sub(r"\1\1\1", _clean(sentence, lang))
    written = list(_words(_without_markup(text, keep_inline=english)))
    if english:
        spoken = speak_english([_modern(word) for word in written], british=lang == "b", verbatim=INLINE)
    elif lang in EAST_ASIAN:
        return [Word(word, _without_pictures(word)) for word in written]
    else:
        spoken = [_speak_other(_modern(word), lang) for word in written]
    return [Word(INLINE.sub(r"\1", word), " ".join(_bounded(said))) for word, said in zip(written, spoken, strict=True)]


# --- The whole text: characters and markup ---

_RUN = re.compile(r"([^\w\s])\1{3,}")  # a rule drawn with dashes, or thousands of brackets: time for nothing
_JOINERS = "\u200c\u200d"  # they decide how Hindi consonants join; elsewhere they only glue emoji
_DROPPED_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Co", "Cn"})


def _clean(text: str, lang: str) -> str:
    text = unicodedata.normalize("NFC", text)
    if text.isascii() and text.isprintable():
        return text
    return "".join(_clean_character(character, lang) for character in text)


def _clean_character(character: str, lang: str) -> str:
    if character.isspace():
        return " "
    if "\ufe00" <= character <= "\ufe0f":  # which look a sign has, text or picture
        return ""
    if unicodedata.category(character) in _DROPPED_CATEGORIES:
        return character if lang == "h" and character in _JOINERS else ""
    return character


_TAGS = (
    "a abbr address article aside audio b bdi bdo big blockquote body br break button caption center cite code col dd"
    " del details dfn div dl dt em emphasis figcaption figure font footer form h1 h2 h3 h4 h5 h6 head header hr html i"
    " iframe img input ins kbd label lang li link main mark meta nav ol p phoneme pre prosody q s samp say-as script"
    " section small source span speak strike strong style sub summary sup svg table tbody td tfoot th thead time title"
    " tr tt u ul var video voice wbr"
)
_TAG = re.compile(
    rf"</?(?:{'|'.join(sorted(_TAGS.split(), key=len, reverse=True))})(?:\s[^<>]*)?/?>|<!--.*?-->", re.I | re.S
)
_INLINE_TAG = re.compile(r"</?(?:a|abbr|b|big|em|emphasis|font|i|mark|s|small|span|strong|sub|sup|u|wbr)\b", re.I)
_ENTITY = re.compile(r"&(?:[A-Za-z][A-Za-z0-9]{1,30}|#[0-9]{1,7}|#[xX][0-9A-Fa-f]{1,6});")
_AUTOLINK = re.compile(r"<((?:https?://|mailto:)?[^\s<>]+[.@][^\s<>]+)>")

_IMAGE_OR_LINK = re.compile(r"!?\[([^\[\]]*)\](?:\([^()\s]*(?:\([^()\s]*\)[^()\s]*)?(?:\s+[\"'][^\"']*[\"'])?\))")
_FOOTNOTE = re.compile(r"\[\^[^\[\]\s]+\]")
_LINE_START = re.compile(r"^\s*(?:#{1,6}\s+|>\s*|[-*+•]\s+(?:\[[ xX]\]\s+)?)+")
_CODE = re.compile(r"(`{1,3})([^`]+)\1")
_EMPHASIS = tuple(
    re.compile(pattern)
    for pattern in (
        r"(?<!\*)(\*{2,3})(?=[^\s*])([^*]*[^\s*])\1(?!\*)",
        r"(?<![\w*])(\*)(?=[^\s*])([^*]*[^\s*])\1(?![\w*])",
        r"(?<![\w_])(_{1,3})(?=[^\s_])([^_]*[^\s_])\1(?![\w_])",
        r"(~~)(?=\S)([^~]*\S)\1",
    )
)


def _without_markup(text: str, *, keep_inline: bool) -> str:
    if "<" in text:
        text = _AUTOLINK.sub(r" \1 ", text)
        text = _TAG.sub(lambda tag: "" if _INLINE_TAG.match(tag[0]) else " ", text)
    if "&" in text:
        text = _ENTITY.sub(lambda entity: _clean(html.unescape(entity[0]), ""), text)
    if "[" in text:
        text = _FOOTNOTE.sub("", text)
        text = _IMAGE_OR_LINK.sub(lambda link: link[0] if keep_inline and INLINE.fullmatch(link[0]) else link[1], text)
        if keep_inline:
            text = INLINE.sub(_apart, text)
    text = _LINE_START.sub("", text)
    if "`" in text:
        text = _CODE.sub(r"\2", text)
    if not any(mark in text for mark in "*_~"):
        return text
    return "".join(
        piece if INLINE.fullmatch(piece) else _without_emphasis(piece) for piece in _around_inline(text, keep_inline)
    )


def _apart(inline: re.Match[str]) -> str:
    """A letter that touches an inline form would be read as a part of it."""
    before, after = inline.string[: inline.start()][-1:], inline.string[inline.end() :][:1]
    return f"{' ' if before.isalnum() else ''}{inline[0]}{' ' if after.isalnum() or after == '[' else ''}"


def _around_inline(text: str, keep_inline: bool) -> Iterator[str]:
    at = 0
    for inline in INLINE.finditer(text) if keep_inline else ():
        yield text[at : inline.start()]
        yield inline[0]
        at = inline.end()
    yield text[at:]


def _without_emphasis(text: str) -> str:
    for _ in range(2):  # **bold with *italics* inside**
        for pattern in _EMPHASIS:
            text = pattern.sub(r"\2", text)
    return text.replace("**", " ").replace("~~", " ")


def _words(text: str) -> Iterator[str]:
    """Split at blanks, but not inside an inline form."""
    glued = INLINE.sub(lambda inline: inline[0].replace(" ", "\0"), text)
    for word in glued.split():
        yield word.replace("\0", " ")


# --- One word ---

_QUOTES = str.maketrans(
    {
        **dict.fromkeys("„‟«「『《〝", "“"),
        **dict.fromkeys("»」』》〞", "”"),
        **dict.fromkeys("‚‹", "‘"),
        **dict.fromkeys("›", "’"),
        **dict.fromkeys("ʼ＇′´ʹꞌ", "'"),
        **dict.fromkeys("‐‑⁃﹣", "-"),
        **dict.fromkeys("‒﹘", "–"),
        **dict.fromkeys("―⸺⸻", "—"),
        "。": ".", "．": ".", "｡": ".", "।": ".", "॥": ".", "۔": ".", "、": ",", "､": ",", "，": ",", "،": ",",
        "！": "!", "？": "?", "؟": "?", "；": ";", "؛": ";", "：": ":", "（": "(", "）": ")", "【": "(", "】": ")",
        "‼": "!!", "⁇": "??", "⁈": "?!", "⁉": "!?", "⋯": "…", "\u037e": ";", "¿": "", "¡": "", "‽": "?!",
    }
)  # fmt: skip
_APOSTROPHE = re.compile(r"(?<=\w)[’‘`](?=\w)")
_COMPATIBLE = ((0xFB00, 0xFB06), (0xFF01, 0xFF5E), (0x1D400, 0x1D7FF), (0x2160, 0x217F), (0x1F130, 0x1F149))
"""Ligatures, full-width, styled and Roman characters: letters that only look different."""


def _modern(word: str) -> str:
    if not word.isascii():
        word = "".join(_plain(character) for character in word.translate(_QUOTES))
    return _APOSTROPHE.sub("'", word)


def _plain(character: str) -> str:
    code = ord(character)
    if character.isdecimal():
        return str(unicodedata.decimal(character))
    if code < 0x2160 or not any(first <= code <= last for first, last in _COMPATIBLE):
        return character
    return unicodedata.normalize("NFKC", character)


_SILENT_CATEGORIES = frozenset({"So", "Sk"})
_SPOKEN_SIGNS = frozenset("°©№℃℉")
_SILENT = str.maketrans({**dict.fromkeys("*`#|~^<>[]{}\\", " "), "_": " "})


def _speak_other(word: str, lang: str) -> str:
    lead, core, trail = shell(word)
    if URL.fullmatch(core) or EMAIL.fullmatch(core):
        return f"{lead}{speak_url(core, lang)}{trail}"
    if word in ("-", "–", "--"):
        return "—"
    return _without_pictures(word).translate(_SILENT)


def _without_pictures(word: str) -> str:
    return "".join(
        character
        for character in word
        if unicodedata.category(character) not in _SILENT_CATEGORIES or character in _SPOKEN_SIGNS
    )


# --- What a phonemizer can take at once ---

_MAX_LETTERS = 40  # espeak-ng cuts the phonemes of longer words
_MAX_LETTERS_UNSPACED = 8  # scripts without blanks, which espeak-ng names letter by letter in many phonemes
_MAX_PARTS = 8  # misaki tries all ranges of the parts of a word: its time grows with the fourth power
_UNSPACED = re.compile(
    r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]"
)


def _bounded(spoken: str) -> Iterator[str]:
    for word in _words(spoken):
        around = INLINE.split(word)[:: INLINE.groups + 1]
        if len(around) > 1 and max(map(len, around)) <= _MAX_PARTS:
            yield word
        else:
            yield from _broken(word) if len(around) == 1 else _words(INLINE.sub(r" \g<0> ", word))


def _broken(word: str) -> Iterator[str]:
    most = _MAX_LETTERS_UNSPACED if _UNSPACED.search(word) else _MAX_LETTERS
    if len(word) <= min(most, _MAX_PARTS):
        yield word
        return
    start = parts = 0
    previous = ""
    for at, character in enumerate(word):
        kind = _kind(character)
        if kind == "other" or (kind != previous and (previous, kind) != ("upper", "lower")):
            parts += 1
        if parts > _MAX_PARTS or at - start >= most:
            yield word[start:at]
            start, parts = at, 1
        previous = kind
    yield word[start:]


def _kind(character: str) -> str:
    if character.isdecimal():
        return "digit"
    if not character.isalpha():
        return "other"
    return "upper" if character.isupper() else "lower"
