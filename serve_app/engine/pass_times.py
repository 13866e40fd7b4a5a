"""How long forward passes take, as measured: what estimates of waiting rest on. No clock, no torch."""

from serve_app.line import Line

_SURPRISE = 4.0
"""A pass counts as at most so many times what was expected of it. Captures and page faults are seconds that do not come
again; where everything really became slower, the next passes say so too.
"""


class PassTimes:
    """Seconds by tokens, with a fixed part, which is what a batch shares: a queue is not taken for slower than it is on
    an engine that has spoken one segment at a time so far.
    """

    def __init__(self) -> None:
        self._warm = False
        self._line = Line()

    def record(self, tokens: float, pass_s: float) -> None:
        """A pass over so many tokens, all its segments added up. The first one pays for what later ones find ready."""
        if self._warm:
            expected_s = self._line.at(tokens)
            self._line.record(tokens, min(pass_s, _SURPRISE * expected_s) if expected_s else pass_s)
        self._warm = True

    def seconds(self, passes: int, tokens: float) -> float:
        """What so many passes over so many tokens in all will take; 0 before anything is known."""
        return self._line.at(tokens, passes)
