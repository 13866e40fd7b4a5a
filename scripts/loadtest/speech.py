"""What a language model says and how fast it writes it: texts by seed, tokens, sentences, the messages of a WebSocket.

Pure: no clock, no socket. Times are seconds from the moment the model begins to write.
"""

import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_SHORT = (
    "Yes, {day} works.",
    "That one costs {number} euros.",
    "I found the {thing}.",
    "Let me look at the {thing}.",
    "Sure, I can help with that.",
)
_MIDDLE = (
    "The {thing} you asked about arrives on {day}.",
    "There are {number} of them left, in two colours.",
    "If it does not suit you, we can change it by {day}.",
    "I have written {day} down for you, in the {daytime}.",
    "Of these two, I would take the {thing}.",
)
_LONG = (
    "Because the {thing} was ordered late in the {daytime}, it will be with you on {day} at the earliest.",
    "You can bring the {thing} back within {number} days, provided that you still have the receipt for it.",
    "Of the {number} offers that came in by {day}, the one with the {thing} is the only one without a fee.",
)
_WORDS = {
    "day": ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"),
    "daytime": ("morning", "afternoon", "evening"),
    "number": ("three", "five", "twelve", "twenty", "forty"),
    "thing": ("blue lamp", "train ticket", "garden table", "small kettle", "winter coat", "green bicycle", "bookshelf"),
}
_LENGTHS = (_SHORT, _MIDDLE, _MIDDLE, _LONG)
"""About 25, 50 and 100 characters; a middle one is as likely as the two others together."""

_TOKEN = re.compile(r"\s*(?:\w{1,6}|[^\w\s])|\s+")

Timed = tuple[float, dict[str, Any]]
"""When a message is sent, and the message."""


@dataclass(frozen=True, slots=True)
class Script:
    """One answer as it will be written: sentences, of which a blank follows each but the last."""

    sentences: tuple[str, ...]

    @property
    def text(self) -> str:
        """All of it."""
        return " ".join(self.sentences)


def script(sentences: int, seed: str) -> Script:
    """An answer of so many sentences, short and long ones mixed."""
    rng = random.Random(f"speech/{seed}")
    drawn = (rng.choice(rng.choice(_LENGTHS)) for _ in range(sentences))
    return Script(tuple(one.format_map({name: rng.choice(words) for name, words in _WORDS.items()}) for one in drawn))


def tokens(text: str) -> list[str]:
    """Pieces such as a language model writes: a word or a part of one, its blank before it. Joined they are `text`."""
    return _TOKEN.findall(text)


@dataclass(frozen=True, slots=True)
class Dialogue:
    """What a session says to have one answer spoken over a WebSocket.

    Attributes:
        messages: in order of time.
        utterances: how many of the server's `synthesis_complete` make the answer whole.
    """

    messages: Sequence[Timed]
    utterances: int = 1


def as_one_text(answer: Script, tokens_per_s: float, request_id: str) -> Dialogue:
    """The answer was there before anything was sent: one message, at once."""
    return Dialogue([(0.0, {"text": answer.text, "request_id": request_id})])


def as_sentences(answer: Script, tokens_per_s: float, request_id: str) -> Dialogue:
    """A message a sentence, when its last token has been written."""
    messages: list[Timed] = []
    written = 0
    for number, sentence in enumerate(answer.sentences):
        written += len(tokens(sentence))
        messages.append((written / tokens_per_s, {"text": sentence, "request_id": f"{request_id}/{number}"}))
    return Dialogue(messages, len(messages))


def as_tokens(answer: Script, tokens_per_s: float, request_id: str) -> Dialogue:
    """A message a token, as it is written; the server cuts the sentences."""
    options: Mapping[str, Any] = {"request_id": request_id}
    messages: list[Timed] = [
        ((number + 1) / tokens_per_s, {"type": "text_delta", "text": token, **options})
        for number, token in enumerate(tokens(answer.text))
    ]
    return Dialogue([*messages, (messages[-1][0], {"type": "text_end"})])
