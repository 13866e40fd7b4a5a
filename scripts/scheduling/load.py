"""Who asks for speech, and when: answers of several sentences, drawn by seed."""

import random
from collections.abc import Iterator
from dataclasses import dataclass

SENTENCES = 5

_SHORTEST, _MEDIAN, _LONGEST, _SPREAD = 11, 34, 120, 0.45
"""Phoneme tokens of a sentence, log-normal. The sentences with published lengths have 11, 27 and 33; short ones leave
the least time to compute the next.
"""
_FIXED_S, _TOKEN_S, _VARIATION = 0.6, 0.05, 0.1
"""Seconds that a sentence is heard: the pause after it, each token, and how much either varies (standard deviation)."""


@dataclass(frozen=True, slots=True)
class Sentence:
    """Its length before and after it is spoken."""

    tokens: int
    audio_s: float


@dataclass(frozen=True, slots=True)
class Answer:
    """What a session says at once."""

    session_id: str
    number: int
    asked_s: float
    sentences: tuple[Sentence, ...]


def poisson(per_s: float, lasts_s: float, *, seed: int) -> Iterator[Answer]:
    """Answers that come independently of each other, each of a session of its own."""
    rng = random.Random(f"poisson/{seed}")
    now_s, number = rng.expovariate(per_s), 0
    while now_s < lasts_s:
        yield Answer(f"s{number}", 0, now_s, sentences(rng))
        now_s, number = now_s + rng.expovariate(per_s), number + 1


def sentences(rng: random.Random) -> tuple[Sentence, ...]:
    """What an answer consists of."""
    return tuple(_sentence(rng) for _ in range(SENTENCES))


def _sentence(rng: random.Random) -> Sentence:
    tokens = round(min(max(_MEDIAN * rng.lognormvariate(0, _SPREAD), _SHORTEST), _LONGEST))
    return Sentence(tokens, (_FIXED_S + _TOKEN_S * tokens) * rng.lognormvariate(0, _VARIATION))
