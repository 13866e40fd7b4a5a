"""Pauses that a text asks for, such as `[pause:300ms]` and `[pause:1.5s]`."""

import re

MAX_PAUSE_S = 10.0

_MARK = r"\[pause:\s*(\d+(?:\.\d*)?|\.\d+)\s*(m?)s\]"
PAUSE = re.compile(_MARK, re.IGNORECASE)
PAUSE_START = "[pause:"

# Punctuation behind a mark belongs to the words before it: they would sound unfinished without.
_PAUSE_AND_CLOSING = re.compile(_MARK + r"(\s*[.,;:!?…。，、；：！？।॥]++(?!\d)|)", re.IGNORECASE)


def split_at_pauses(sentence: str) -> list[str | float]:
    """The sentence in order: text to speak, and between it seconds of silence, each 0 to MAX_PAUSE_S.

    A longer pause becomes MAX_PAUSE_S: a model that writes one must not cost its listener the rest of the answer.
    """
    parts: list[str | float] = []
    at = 0
    for mark in _PAUSE_AND_CLOSING.finditer(sentence):
        number, milli, closing = mark.groups()
        text = sentence[at : mark.start()].strip() + closing.strip()
        parts += [text, min(float(number) / (1000 if milli else 1), MAX_PAUSE_S)]
        at = mark.end()
    parts.append(sentence[at:].strip())
    return [part for part in parts if part != ""]
