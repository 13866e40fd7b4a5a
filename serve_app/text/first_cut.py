"""The first sentence of an answer, cut at clauses: its listener hears the first one while the rest is computed.

Each part is spoken with the whole sentence in view, so that the intonation is the sentence's. But the sound of a part
is made by itself, and each costs another look at the whole: a sentence is cut only if it is long, only at a mark at
which a speaker pauses, and into parts that are long enough to sound like speech.
"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

from serve_app.text.pieces import Piece, WordSpan
from serve_app.text.vocab import CLAUSE_ENDS, CLOSERS, SPACE, VOCAB

MIN_TOKENS = 20
"""No part is shorter: about 1.3 s, below which the model's intonation suffers and the next part would come too late."""

GROWTH = 3
"""How many times longer than the part before a part may be, if there is a mark to cut it at: it is computed while the
one before plays, which leaves no gap up to a real-time factor of a third.
"""

_MARKS = frozenset(VOCAB[symbol] for symbol in CLAUSE_ENDS | {","})
_SPACE = VOCAB[SPACE]
_BETWEEN = _MARKS | {VOCAB[symbol] for symbol in CLOSERS} | {_SPACE}


def cut_first(piece: Piece, above: int) -> list[Piece]:
    """The piece in parts if it has more than `above` tokens and places to cut it.

    A part ends where the marks begin: at a clause's end the model draws out the last sound into silence, and the blank
    before the next word is already that word's beginning.
    """
    length = len(piece.phoneme_ids)
    if length <= above:
        return [piece]
    places = [at for at in _places(piece) if MIN_TOKENS <= at <= length - MIN_TOKENS]
    starts, at = [0], min(places, default=None)
    while at is not None:
        room = GROWTH * (at - starts[-1])
        starts.append(at)
        if length - at <= room:
            break
        at = max((further for further in places if MIN_TOKENS <= further - at <= room), default=None)
    if len(starts) == 1:
        return [piece]
    return [_part(piece, start, end) for start, end in pairwise([*starts, length])]


def _places(piece: Piece) -> Iterator[int]:
    """Where a part may start: at the marks before a blank, between two words that belong to no one name or number."""
    ids = piece.phoneme_ids
    for after in range(2, len(ids)):
        if ids[after - 1] != _SPACE or ids[after] in _BETWEEN:
            continue
        at = after
        while at and ids[at - 1] in _BETWEEN:
            at -= 1
        if not _MARKS.isdisjoint(ids[at:after]) and not _is_inside(piece.words, after):
            yield at


def _is_inside(words: tuple[WordSpan, ...], at: int) -> bool:
    before = [word for word in words if word.start < at]
    after = [word for word in words if word.start >= at]
    if before and before[-1].end > at:
        return True  # one written word, spoken as several: "1,250", "10:30"
    return bool(before and after) and _are_one(before[-1].text, after[0].text)


def _are_one(left: str, right: str) -> bool:
    """Whether two words around a mark may be one name, date or number: "Paris, France", "King, Jr.", "May 3, 2024"."""
    if any(map(str.isdigit, left)) and any(map(str.isdigit, right)):
        return True
    return left.lstrip("\"'“‘(")[:1].isupper() and right[:1].isupper() and right != "I" and not right.startswith("I'")


def _part(piece: Piece, start: int, end: int) -> Piece:
    return replace(
        piece,
        part=(start, end),
        continues=piece.continues and end == len(piece.phoneme_ids),
        dropped=piece.dropped if start == 0 else 0,
        words=tuple(word for word in piece.words if start <= word.start < end),
    )
