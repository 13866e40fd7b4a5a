"""One instance under a closed load, over a virtual clock: a queue, and an engine that takes batches out of it.

An engine behind one lock is the same with batches of one: what it can do is then a straight line, and concurrency only
says how long the queue is.
"""

import heapq
import math
import random
from bisect import bisect_left
from collections import deque
from collections.abc import Mapping, Sequence

from scripts.capacity.ladder import Rung


class ServiceCurve:
    """Seconds that a forward pass takes, by the number of sentences in it; straight lines between what is known."""

    def __init__(self, seconds: Mapping[int, float]) -> None:
        """`seconds`: from 1 to the largest batch that the engine takes. Raises ValueError on anything else."""
        self._known = sorted(seconds.items())
        times_s = [taken_s for _, taken_s in self._known]
        if not self._known or self._known[0][0] != 1 or times_s[0] <= 0 or times_s != sorted(times_s):
            raise ValueError("a service curve begins with a batch of 1, and a larger batch takes no less time")

    @property
    def max_batch(self) -> int:
        """The largest batch that the engine takes."""
        return self._known[-1][0]

    def seconds(self, batch: int) -> float:
        """The time of one pass, 1 to `max_batch` sentences."""
        place = bisect_left(self._known, (batch, -math.inf))
        size, taken_s = self._known[place]
        if size == batch:
            return taken_s
        before, before_s = self._known[place - 1]
        return before_s + (taken_s - before_s) * (batch - before) / (size - before)


def closed_load(
    curve: ServiceCurve, concurrency: int, *, way_s: float, variation: float, answers: int, seed: int
) -> list[float]:
    """Time to first audio, in seconds, of `answers` sentences asked for by clients that each wait for the last one.

    Args:
        way_s: from a client to the queue and back, added to every answer.
        variation: standard deviation of a pass's time, as a part of it.
    """
    rng = random.Random(f"{seed}/{concurrency}")
    sent = [(0.0, client) for client in range(concurrency)]  # when each client's next sentence was sent
    waiting: deque[float] = deque()
    free_s, taken_s = 0.0, []
    spread = math.sqrt(math.log1p(variation**2))
    while len(taken_s) < answers + concurrency:
        if not waiting:
            free_s = max(free_s, sent[0][0] + way_s)
        while sent and sent[0][0] + way_s <= free_s:
            waiting.append(heapq.heappop(sent)[0])
        batch = [waiting.popleft() for _ in range(min(len(waiting), curve.max_batch))]
        free_s += curve.seconds(len(batch)) * rng.lognormvariate(-(spread**2) / 2, spread)
        taken_s += [free_s - sent_s for sent_s in batch]
        for number, _ in enumerate(batch):
            heapq.heappush(sent, (free_s, number))
    return taken_s[concurrency : concurrency + answers]  # the first round finds an empty queue


def ladder_of(
    curve: ServiceCurve,
    concurrencies: Sequence[int],
    *,
    way_s: float = 0.006,
    variation: float = 0.03,
    answers: int = 2000,
    seed: int = 0,
) -> list[Rung]:
    """The ladder that a load test of such an engine would write; see `closed_load`."""
    rungs = []
    for concurrency in concurrencies:
        times_s = closed_load(curve, concurrency, way_s=way_s, variation=variation, answers=answers, seed=seed)
        rungs.append(Rung(concurrency, percentile(times_s, 95)))
    return rungs


def percentile(values: Sequence[float], percent: float) -> float:
    """Linear between the two nearest ranks."""
    ranked = sorted(values)
    place = (len(ranked) - 1) * percent / 100
    below = math.floor(place)
    above = min(below + 1, len(ranked) - 1)
    return ranked[below] + (ranked[above] - ranked[below]) * (place - below)
