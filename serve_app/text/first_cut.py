"""The first sentence of an answer, cut at clauses: its listener hears the first one while the rest is computed.

A cut costs something: each part gets an intonation of its own. So a sentence is cut only if it is long, only at a mark
at which a speaker pauses, and into parts that are long enough to sound like speech.
"""

from collections.abc import Iterator
from dataclasses import replace

from serve_app.text.pieces import Piece, WordSpan
from serve_app.text.vocab import CLAUSE_ENDS, CLOSERS, SPACE, VOCAB

MIN_TOKENS = 20
"""No part is shorter: about 1.3 s, below which the model's intonation suffers and the next part would come too late."""

GROWTH = 3
"""How many times longer than the part before a part may be, if there is a mark to cut it at: it is computed while the
one before plays, which leaves no gap up to a real-time factor of a third.
"""

_MARKS = frozenset(VOCAB[symbol] for symbol in CLAUSE_ENDS | {","})
_CLOSERS = frozenset(VOCAB[symbol] for symbol in CLOSERS)
_SPACE = VOCAB[SPACE]


def cut_first(piece: Piece, above: int) -> list[Piece]:
    """The piece in parts if it has more than `above` tokens and a place to cut it; nothing but blanks is left out."""
    length = len(piece.phoneme_ids)
    if length <= above:
        return [piece]
    places = [
        at for at in _places(piece) if MIN_TOKENS < at <= length - MIN_TOKENS
    ]  # behind a blank, which is left out
    starts, at = [0], min(places, default=None)
    while at is not None:
        room = GROWTH * (at - 1 - starts[-1])
        starts.append(at)
        if length - at <= room:
            break
        at = max((further for further in places if MIN_TOKENS < further - at <= room), default=None)
    ends = [*(start - 1 for start in starts[1:]), length]
    return [_part(piece, start, end) for start, end in zip(starts, ends, strict=True)]


def _places(piece: Piece) -> Iterator[int]:
    """Where a part may start: behind a mark and a blank, between two words that belong to no one name or number."""
    ids = piece.phoneme_ids
    for at in range(2, len(ids)):
        if ids[at - 1] != _SPACE:
            continue
        mark = at - 2
        while mark and ids[mark] in _CLOSERS:
            mark -= 1
        if ids[mark] in _MARKS and not _is_inside(piece.words, at):
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
    last = end == len(piece.phoneme_ids)
    return replace(
        piece,
        phoneme_ids=piece.phoneme_ids[start:end],
        continues=piece.continues and last,
        resumes=piece.resumes if start == 0 else True,
        dropped=piece.dropped if start == 0 else 0,
        words=tuple(
            replace(word, start=word.start - start, end=word.end - start)
            for word in piece.words
            if start <= word.start < end
        ),
    )
