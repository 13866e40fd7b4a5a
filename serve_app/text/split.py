"""From phonemes to pieces: symbols to ids, and a line that is too long cut where a speaker would breathe."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from serve_app.text.pieces import Piece, WordSpan
from serve_app.text.vocab import (
    CLAUSE_ENDS,
    CLOSERS,
    LENGTHENERS,
    MAX_PHONEMES,
    OPENERS,
    PUNCTUATION,
    SENTENCE_ENDS,
    SPACE,
    STRESSES,
    VOCAB,
    is_sound,
)

Part = tuple[int, str]
"""Index of a written word (-1: not known) and phonemes spoken for it, in the order of the words; blanks included."""

_REPEATS = 3  # of one mark in a row: more say nothing more, and fifty exclamation marks would be a piece by themselves
_TIGHT = frozenset(".,;:!?)”")  # they follow a word without a blank, whatever stood between
_HARD_STRIDE = 30  # symbols between the places where a word longer than a piece may be cut

# What a cut costs, next to the squared relative distance of each piece from the even length.
_AT_SENTENCE, _AT_CLAUSE, _AT_COMMA, _AT_BRACKET, _AT_WORD, _IN_WORD, _HARD = 0.05, 0.1, 0.2, 0.3, 1.0, 2.0, 8.0


@dataclass(frozen=True, slots=True)
class _Cut:
    end: int  # the piece before ends here
    start: int  # the piece after starts here: a blank at the cut is not spoken
    cost: float


def split(parts: Iterable[Part], words: Sequence[str], limit: int = MAX_PHONEMES) -> list[Piece]:
    """Pieces of at most `limit` tokens; nothing is left out but symbols outside the vocabulary, which are counted.

    Args:
        words: the written words that the parts' indices name.
    Returns:
        No piece at all if nothing of it is heard.
    """
    symbols, owners, dropped = _flatten(parts)
    pieces: list[Piece] = []
    last_named = -1
    for start, end, continues in _ranges(symbols, owners, limit):
        if not any(is_sound(symbol) for symbol in symbols[start:end]):
            continue
        ranges = _word_ranges(symbols, owners, start, end)
        pieces.append(
            Piece(
                phoneme_ids=tuple(VOCAB[symbol] for symbol in symbols[start:end]),
                continues=continues,
                dropped=0 if pieces else dropped,
                words=tuple(
                    WordSpan(words[owner], first - start, last - start)
                    for owner, (first, last) in ranges.items()
                    if owner > last_named  # a word that a cut divides belongs to the piece in which it begins
                ),
            )
        )
        last_named = max(ranges, default=last_named)
    return pieces


def _flatten(parts: Iterable[Part]) -> tuple[list[str], list[int], int]:
    symbols: list[str] = []
    owners: list[int] = []
    dropped = 0
    for owner, phonemes in parts:
        for symbol in phonemes:
            if symbol not in VOCAB:
                dropped += 1
                continue
            if symbol == SPACE and (not symbols or symbols[-1] == SPACE or symbols[-1] in OPENERS):
                continue
            if symbol in PUNCTUATION and symbols[-_REPEATS:] == [symbol] * _REPEATS:
                continue
            if symbol in _TIGHT and symbols[-1:] == [SPACE]:
                symbols.pop()
                owners.pop()
            symbols.append(symbol)
            owners.append(owner)
    if symbols and symbols[-1] == SPACE:
        symbols.pop()
        owners.pop()
    return symbols, owners, dropped


def _word_ranges(symbols: Sequence[str], owners: Sequence[int], start: int, end: int) -> dict[int, tuple[int, int]]:
    ranges: dict[int, tuple[int, int]] = {}
    for at in range(start, end):
        if owners[at] < 0 or not _is_of_word(symbols[at]):
            continue
        first, _ = ranges.get(owners[at], (at, at))
        ranges[owners[at]] = (first, at + 1)
    return ranges


def _is_of_word(symbol: str) -> bool:
    return symbol != SPACE and symbol not in PUNCTUATION


def _ranges(symbols: Sequence[str], owners: Sequence[int], limit: int) -> list[tuple[int, int, bool]]:
    if len(symbols) <= limit:
        return [(0, len(symbols), False)] if symbols else []
    cuts = _cuts(symbols, owners, limit)
    even = len(symbols) / -(-len(symbols) // limit)
    best: list[tuple[float, int]] = [(0.0, 0)]
    oldest = 0
    for to in range(1, len(cuts)):
        while cuts[to].end - cuts[oldest].start > limit:
            oldest += 1
        best.append(
            min(
                (
                    best[frm][0] + cuts[to].cost + ((cuts[to].end - cuts[frm].start) / even - 1) ** 2,
                    frm,
                )
                for frm in range(oldest, to)
            )
        )
    ranges = []
    to = len(cuts) - 1
    while to:
        frm = best[to][1]
        ranges.append((cuts[frm].start, cuts[to].end, cuts[to].cost >= _AT_WORD))
        to = frm
    return ranges[::-1]


def _cuts(symbols: Sequence[str], owners: Sequence[int], limit: int) -> list[_Cut]:
    """Every place where the line may be cut, both its ends among them; no two neighbours further apart than `limit`."""
    cuts = [_Cut(0, 0, 0.0)]
    for at in range(1, len(symbols)):
        cut = _cut_at(symbols, owners, at)
        if cut is not None:
            _bridge(cuts, symbols, cut.end, limit)
            cuts.append(cut)
    _bridge(cuts, symbols, len(symbols), limit)
    return [*cuts, _Cut(len(symbols), len(symbols), 0.0)]


def _cut_at(symbols: Sequence[str], owners: Sequence[int], at: int) -> _Cut | None:
    blank = symbols[at] == SPACE
    if not blank and (symbols[at] in PUNCTUATION - OPENERS or symbols[at - 1] not in PUNCTUATION - OPENERS):
        return None
    after = at + blank
    if after >= len(symbols):
        return None
    same_word = owners[at - 1] == owners[after]
    cost = _cost(symbols, at, after)
    if same_word:
        cost = _IN_WORD  # "example dot com", or a mark inside a name: no place for a pause
    elif not blank and cost >= _AT_WORD:
        return None
    return _Cut(at, after, cost)


def _cost(symbols: Sequence[str], at: int, after: int) -> float:
    last = at - 1
    while last > 0 and symbols[last] in CLOSERS:
        last -= 1
    if symbols[last] in SENTENCE_ENDS:
        return _AT_SENTENCE
    if symbols[last] in CLAUSE_ENDS:
        return _AT_CLAUSE
    if symbols[last] == ",":
        return _AT_COMMA
    if last < at - 1 or symbols[after] in OPENERS:
        return _AT_BRACKET
    return _AT_WORD


def _bridge(cuts: list[_Cut], symbols: Sequence[str], end: int, limit: int) -> None:
    """Allow hard cuts since the last place, if the next one is out of reach."""
    since = cuts[-1].start
    if end - since <= limit:
        return
    stride = min(_HARD_STRIDE, limit // 2)
    for at in range(since + stride, end, stride):
        apart = next((back for back in range(at, at - stride // 2, -1) if not _clings(symbols, back)), at)
        cuts.append(_Cut(apart, apart, _HARD))


def _clings(symbols: Sequence[str], at: int) -> bool:
    return symbols[at] in LENGTHENERS or symbols[at - 1] in STRESSES
