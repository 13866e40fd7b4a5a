"""What of an answer its listener has heard, so that a conversation goes on from there and not from what was written."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from serve_app.client.types import Word

NEARLY_S = 0.05
"""So little of a sentence's end is silence."""


@dataclass(slots=True)
class Utterance:
    """A sentence and the audio of it that was handed to the listener. Times are seconds from its own start.

    Attributes:
        text: "" where it is no part of the answer.
        whole: no more audio of it follows.
    """

    text: str
    handed_s: float = 0.0
    whole: bool = False
    words: list[Word] = field(default_factory=list)

    def heard(self, played_s: float) -> str:
        """The part of the text that is over after so much of its audio."""
        if played_s <= 0 or not self.handed_s:
            return ""
        if self.whole and played_s >= self.handed_s - NEARLY_S:
            return self.text
        if not self.words:  # a server that times none: as if every character took as long
            return self.text[: int(len(self.text) * min(1.0, played_s / self.handed_s))].rpartition(" ")[0]
        end = 0
        for word in self.words:
            if word.start_s >= played_s:
                break
            found = self.text.find(word.text, end)
            if found >= 0:  # a word may be written otherwise than it is spoken
                end = found + len(word.text)
        return self.text[:end]


class Spoken:
    """One answer, as its listener gets it."""

    def __init__(self) -> None:
        self._utterances: list[Utterance] = []
        self._ahead_until_s = float("-inf")

    def began(self, text: str) -> Utterance:
        """The next utterance."""
        self._utterances.append(Utterance(text))
        return self._utterances[-1]

    def handed(self, utterance: Utterance, duration_s: float, now_s: float) -> None:
        """The listener got so much more audio of an utterance, and plays it when what came before is over."""
        utterance.handed_s += duration_s
        self._ahead_until_s = max(self._ahead_until_s, now_s) + duration_s

    def played_s(self, now_s: float) -> float:
        """How much of all audio has been played by a listener who began with the first of it and never paused."""
        handed_s = sum(utterance.handed_s for utterance in self._utterances)
        return handed_s - max(0.0, self._ahead_until_s - now_s)

    def text(self, played_s: float) -> str:
        """What had been said when so much of the audio was played."""
        heard = []
        for utterance in self._utterances:
            heard.append(utterance.heard(played_s))
            played_s -= utterance.handed_s
        return " ".join(text for text in heard if text)


def with_times(words: Sequence[Word], from_s: float) -> tuple[dict[str, str | float], ...]:
    """Words as the wire has them, their times moved by `from_s`."""
    return tuple(
        {"w": word.text, "start_s": round(word.start_s + from_s, 3), "end_s": round(word.end_s + from_s, 3)}
        for word in words
    )
