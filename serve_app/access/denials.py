"""How often a log speaks of those who are turned away: they are as many as strangers like. Time is an argument."""

import math

LINE_EVERY_S = 60.0


class Denials:
    """Of one kind: the first is told of at once, and then all since the last line at most once in LINE_EVERY_S."""

    def __init__(self) -> None:
        self._untold = 0
        self._quiet_until_s = -math.inf

    def count(self, now_s: float) -> int:
        """One more. Returns how many a line is to tell of now, this one included; 0: a later line tells of it.

        `now_s` is any one monotonic clock.
        """
        self._untold += 1
        if now_s < self._quiet_until_s:
            return 0
        told, self._untold, self._quiet_until_s = self._untold, 0, now_s + LINE_EVERY_S
        return told
