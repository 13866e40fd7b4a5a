"""What the engine speaks next, and whom it turns away: decisions only, no clock, no thread, no torch.

A listener hears a gap when the audio that was handed on has been played before more is there. So the segment of one who
hears something has a deadline, the moment of falling silent, and the earliest goes first, which keeps the greatest
lateness as small as any order can (Jackson 1955). One who hears nothing yet goes before them all, in order of arrival,
as long as the others stay in time by what passes were measured to take: a gap is worse than a later beginning.

Nobody starves. A listener in silence waits at most PATIENCE_S for the others' sake and then competes by deadline, too;
a deadline is never before its segment's arrival, so once it has passed, nothing that comes later goes first.
"""

import math
from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from serve_app.engine.pass_times import PassTimes
from serve_app.engine.types import Segment
from serve_app.errors import QueueSaturated

MARGIN_S = 1.0
"""How long before their deadlines the others' segments have to be there for one in silence to go first. It covers what
estimates miss: later segments of theirs, and the next who come. At a simulated load of 90 %, half of it makes 3 to 35
gaps in 11 000 answers, all of it 1 or 2; more only makes starts later. See docs/scheduling.md.
"""

PATIENCE_S = 3.0
"""How long one in silence waits so that others hear no gap. Longer keeps gaps away even where work piles up, but then a
start is late: an answer that has not begun after a few seconds is given up.
"""

CONTEXT_SHARE = 0.2
"""What a token costs that is not spoken, but gives a part its intonation: it goes through text and prosody alone."""

BUCKET_TOKENS = (32, 64, 128, 256)
"""Upper bounds of the lengths that share a batch, where the longest decides what the others cost."""


@dataclass(frozen=True, slots=True)
class Policy:
    """What the planning has to keep.

    Attributes:
        max_batch: segments in one forward pass.
        max_queue: segments that wait; past it a new utterance is refused.
        max_wait_s: how long its listener may be left in silence by a new utterance; past it, it is refused.
    """

    max_batch: int
    max_queue: int
    max_wait_s: float


@dataclass(slots=True, eq=False)
class Pending:
    """A segment that waits or is being spoken.

    Attributes:
        arrival: sequence number of its submission.
        deadline_s: when its listener falls silent; for one in silence, when it came.
        silent: whether its listener heard nothing when it came, and waits for it and nothing before it.
        tokens: phoneme tokens that would last as long at speed 1; most of the work goes by seconds of audio.
    """

    segment: Segment
    arrival: int
    deadline_s: float
    silent: bool
    tokens: float = field(init=False)
    bucket: int = field(init=False)

    def __post_init__(self) -> None:
        context = len(self.segment.phoneme_ids) - self.segment.spoken_tokens
        self.tokens = (self.segment.spoken_tokens + CONTEXT_SHARE * context) / self.segment.speed
        self.bucket = bisect_left(BUCKET_TOKENS, self.tokens)


def default_batch(device: str) -> int:
    """`max_batch` for a type of device.

    A pass on a GPU is some 2 500 launches, which a batch makes once. A CPU computes items one by one in any case
    (network/grouping.py), and the first of them would be heard when the last one is done.
    """
    return 16 if device == "cuda" else 1


def plan_batch(waiting: Iterable[Pending], max_batch: int, now_s: float, times: PassTimes) -> list[Pending]:
    """Pick the next forward pass out of what waits, given in order of arrival; [] only if nothing does.

    The most urgent segment is in it, and the most urgent ones of its length with it. None goes before an earlier one of
    its own session.
    """
    ordered = _by_urgency(waiting, max_batch, now_s, times)
    batch: list[Pending] = []
    passed_over: set[str] = set()
    for pending in ordered:
        if pending.bucket == ordered[0].bucket and pending.segment.session_id not in passed_over:
            batch.append(pending)
            if len(batch) == max_batch:
                break
        else:
            passed_over.add(pending.segment.session_id)
    return batch


def _by_urgency(waiting: Iterable[Pending], max_batch: int, now_s: float, times: PassTimes) -> list[Pending]:
    """Most urgent first, without what waits behind a segment of a silent session: it is due after that is heard."""
    silent: dict[str, Pending] = {}
    playing: list[Pending] = []
    for pending in waiting:
        if pending.segment.session_id in silent:
            continue
        if pending.silent:
            silent[pending.segment.session_id] = pending
        else:
            playing.append(pending)
    playing.sort(key=_urgency)
    for first in silent.values():
        if _stay_in_time(playing, max_batch, now_s + times.seconds(1, first.tokens), times):
            return [*silent.values(), *playing]
        break
    return sorted([*silent.values(), *playing], key=_urgency)


def _stay_in_time(playing: Sequence[Pending], max_batch: int, from_s: float, times: PassTimes) -> bool:
    """Whether an engine that begins then with the first of them has each one done MARGIN_S before its deadline."""
    work = _Work(max_batch)
    for pending in playing:
        work.add(pending)
        if from_s + work.seconds(times) > pending.deadline_s - MARGIN_S:
            return False
    return True


def _urgency(pending: Pending) -> tuple[float, int]:
    return pending.deadline_s + PATIENCE_S * pending.silent, pending.arrival


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
        earlier = [
            other
            for other in self._waiting
            if _same_utterance(other.segment, segment) and other.segment.index < segment.index
        ]
        deadline_s = max([now_s + segment.slack_s, *(other.deadline_s for other in earlier)])
        pending = Pending(segment, self._arrivals, deadline_s, silent=segment.slack_s == 0 and not earlier)
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
        batch = plan_batch(self._waiting, self._policy.max_batch, now_s, self._times)
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
        """See Policy. Who is turned away is told when the same answer would be yes, were nobody else to come."""
        if len(self._waiting) >= self._policy.max_queue:
            surplus = sorted(self._waiting, key=_urgency)[: len(self._waiting) - self._policy.max_queue + 1]
            raise _saturated("its queue is full", self._rest_of_pass_s(now_s) + self._work_s(surplus), "queue")
        begin_s = self._free_in_s(now_s)
        too_late_s = begin_s - newcomer.segment.slack_s - self._policy.max_wait_s
        if too_late_s > 0:
            raise _saturated(f"speech would begin in {math.ceil(begin_s)} s", too_late_s, "wait")

    def _free_in_s(self, now_s: float) -> float:
        """When one in silence would be spoken: after those who are, and what else is due by then."""
        work = _Work(self._policy.max_batch)
        later = deque(sorted((pending for pending in self._waiting if not pending.silent), key=_urgency))
        for pending in self._waiting:
            if pending.silent:
                work.add(pending)
        while True:
            free_s = self._rest_of_pass_s(now_s) + work.seconds(self._times)
            if not later or later[0].deadline_s > now_s + free_s + MARGIN_S:
                return free_s
            work.add(later.popleft())

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


def _saturated(reason: str, back_s: float, bound: str) -> QueueSaturated:
    retry_after_s = max(1, math.ceil(back_s))
    return QueueSaturated(f"The engine is busy: {reason}. Try again in {retry_after_s} s.", retry_after_s, bound=bound)
