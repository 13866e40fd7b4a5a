"""What became of answers, as their listeners tell it. Pure: no clock, no socket.

An answer that was not whole is in no percentile, so failures, refusals and cut streams are counted first: a server that
refuses the hard ones has fine percentiles.
"""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from scripts.capacity.queue import percentile

HEARD_GAP_S = 0.01
"""Silence shorter than this within speech is no gap to a listener; it still counts as silence."""

LEAST_S_PER_CHARACTER = 0.02
"""Speech is three times as slow; an answer with less audio than this has lost some, though it ended politely."""


class Outcome(StrEnum):
    """How an answer ended."""

    COMPLETE = "complete"
    FAILED = "failed"
    """Before any of it was heard."""
    REFUSED = "refused"
    """As `FAILED`, but the server said that it is busy."""
    CUT = "cut"
    """Its listener heard a beginning."""


@dataclass(frozen=True, slots=True)
class Playback:
    """What a listener hears who plays the audio from its first byte on.

    Attributes:
        gaps: how often it ran dry for `HEARD_GAP_S` or longer before the end.
        silent_s, longest_gap_s: silence in all, and at a time.
        ends_s: when the last sample has been played, on the clock of the arrivals; minus infinity without audio.
    """

    gaps: int
    silent_s: float
    longest_gap_s: float
    ends_s: float


def playback(arrivals: Iterable[tuple[float, float]]) -> Playback:
    """Play audio that came in pieces; (arrival, duration) of each, in seconds and in order."""
    silences_s: list[float] = []
    dry_at_s = -math.inf
    for at_s, duration_s in arrivals:
        if -math.inf < dry_at_s < at_s:
            silences_s.append(at_s - dry_at_s)
        dry_at_s = max(at_s, dry_at_s) + duration_s
    return Playback(
        sum(silence_s >= HEARD_GAP_S for silence_s in silences_s),
        sum(silences_s),
        max(silences_s, default=0.0),
        dry_at_s,
    )


def judged(failure: str, *, busy: bool, audio_s: float, characters: int) -> tuple[Outcome, str]:
    """How an answer ended, and why if it is not complete.

    Args:
        failure: what went wrong; "" if the server says that the answer is complete.
        busy: the failure is a refusal.
        characters: of its text.
    """
    if not failure and not audio_s:
        return Outcome.FAILED, "complete without audio"
    if not failure and audio_s < LEAST_S_PER_CHARACTER * characters:
        return Outcome.CUT, "complete with too little audio"
    if not failure:
        return Outcome.COMPLETE, ""
    if audio_s:
        return Outcome.CUT, failure
    return (Outcome.REFUSED if busy else Outcome.FAILED), failure


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer: a row of the results.

    Attributes:
        sessions: how many the round had.
        late_s: how much later than planned the client itself began with it.
        began_s: seconds into the round at which its first text was sent; if it never was, at which the client asked for
            a connection.
        connect_s: what the connection took; 0 if an earlier answer's was used. In no other time.
        ttfa_s, last_audio_s, ended_s: from `began_s` to the first and the last audio byte, and to the end of the answer
            or its failure.
        retry_after_s: what a refusal asked for.
    """

    server: str
    route: str
    round: int
    sessions: int
    session: int
    number: int
    request_id: str
    outcome: Outcome
    reason: str
    sentences: int
    characters: int
    late_s: float
    began_s: float
    connect_s: float
    ttfa_s: float | None
    last_audio_s: float | None
    ended_s: float
    audio_s: float
    gaps: int
    silent_s: float
    longest_gap_s: float
    retry_after_s: float | None


@dataclass(frozen=True, slots=True)
class Summary:
    """The answers of one server over one route.

    Attributes:
        reasons: of all that are not complete, by outcome.
        slowest_refusal_s: None without a refusal.
        without_retry_after: refusals that did not say when to come back.
        ttfa_s: 50th, 95th and 99th percentile over the complete answers; None if there are none.
        with_gaps: complete answers that ran dry.
        silent_s, worst_silent_s: per complete answer, on average and at worst.
        audio_per_s: seconds of audio, of whatever outcome, that came in a second of the rounds.
    """

    answers: int
    outcomes: Counter[Outcome]
    reasons: Counter[tuple[Outcome, str]]
    slowest_refusal_s: float | None
    without_retry_after: int
    ttfa_s: tuple[float, float, float] | None
    p95_connect_s: float
    with_gaps: int
    silent_s: float
    worst_silent_s: float
    audio_per_s: float
    most_late_s: float

    @property
    def errors(self) -> int:
        """Answers that were not complete."""
        return self.answers - self.outcomes[Outcome.COMPLETE]


def summary(answers: Sequence[Answer]) -> Summary:
    """Count failures, then measure the rest. Raises ValueError without answers."""
    if not answers:
        raise ValueError("no answers were asked for")
    complete = [one for one in answers if one.outcome is Outcome.COMPLETE]
    refused = [one for one in answers if one.outcome is Outcome.REFUSED]
    heard_s = [one.ttfa_s for one in complete if one.ttfa_s is not None]
    return Summary(
        answers=len(answers),
        outcomes=Counter(one.outcome for one in answers),
        reasons=Counter((one.outcome, one.reason) for one in answers if one.outcome is not Outcome.COMPLETE),
        slowest_refusal_s=max((one.ended_s for one in refused), default=None),
        without_retry_after=sum(one.retry_after_s is None for one in refused),
        ttfa_s=(percentile(heard_s, 50), percentile(heard_s, 95), percentile(heard_s, 99)) if heard_s else None,
        p95_connect_s=percentile([one.connect_s for one in answers], 95),
        with_gaps=sum(one.gaps > 0 for one in complete),
        silent_s=sum(one.silent_s for one in complete) / max(1, len(complete)),
        worst_silent_s=max((one.silent_s for one in complete), default=0.0),
        audio_per_s=audio_per_s(answers),
        most_late_s=max(one.late_s for one in answers),
    )


def audio_per_s(answers: Sequence[Answer]) -> float:
    """Audio that came, by the time between a round's first text and its last audio; 0 if none came."""
    wall_s = 0.0
    for number in {one.round for one in answers}:
        of_round = [one for one in answers if one.round == number]
        last_s = max((one.began_s + one.last_audio_s for one in of_round if one.last_audio_s is not None), default=None)
        if last_s is not None:
            wall_s += last_s - min(one.began_s for one in of_round)
    return sum(one.audio_s for one in answers) / wall_s if wall_s else 0.0


def round_ratios(ours: Sequence[Answer], theirs: Sequence[Answer]) -> list[float]:
    """Their p95 of the time to first audio by ours, round by round, where both were heard: drift is in both."""
    ratios = []
    for number in sorted({one.round for one in ours} & {one.round for one in theirs}):
        p95s_s = []
        for answers in (ours, theirs):
            found = summary([one for one in answers if one.round == number]).ttfa_s
            p95s_s.append(found[1] if found else math.nan)
        if p95s_s[0] > 0 and not math.isnan(p95s_s[1]):
            ratios.append(p95s_s[1] / p95s_s[0])
    return ratios
