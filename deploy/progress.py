"""Progress, for the person who waits; stdout is for results."""

import sys


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
