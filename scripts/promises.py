"""What a check promises and what it saw of it."""


class CameNot(Exception):
    """What was waited for did not come. The message says what it was."""


class Promises:
    """One line for each promise, as it is decided."""

    def __init__(self, *, timed: bool = True) -> None:
        """Without `timed`, what came too late is told and breaks nothing: others use the machine, too."""
        self.broken = 0
        self._timed = timed

    def keep(self, promise: str, kept: object, seen: str) -> None:
        self.broken += not kept
        print(f"{'kept  ' if kept else 'BROKEN'}  {promise}: {seen}", flush=True)

    def keep_within(self, promise: str, took_s: float, within_s: float, seen: str = "") -> None:
        """Of something that came, after `took_s`; `seen` tells more of it."""
        seen = f"{took_s:.2f} s{seen and ', ' + seen}"
        if took_s >= within_s and not self._timed:
            print(f"late    {promise}: {seen}", flush=True)
        else:
            self.keep(promise, took_s < within_s, seen)
