"""The model's symbol table: one character of a phoneme string is one token."""

import json
from importlib import resources

_CONFIG = json.loads(resources.files("serve_app").joinpath("kokoro.json").read_text(encoding="utf-8"))

VOCAB: dict[str, int] = _CONFIG["vocab"]

MAX_PHONEMES: int = _CONFIG["plbert"]["max_position_embeddings"] - 2
"""Tokens of one forward pass: the positions of the text encoder, less the pad at either end."""

SPACE = " "
STRESSES = frozenset("ˈˌ")
LENGTHENERS = frozenset("ːʰʲ\u0303")
"""They change the symbol before them and mean nothing alone."""

SENTENCE_ENDS = frozenset(".!?…")
CLAUSE_ENDS = frozenset(";:—")
CLOSERS = frozenset('"”)')
OPENERS = frozenset("“(")
PUNCTUATION = SENTENCE_ENDS | CLAUSE_ENDS | CLOSERS | OPENERS | {","}
TONES = frozenset("↓→↗↘")


def is_sound(symbol: str) -> bool:
    """Whether the symbol is heard by itself: no blank, mark, stress, length or tone."""
    return symbol in VOCAB and symbol not in _SILENT


_SILENT = PUNCTUATION | STRESSES | LENGTHENERS | TONES | {SPACE}
