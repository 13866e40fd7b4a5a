"""What a check promises and what it saw of it."""


class CameNot(Exception):
    """What was waited for did not come. The message says what it was."""


class Promises:
    """One line for each promise, as it is decided."""

    def __init__(self) -> None:
        self.broken = 0

    def keep(self, promise: str, kept: object, seen: str) -> None:
        self.broken += not kept
        print(f"{'kept  ' if kept else 'BROKEN'}  {promise}: {seen}", flush=True)
