"""What the text front end hands to the engine; no phonemizer here, so that servers may import it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class WordSpan:
    """A word as written, and the range of its phonemes in the piece: [start, end), indices of `Piece.phoneme_ids`."""

    text: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Piece:
    """A sentence, or as much of it as fits in one forward pass.

    Attributes:
        phoneme_ids: 1..510 ids of the model's vocabulary.
        continues: the sentence goes on in the next piece, cut without punctuation: the seam must not be a pause.
        resumes: it goes on with a sentence that was cut at a clause: the seam before it is a short pause.
        dropped: phoneme symbols outside the vocabulary that were left out.
        words: ordered, not overlapping; a word that is not spoken has none.
    """

    phoneme_ids: tuple[int, ...]
    continues: bool = False
    resumes: bool = False
    dropped: int = 0
    words: tuple[WordSpan, ...] = ()
