"""Spans: what an utterance waited for, from its message to its last byte. The interface, and the one that does nothing.

An utterance's spans are made in three processes. What connects them is the context of the span that is current where a
call is made; it travels with the call, in the W3C's form (Trace Context, section 3.2).
"""

from contextlib import AbstractContextManager, nullcontext
from typing import Protocol, Self

Attribute = str | int | float | bool
"""Ids, lengths and times; never text that somebody wrote."""


class Span(Protocol):
    """One thing that takes time. A `with` makes it the current one inside, and ends it at its end."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *exc_info: object) -> None: ...

    def current(self) -> AbstractContextManager[None]:
        """Make it the current one inside; it goes on afterwards."""
        ...

    def set(self, **attributes: Attribute) -> None: ...

    def past(self, name: str, *, ago_s: float, lasted_s: float) -> None:
        """A part of it that has ended: began so long ago."""
        ...

    def end(self) -> None: ...


class Tracer(Protocol):
    """Makes spans. Never raises, never waits for whoever gathers them."""

    def begin(self, name: str, parent: str = "", /, *, ago_s: float = 0.0, **attributes: Attribute) -> Span:
        """Begin a part of the current span, or of `parent`, the context of a span in another process."""
        ...

    def carried(self) -> tuple[str, ...]:
        """What a call into another process takes along: the current span's context, or nothing."""
        ...


class _NoSpan:
    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        return None

    def current(self) -> AbstractContextManager[None]:
        return nullcontext()

    def set(self, **attributes: Attribute) -> None:
        return None

    def past(self, name: str, *, ago_s: float, lasted_s: float) -> None:
        return None

    def end(self) -> None:
        return None


class NoTracer:
    """Makes none: where tracing is off."""

    _span = _NoSpan()

    def begin(self, name: str, parent: str = "", /, *, ago_s: float = 0.0, **attributes: Attribute) -> Span:
        return self._span

    def carried(self) -> tuple[str, ...]:
        return ()


NO_TRACER = NoTracer()
