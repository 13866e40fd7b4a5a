"""A line through what was measured lately: y = fixed + slope * x, neither of them negative."""

_FORGETTING = 0.96
"""Weight of a measurement against the one after it: the latest 25 decide."""


class Line:
    """Fitted by least squares; `at` may add several y up, which share their x but not what is fixed."""

    def __init__(self) -> None:
        # Weighted sums over the measurements: of 1, x, y, x * x, x * y.
        self._n = self._x = self._y = self._xx = self._xy = 0.0

    def record(self, x: float, y: float) -> None:
        """One more measurement; x above 0, y not below."""
        self._n = self._n * _FORGETTING + 1
        self._x = self._x * _FORGETTING + x
        self._y = self._y * _FORGETTING + y
        self._xx = self._xx * _FORGETTING + x * x
        self._xy = self._xy * _FORGETTING + x * y

    def at(self, x: float, count: int = 1) -> float:
        """The sum of `count` y whose x add up to `x`; 0 before any measurement. All is fixed while all x are alike."""
        if not self._n:
            return 0.0
        mean_x, mean_y = self._x / self._n, self._y / self._n
        spread = self._xx / self._n - mean_x * mean_x
        slope = (self._xy / self._n - mean_x * mean_y) / spread if spread > 1e-6 * mean_x * mean_x else 0.0
        slope = min(max(slope, 0.0), mean_y / mean_x)
        return count * (mean_y - slope * mean_x) + x * slope
