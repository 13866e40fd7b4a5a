"""What the engine speaks next, and whom it turns away: decisions only, no clock, no thread, no torch.

The rule. A listener hears a gap when the audio that was handed on has been played before more is there, so each segment
has a deadline: the moment when its listener falls silent. Who has heard nothing yet is silent from the moment of
asking. The earliest deadline goes first, which keeps the greatest lateness as small as any order can (Jackson 1955).

Nobody starves: a deadline lies never before its segment's arrival, so once it has passed, nothing that comes later goes
first; and each batch has the most urgent segment in it.
"""

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from serve_app.engine.pass_times import PassTimes
from serve_app.engine.types import Segment
from serve_app.errors import QueueSaturated

BUCKET_TOKENS = (32, 64, 128, 256)
"""Upper bounds of the lengths that share a batch, where the longest decides what the others cost."""


@dataclass(frozen=True, slots=True)
class Policy:
    """What the planning has to keep.

    Attributes:
        max_batch: segments in one forward pass.
        max_queue: segments that wait; past it a new utterance is refused.
        max_wait_s: how long after its deadline a new utterance may begin to be spoken; past it, it is refused.
    """

    max_batch: int
    max_queue: int
    max_wait_s: float


@dataclass(slots=True, eq=False)
class Pending:
    """A segment that waits or is being spoken.

    Attributes:
        arrival: sequence number of its submission.
        deadline_s: when its listener has nothing left to hear.
        tokens: phoneme tokens that would last as long at speed 1; most of the work goes by seconds of audio.
    """

    segment: Segment
    arrival: int
    deadline_s: float
    tokens: float = field(init=False)
    bucket: int = field(init=False)

    def __post_init__(self) -> None:
        self.tokens = len(self.segment.phoneme_ids) / self.segment.speed
        self.bucket = bisect_left(BUCKET_TOKENS, self.tokens)


def plan_batch(waiting: Collection[Pending], max_batch: int) -> list[Pending]:
    """Pick the next forward pass, most urgent first; [] only if nothing waits.

    The most urgent segment is in it, and the most urgent ones of its length with it. None goes before an earlier one of
    its own session.
    """
    if not waiting:
        return []
    first = min(waiting, key=_urgency)
    if max_batch == 1:
        return [first]
    batch: list[Pending] = []
    passed_over: set[str] = set()
    for pending in sorted(waiting, key=_urgency):
        if pending.bucket == first.bucket and pending.segment.session_id not in passed_over:
            batch.append(pending)
            if len(batch) == max_batch:
                break
        else:
            passed_over.add(pending.segment.session_id)
    return batch


def _urgency(pending: Pending) -> tuple[float, int]:
    return pending.deadline_s, pending.arrival


