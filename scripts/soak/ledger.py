"""What was said to a server and what became of it: a message ends once, or its client is told why. Pure."""

import hashlib
import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

DRIFT_SHARE = 1 / 3
"""Drift is the last third of a run by its first."""


@dataclass(frozen=True, slots=True)
class Outage:
    """A part of the service was taken away; failures that are told are what clients expect until it is whole again.

    Attributes:
        part: what was killed.
        from_s: when.
        until_s: when the first message that was said after it was complete; None: none ever was.
    """

    part: str
    from_s: float
    until_s: float | None

    def touches(self, from_s: float, to_s: float) -> bool:
        """Whether it lasted at any time between the two."""
        return self.from_s <= to_s and (self.until_s is None or from_s <= self.until_s)


@dataclass(slots=True)
class Ledger:
    """The messages of all well-behaved clients. Times are seconds of one clock.

    Attributes:
        ended: messages that ended, by how: complete, cancelled, an error's code, or `hung up` by the server.
        doubled: ends of messages that were not open, by the end's name.
        altered: texts whose audio was not that of the first time.
        short: complete messages whose audio was not as long as the server said.
        ttfa_s: (said, first audio after), of the messages that were complete.
        failures: (when, how) of each message or request that was not complete, the cancelled ones apart.
    """

    ended: Counter[str] = field(default_factory=Counter)
    doubled: Counter[str] = field(default_factory=Counter)
    altered: set[str] = field(default_factory=set)
    short: int = 0
    ttfa_s: list[tuple[float, float]] = field(default_factory=list)
    failures: list[tuple[float, str]] = field(default_factory=list)
    _open: dict[str, "_Message"] = field(default_factory=dict)
    _audio_of: dict[str, bytes] = field(default_factory=dict)

    def say(self, request_id: str, text: str, now_s: float) -> None:
        """A message is on its way. Raises ValueError: its name is in use."""
        if request_id in self._open:
            raise ValueError(f"{request_id} is still open")
        self._open[request_id] = _Message(text, now_s)

    def hear(self, request_id: str, audio: bytes, now_s: float) -> None:
        """Audio has come. Of a message that is not open, it is counted as doubled."""
        message = self._open.get(request_id)
        if message is None:
            self.doubled["audio"] += 1
            return
        if message.first_s is None:
            message.first_s = now_s
        message.audio.update(audio)
        message.size_bytes += len(audio)

    def end(self, request_id: str, how: str, now_s: float, promised_bytes: int | None = None) -> None:
        """A message has ended; `promised_bytes` is how much audio a complete one had by the server's own word."""
        message = self._open.pop(request_id, None)
        if message is None:
            self.doubled[how] += 1
            return
        self.ended[how] += 1
        if how == "complete":
            self._complete(message, promised_bytes)
        elif how != "cancelled":
            self.failures.append((now_s, how))

    @property
    def lost(self) -> int:
        """Messages of which nobody heard an end."""
        return len(self._open)

    def unprovoked(self, outages: Sequence[Outage]) -> Counter[str]:
        """Failures outside of the outages."""
        return Counter(how for at_s, how in self.failures if not any(one.touches(at_s, at_s) for one in outages))

    def drift(self, outages: Sequence[Outage]) -> float | None:
        """Median time to first audio in the last third of the run by that in its first; None: too few messages."""
        calm = [
            (said_s, ttfa_s)
            for said_s, ttfa_s in self.ttfa_s
            if not any(one.touches(said_s, said_s + ttfa_s) for one in outages)
        ]
        if len(calm) < 6:
            return None
        began_s, ended_s = calm[0][0], max(said_s for said_s, _ in calm)
        part_s = (ended_s - began_s) * DRIFT_SHARE
        first = [ttfa_s for said_s, ttfa_s in calm if said_s <= began_s + part_s]
        last = [ttfa_s for said_s, ttfa_s in calm if said_s >= ended_s - part_s]
        return statistics.median(last) / statistics.median(first)

    def _complete(self, message: "_Message", promised_bytes: int | None) -> None:
        if message.size_bytes != promised_bytes or message.first_s is None:
            self.short += 1
            return
        self.ttfa_s.append((message.said_s, message.first_s - message.said_s))
        if self._audio_of.setdefault(message.text, message.audio.digest()) != message.audio.digest():
            self.altered.add(message.text)


@dataclass(slots=True)
class _Message:
    text: str
    said_s: float
    first_s: float | None = None
    size_bytes: int = 0
    audio: "hashlib._Hash" = field(default_factory=hashlib.sha256)
