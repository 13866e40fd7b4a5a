"""What the engine speaks next, and whom it turns away: decisions only, no clock, no thread, no torch."""

from collections.abc import Collection
from dataclasses import dataclass

from serve_app.engine.types import Segment
from serve_app.errors import QueueSaturated


@dataclass(frozen=True, slots=True, eq=False)
class Pending:
    """A segment in the queue.

    Attributes:
        arrival: sequence number of its submission.
        turn: the round in which its session gets it spoken, see `next_turn`.
    """

    segment: Segment
    arrival: int
    turn: int


@dataclass(frozen=True, slots=True)
class BatchPolicy:
    """max_batch: segments in one forward pass."""

    max_batch: int


def admit(segment: Segment, waiting: Collection[Pending], max_queue: int) -> None:
    """Refuse a new utterance past the bound.

    Later segments of an utterance always enter: the client has heard its beginning, and each session asks only a few
    segments ahead, so the utterances that were let in bound the queue.

    Raises:
        QueueSaturated: a first segment while `max_queue` segments wait.
    """
    if segment.index == 0 and len(waiting) >= max_queue:
        raise QueueSaturated("The engine is busy and its queue is full; try again in a second.")


def next_turn(session_id: str, waiting: Collection[Pending], current: int) -> int:
    """The round of a segment that arrives now, where `current` is the latest round that was served.

    Rounds give each session one segment: the one served longest ago comes first, however many segments another session
    has waiting. This is start-time fair queueing (Goyal, Vin, Cheng 1996) with all segments of one length. It needs no
    memory of sessions with nothing in the queue.
    """
    own = (pending.turn for pending in waiting if pending.segment.session_id == session_id)
    return max(own, default=current) + 1


def plan_batch(waiting: Collection[Pending], policy: BatchPolicy) -> list[Pending]:
    """Pick the next forward pass, most urgent first; [] only if nothing waits.

    First segments go first, because their listeners wait in silence; then the sessions take turns, in order of arrival
    within a round.
    """
    return sorted(waiting, key=lambda p: (p.segment.index > 0, p.turn, p.arrival))[: policy.max_batch]
