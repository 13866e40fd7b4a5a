"""The orders that are compared: each a queue of segments in front of one engine."""

from collections import deque
from typing import Protocol

from serve_app.config import EngineSettings, LimitSettings
from serve_app.engine.schedule import Policy, Schedule
from serve_app.engine.types import Segment


class Order(Protocol):
    """A queue that a simulated engine speaks from.

    Attributes:
        lookahead: segments of one utterance that are asked for before the first of them is there; None: all.
    """

    lookahead: int | None

    def submit(self, segment: Segment, now_s: float) -> None:
        """Raises QueueSaturated."""
        ...

    def begin(self, now_s: float) -> list[Segment]:
        """The next pass; [] if nothing waits."""
        ...

    def end(self, now_s: float) -> None:
        """That pass has ended."""
        ...


class InOrderOfArrival:
    """What a lock does: who asks first is spoken first, to the end of the answer."""

    lookahead = None

    def __init__(self, max_batch: int) -> None:
        self._max_batch = max_batch
        self._waiting: deque[Segment] = deque()

    def submit(self, segment: Segment, now_s: float) -> None:
        self._waiting.append(segment)

    def begin(self, now_s: float) -> list[Segment]:
        return [self._waiting.popleft() for _ in range(min(len(self._waiting), self._max_batch))]

    def end(self, now_s: float) -> None:
        return None


class ByDeadline:
    """The engine's own planning, with the defaults of its settings."""

    lookahead = LimitSettings().lookahead_segments

    def __init__(self, max_batch: int) -> None:
        settings = EngineSettings()
        self._schedule = Schedule(Policy(max_batch, settings.max_queue, settings.max_wait_s))

    def submit(self, segment: Segment, now_s: float) -> None:
        self._schedule.submit(segment, now_s)

    def begin(self, now_s: float) -> list[Segment]:
        return [pending.segment for pending in self._schedule.begin(now_s)]

    def end(self, now_s: float) -> None:
        self._schedule.end(now_s)
