"""A fleet under a surge, over a virtual clock: sessions arrive at random, scaling adds and removes instances.

Scaling follows the values as `deploy/sagemaker.py` sets them up. Out: the mean concurrency of an instance is read every
10 s; three readings above the target, nothing on its way and the cooldown over, and so many instances are asked for
that the mean is at the target; they carry sessions `t_total_s` later. In: for `step_in.periods` minutes no instance had
`step_in.below_concurrency` sessions, and `step_in.remove_instances` get no more and end with their last one.
A session goes to the instance with the fewest open ones (LEAST_OUTSTANDING_REQUESTS).
"""

import heapq
import math
import random
from dataclasses import dataclass, field

from deploy.settings import Autoscaling
from scripts.capacity.planning import Traffic, instances_at

PERIOD_S = 10.0
READINGS_OUT = 3


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a surge did.

    Attributes:
        sessions: that arrived, refused ones included.
        late: began on an instance that already had q_max open ones, so that the promise does not hold for them.
        refused: found every instance full.
        most_instances, left_instances: carried sessions at the same time, and at the end.
        instance_hours: paid for, from the surge's beginning to the end of the simulated time.
    """

    sessions: int
    late: int
    refused: int
    most_instances: int
    left_instances: int
    instance_hours: float


@dataclass(slots=True)
class _Fleet:
    """Open sessions by instance that takes more of them."""

    serving: dict[int, int] = field(default_factory=dict)
    made: int = 0
    fullest: int = 0  # had so many since the last reading

    def begin(self) -> int:
        """A session goes to the freest instance; returns which."""
        name = self.freest()
        self.serving[name] += 1
        self.fullest = max(self.fullest, self.serving[name])
        return name

    def read(self) -> int:
        """The most sessions that an instance had since the last time."""
        fullest, self.fullest = self.fullest, max(self.serving.values())
        return fullest

    def add(self, count: int) -> None:
        for _ in range(count):
            self.serving[self.made] = 0
            self.made += 1

    def remove(self, count: int) -> None:
        for name in sorted(self.serving, key=lambda name: self.serving[name])[:count]:
            del self.serving[name]

    def freest(self) -> int:
        return min(self.serving, key=lambda name: self.serving[name])

    def end(self, name: int) -> None:
        if name in self.serving:
            self.serving[name] -= 1


class _Scaling:
    """The decisions, one a period."""

    def __init__(self, values: Autoscaling) -> None:
        self._values = values
        self._above = self._below = 0
        self._out_until_s = self._in_until_s = 0.0

    def decide(self, now_s: float, open_sessions: int, fullest: int, running: int) -> int:
        """Instances to add, or to remove if negative. Not asked while instances are on their way."""
        values = self._values
        self._above = self._above + 1 if open_sessions / running > values.target_concurrency else 0
        self._below = self._below + 1 if fullest < values.step_in.below_concurrency else 0
        if self._above >= READINGS_OUT and now_s >= self._out_until_s:
            wanted = min(values.max_instances, math.ceil(open_sessions / values.target_concurrency))
            self._out_until_s = now_s + values.scale_out_cooldown_s
            return max(0, wanted - running)
        if self._below * PERIOD_S >= 60 * values.step_in.periods and now_s >= self._in_until_s:
            self._in_until_s = now_s + values.scale_in_cooldown_s
            return -min(values.step_in.remove_instances, running - values.min_instances)
        return 0


def simulate(
    traffic: Traffic, level: float, values: Autoscaling, t_total_s: float, *, refuse_at: int, lasts_s: float, seed: int
) -> Outcome:
    """A surge that begins at time 0 at a steady `level`, stays for `lasts_s` and goes, with the calm after it.

    Args:
        refuse_at: open sessions of an instance past which it refuses another one.
    """
    rng = random.Random(f"{seed}/{level}")
    fleet, scaling = _Fleet(), _Scaling(values)
    fleet.add(instances_at(level, values))
    endings: list[tuple[float, int]] = []
    ready: list[float] = []  # when each instance on its way carries sessions

    def begin(now_s: float) -> None:
        heapq.heappush(endings, (now_s + rng.expovariate(1 / traffic.session_s), fleet.begin()))

    for _ in range(_poisson(level, rng)):
        begin(0.0)
    over_s = traffic.surge_over_s + lasts_s + traffic.surge_over_s + 2 * t_total_s
    most_rate = (level + traffic.surge) / traffic.session_s
    sessions = late = refused = 0
    most, paid_s = len(fleet.serving), 0.0
    arrival_s, tick_s = rng.expovariate(most_rate) if most_rate else math.inf, PERIOD_S
    while tick_s <= over_s:
        now_s = min(arrival_s, tick_s)
        while endings and endings[0][0] <= now_s:
            fleet.end(heapq.heappop(endings)[1])
        while ready and ready[0] <= now_s:
            heapq.heappop(ready)
            fleet.add(1)
        most = max(most, len(fleet.serving))
        if now_s == tick_s:
            paid_s += PERIOD_S * (len(fleet.serving) + len(ready))
            if not ready:
                change = scaling.decide(now_s, sum(fleet.serving.values()), fleet.read(), len(fleet.serving))
                fleet.remove(max(0, -change))
                for _ in range(change):
                    heapq.heappush(ready, now_s + t_total_s)
            tick_s += PERIOD_S
            continue
        if rng.random() * most_rate * traffic.session_s < level + _surging(traffic, lasts_s, now_s):
            sessions += 1
            found = fleet.serving[fleet.freest()]
            if found >= refuse_at:
                refused += 1
            else:
                late += found >= values.q_max
                begin(now_s)
        arrival_s = now_s + rng.expovariate(most_rate)
    return Outcome(sessions, late, refused, most, len(fleet.serving), paid_s / 3600)


def _surging(traffic: Traffic, lasts_s: float, now_s: float) -> float:
    """Sessions of the surge at a moment: up in a straight line, level, down in a straight line."""
    over_s = traffic.surge_over_s
    if now_s < over_s:
        return traffic.surge * now_s / over_s
    ending_s = now_s - over_s - lasts_s
    if ending_s <= 0:
        return traffic.surge
    return traffic.surge * max(0.0, 1 - ending_s / over_s) if over_s else 0.0


def _poisson(mean: float, rng: random.Random) -> int:
    """Arrivals of rate 1 within `mean` seconds."""
    count, at = 0, rng.expovariate(1.0)
    while at < mean:
        count, at = count + 1, at + rng.expovariate(1.0)
    return count
