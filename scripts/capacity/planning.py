"""From what one instance carries, how long one more takes and what traffic is expected, to scaling values."""

import math
from dataclasses import dataclass

from deploy.settings import Autoscaling, StepIn

NOTICED_S = 40.0
"""From more sessions to the decision to add instances: the metric comes every 10 s, and three periods must agree."""
UNLIKELY = 2.33
"""Standard deviations above the mean that sessions arriving at random pass in 1 % of the time (normal distribution)."""
SPARE_IN = 0.9
"""The part of the target that must still suffice after an instance was given back, so that it is not wanted at once."""


class TrafficError(ValueError):
    """The stated traffic cannot be, or not be carried. The message says why."""


@dataclass(frozen=True, slots=True)
class Traffic:
    """Sessions at the same time.

    Attributes:
        trough, peak: the quietest and the busiest level of an ordinary day, as means.
        surge: sessions that come on top of whatever level there is, within `surge_over_s`.
        session_s: how long one answer keeps its session or request open.
    """

    trough: float
    peak: float
    surge: float
    surge_over_s: float
    session_s: float

    def __post_init__(self) -> None:
        if not 0 <= self.trough <= self.peak or self.peak <= 0:
            raise TrafficError("the trough is between 0 and the peak, and the peak is above 0")
        if self.surge < 0 or self.surge_over_s < 0 or self.session_s <= 0:
            raise TrafficError("a surge is not negative, and an answer takes time")

    @classmethod
    def of_rates(cls, trough: float, peak: float, surge: float, surge_over_s: float, session_s: float) -> "Traffic":
        """The same from requests per second (Little's law)."""
        return cls(trough * session_s, peak * session_s, surge * session_s, surge_over_s, session_s)

    def unseen(self, level: float, t_total_s: float) -> float:
        """Sessions that a surge adds to `level` before instances are there that were decided on having seen them.

        Scaling out waits for the instances it has asked for (the endpoint is updating), so the answer to what comes
        just after a decision is there only after the next one: two starts.
        """
        waited_s = NOTICED_S + 2 * t_total_s
        added = self.surge * (1.0 if waited_s >= self.surge_over_s else waited_s / self.surge_over_s)
        return min(added, self.peak + self.surge - level)


def busy(level: float) -> float:
    """Sessions at the same time that arrivals at random exceed in 1 % of the time, where `level` is their mean."""
    return level + UNLIKELY * math.sqrt(level)


def instances_at(level: float, values: Autoscaling) -> int:
    """Where scaling settles at a steady level."""
    return min(values.max_instances, max(values.min_instances, math.ceil(level / values.target_concurrency)))


def kept_at(level: float, values: Autoscaling) -> int:
    """Where giving back stops at a level that was higher before.

    The most sessions that any instance had within minutes decide on it, not the mean: more are kept than scaling out
    would have made.
    """
    allowed = math.ceil(values.step_in.below_concurrency) - 1  # sessions on the fullest instance while one may go
    held = math.ceil(busy(level) / allowed) if allowed else values.max_instances
    return min(values.max_instances, max(held, instances_at(level, values)))


def plan(traffic: Traffic, q_max: int, t_total_s: float) -> Autoscaling:
    """Scaling values with which at every level, in a surge too, enough instances run for what comes until more do.

    Of all pairs of target and minimum for which that is so, the one with the fewest instances at peak and, afterwards,
    at the trough together; of those, the highest target.

    Raises:
        TrafficError: one instance's start takes longer than a cooldown can be (an hour).
    """
    if t_total_s > 3600:
        raise TrafficError("an instance that takes over an hour to start cannot follow traffic; run a fixed number")
    levels = _levels(traffic)
    needed = [math.ceil(busy(level + traffic.unseen(level, t_total_s)) / q_max) for level in levels]
    best, fewest = None, math.inf
    for target in (tenths / 10 for tenths in range(10 * q_max, 0, -1)):
        settled = (min(needed[-1], math.ceil(level / target)) for level in levels)
        minimum = max((need for need, have in zip(needed, settled, strict=True) if have < need), default=1)
        values = Autoscaling(
            q_max=q_max,
            target_concurrency=target,
            min_instances=minimum,
            max_instances=needed[-1],
            scale_out_cooldown_s=_round_up(t_total_s, 10),  # before that, the metric cannot tell what was added
            scale_in_cooldown_s=min(3600, max(300, _round_up(t_total_s, 60))),
            step_in=StepIn(
                below_concurrency=_below(target, minimum),
                periods=max(10, math.ceil(t_total_s / 60)),  # one given back in vain takes a start to come again
            ),
        )
        running = kept_at(traffic.trough, values) + instances_at(traffic.peak, values)
        if running < fewest:
            best, fewest = values, running
    assert best is not None, "q_max is at least 1"
    return best


def _below(target: float, minimum: int) -> float:
    """Sessions on the fullest instance below which one of `minimum` + 1 may go, as the others then have the target."""
    carried = SPARE_IN * target * minimum
    return min(math.floor(99 * target) / 100, round(busy(carried) / (minimum + 1), 2))


def _levels(traffic: Traffic) -> list[float]:
    """From the trough to a surge on top of the peak: these two, the peak, and whole numbers between them."""
    top = traffic.peak + traffic.surge
    between = range(math.floor(traffic.trough) + 1, math.ceil(top))
    return sorted({traffic.trough, *map(float, between), traffic.peak, top})


def _round_up(seconds: float, step: int) -> int:
    return math.ceil(seconds / step) * step
