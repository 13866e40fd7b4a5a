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
    """A sentence, or as much of it as fits in one forward pass, or a part of it that is spoken by itself.

    Attributes:
        phoneme_ids: 1..510 ids of the model's vocabulary.
        continues: the sentence goes on in the next piece, cut without punctuation: the seam must not be a pause.
        part: [start, end) of `phoneme_ids`, of a sentence that is spoken in several passes: each is told the whole and
            speaks its part. None: all.
        dropped: phoneme symbols outside the vocabulary that were left out.
        words: those that are heard, ordered, not overlapping; a word that is not spoken has none.
    """

    phoneme_ids: tuple[int, ...]
    continues: bool = False
    part: tuple[int, int] | None = None
    dropped: int = 0
    words: tuple[WordSpan, ...] = ()

    @property
    def spoken_tokens(self) -> int:
        """Phoneme tokens that are heard."""
        start, end = self.part or (0, len(self.phoneme_ids))
        return end - start

    @property
    def is_begun(self) -> bool:
        """Whether the part before it was spoken already."""
        return self.part is not None and self.part[0] > 0

    @property
    def is_unfinished(self) -> bool:
        """Whether the next piece is the part after it."""
        return self.part is not None and self.part[1] < len(self.phoneme_ids)
