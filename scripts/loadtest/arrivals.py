"""When sessions begin, and how many answers each of them asks for. Pure: no clock, no socket."""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Session:
    """One client of a round.

    Attributes:
        starts_s: from the round's beginning.
        answers: how many it asks for, one after the other.
    """

    starts_s: float
    answers: int = 1


def open_loop(rate_per_s: float, answers: int, seed: str) -> list[Session]:
    """Poisson arrivals: a session an answer, which begins whether or not those before it have been served."""
    rng = random.Random(f"arrivals/{seed}")
    sessions, at_s = [], 0.0
    for _ in range(answers):
        at_s += rng.expovariate(rate_per_s)
        sessions.append(Session(at_s))
    return sessions


def tide(
    low_per_s: float, high_per_s: float, period_s: float, lasts_s: float, answers: int, seed: str
) -> list[Session]:
    """Poisson arrivals whose rate rises from low to high and falls back, once a period."""
    rng = random.Random(f"tide/{seed}")
    sessions, at_s = [], 0.0
    while (at_s := at_s + rng.expovariate(high_per_s)) < lasts_s:
        rate_per_s = low_per_s + (high_per_s - low_per_s) * math.sin(math.pi * at_s / period_s) ** 2
        if rng.random() * high_per_s < rate_per_s:
            sessions.append(Session(at_s, answers))
    return sessions


def closed_loop(sessions: int, answers: int) -> list[Session]:
    """So many sessions at once, each asking again when it has been served; `answers` in all, shared out evenly."""
    each, more = divmod(answers, sessions)
    return [Session(0.0, each + (number < more)) for number in range(sessions)]


def answers_of(sessions: Sequence[Session]) -> int:
    """How many a round asks for."""
    return sum(session.answers for session in sessions)
