"""How long forward passes take, as measured: what estimates of waiting rest on. No clock, no torch."""

_FORGETTING = 0.96
"""Weight of a pass against the one after it: the latest 25 passes decide."""

_SURPRISE = 4.0
"""A pass counts as at most so many times what was expected of it. Captures and page faults are seconds that do not come
again; where everything really became slower, the next passes say so too.
"""


class PassTimes:
    """A line through the latest passes: seconds = fixed + slope * tokens, both at least 0.

    The fixed part is what a batch shares, so that a queue is not taken for slower than it is on an engine that has
    spoken one segment at a time so far.
    """

    def __init__(self) -> None:
        self._passes_seen = 0
        # Weighted sums over the passes: of 1, x, y, x * x, x * y with x in tokens and y in seconds.
        self._n = self._x = self._y = self._xx = self._xy = 0.0

    def record(self, tokens: float, pass_s: float) -> None:
        """A pass over so many tokens, all its segments added up. The first one pays for what later ones find ready."""
        self._passes_seen += 1
        if self._passes_seen == 1:
            return
        if expected_s := self.seconds(1, tokens):
            pass_s = min(pass_s, _SURPRISE * expected_s)
        self._n = self._n * _FORGETTING + 1
        self._x = self._x * _FORGETTING + tokens
        self._y = self._y * _FORGETTING + pass_s
        self._xx = self._xx * _FORGETTING + tokens * tokens
        self._xy = self._xy * _FORGETTING + tokens * pass_s

    def seconds(self, passes: int, tokens: float) -> float:
        """What so many passes over so many tokens in all will take; 0 before anything is known."""
        if not self._n:
            return 0.0
        x, y = self._x / self._n, self._y / self._n
        spread = self._xx / self._n - x * x
        slope = (self._xy / self._n - x * y) / spread if spread > 1e-6 * x * x else 0.0
        slope = min(max(slope, 0.0), y / x)  # past it the fixed part would be negative
        return passes * (y - slope * x) + tokens * slope
