"""What a look at one planned resource finds."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any


class Presence(Enum):
    MISSING = "missing"
    SAME = "as planned"
    DIFFERENT = "differs"
    OUTDATED = "another version"  # an endpoint that serves, but not what is planned
    FOREIGN = "not ours"


@dataclass(frozen=True)
class Found:
    presence: Presence
    detail: str = ""  # of a difference, or whose it is


MISSING = Found(Presence.MISSING)
SAME = Found(Presence.SAME)


def different(*details: str) -> Found:
    """SAME when there is nothing to tell."""
    return Found(Presence.DIFFERENT, "; ".join(details)) if details else SAME


def foreign(what: str) -> Found:
    return Found(Presence.FOREIGN, what)


def differences(wanted: Mapping[str, Any], actual: Mapping[str, Any]) -> list[str]:
    """Of the wanted fields those that are otherwise; what AWS adds by itself is no difference."""
    return [
        f"{name} is {actual.get(name)!r}, planned {value!r}"
        for name, value in wanted.items()
        if actual.get(name) != value
    ]
