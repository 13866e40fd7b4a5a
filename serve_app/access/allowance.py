"""How many characters one caller may have spoken: a token bucket. Time is an argument."""

import math

from serve_app.errors import RateLimited


class Allowance:
    """Fills at `characters_per_minute`, up to a minute's worth.

    A text is let in whole as long as anything is left, and what it takes beyond that is waited for before the next
    one: so nothing breaks off half-way, a text that is still being written included, and none is too long for ever.
    `now_s` is any one monotonic clock.
    """

    def __init__(self, characters_per_minute: int | None) -> None:
        """None: without a bound."""
        self._burst_s = math.inf if characters_per_minute is None else 60.0
        self._s_per_character = 0.0 if characters_per_minute is None else 60.0 / characters_per_minute
        self._full_s = -math.inf  # when the bucket is full again; with it and the time, its level is known

    def check(self, now_s: float) -> None:
        """Raises RateLimited, with the whole seconds after which a text is let in again."""
        over_s = self._full_s - now_s - self._burst_s
        if over_s >= 0:
            wait_s = math.floor(over_s) + 1
            raise RateLimited(f"this key has used up its characters; retry in {wait_s} s", wait_s)

    def spend(self, characters: int, now_s: float) -> None:
        """Take what was let in, as it comes."""
        self._full_s = max(self._full_s, now_s) + characters * self._s_per_character


UNBOUNDED = Allowance(None)