class Schedule:
    """The queue in front of one model, and the pass that runs. `now_s` is any one monotonic clock."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._waiting: dict[Pending, None] = {}
        self._running: Sequence[Pending] = ()
        self._running_since_s = 0.0
        self._arrivals = 0
        self._times = PassTimes()

    def __len__(self) -> int:
        """Segments that wait; the ones that are being spoken don't count."""
        return len(self._waiting)

    def submit(self, segment: Segment, now_s: float) -> Pending:
        """Let a segment in.

        Later segments of an utterance always enter: the client has heard its beginning, and each session asks only a
        few segments ahead, so the utterances that were let in bound the queue.

        Raises:
            QueueSaturated: a first segment past a bound; when to come back is told with it.
        """
        deadline_s = now_s + segment.slack_s
        for other in self._waiting:
            if _same_utterance(other.segment, segment) and other.segment.index < segment.index:
                deadline_s = max(deadline_s, other.deadline_s)
        pending = Pending(segment, self._arrivals, deadline_s)
        if segment.index == 0:
            self._admit(pending, now_s)
        self._arrivals += 1
        self._waiting[pending] = None
        return pending

    def withdraw(self, pending: Pending) -> bool:
        """Take a segment out, whose listener has left. False: it does not wait, nothing has changed."""
        if pending not in self._waiting:
            return False
        del self._waiting[pending]
        return True

    def clear(self) -> None:
        """Forget all that wait."""
        self._waiting.clear()

    def begin(self, now_s: float) -> list[Pending]:
        """Take the next forward pass out of the queue; [] only if nothing waits. Then call `end`."""
        batch = plan_batch(self._waiting, self._policy.max_batch)
        for pending in batch:
            del self._waiting[pending]
        self._running, self._running_since_s = batch, now_s
        return batch

    def end(self, now_s: float) -> None:
        """The pass that `begin` gave has ended.

        A listener to whom it came late hears it from now on: what waits behind it is due later by as much.
        """
        self._times.record(sum(pending.tokens for pending in self._running), now_s - self._running_since_s)
        late_s: dict[str, float] = {}
        for spoken in sorted(self._running, key=lambda pending: pending.arrival):
            session_id = spoken.segment.session_id
            before_s = late_s.get(session_id, 0.0)
            late_s[session_id] = before_s + max(0.0, now_s - (spoken.deadline_s + before_s))
        self._running = ()
        for pending in self._waiting:
            pending.deadline_s += late_s.get(pending.segment.session_id, 0.0)

    def _admit(self, newcomer: Pending, now_s: float) -> None:
        by_urgency = sorted(self._waiting, key=_urgency)
        if len(by_urgency) >= self._policy.max_queue:
            surplus = by_urgency[: len(by_urgency) - self._policy.max_queue + 1]
            back_s = self._rest_of_pass_s(now_s) + self._work_s(surplus)
            raise _saturated("its queue is full", back_s)
        ahead_s = self._rest_of_pass_s(now_s) + self._work_s(
            pending for pending in by_urgency if pending.deadline_s <= newcomer.deadline_s
        )
        if now_s + ahead_s - newcomer.deadline_s > self._policy.max_wait_s:
            raise _saturated(f"speech would begin in {math.ceil(ahead_s)} s", self._back_in_s(by_urgency, now_s))

    def _back_in_s(self, by_urgency: Sequence[Pending], now_s: float) -> float:
        """How soon a listener in silence could be let in, were nobody else to come: what falls due meanwhile counts."""
        work = _Work(self._policy.max_batch)
        back_s, taken = 0.0, 0
        while True:
            while taken < len(by_urgency) and by_urgency[taken].deadline_s <= now_s + back_s:
                work.add(by_urgency[taken])
                taken += 1
            latest_s = self._rest_of_pass_s(now_s) + work.seconds(self._times) - self._policy.max_wait_s
            if latest_s <= back_s:
                return back_s
            back_s = latest_s

    def _rest_of_pass_s(self, now_s: float) -> float:
        if not self._running:
            return 0.0
        return max(0.0, self._running_since_s + self._work_s(self._running) - now_s)

    def _work_s(self, segments: Iterable[Pending]) -> float:
        work = _Work(self._policy.max_batch)
        for pending in segments:
            work.add(pending)
        return work.seconds(self._times)


class _Work:
    """Segments added up to passes and tokens."""

    def __init__(self, max_batch: int) -> None:
        self._max_batch = max_batch
        self._by_bucket: Counter[int] = Counter()
        self._passes = 0
        self._tokens = 0.0

    def add(self, pending: Pending) -> None:
        self._passes += self._by_bucket[pending.bucket] % self._max_batch == 0
        self._by_bucket[pending.bucket] += 1
        self._tokens += pending.tokens

    def seconds(self, times: PassTimes) -> float:
        return times.seconds(self._passes, self._tokens)


def _same_utterance(one: Segment, other: Segment) -> bool:
    return (one.session_id, one.request_id) == (other.session_id, other.request_id)


def _saturated(reason: str, back_s: float) -> QueueSaturated:
    retry_after_s = max(1, math.ceil(back_s))
    return QueueSaturated(f"The engine is busy: {reason}. Try again in {retry_after_s} s.", retry_after_s)
