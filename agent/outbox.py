"""The one queue between what happens in an answer and the caller who hears of it."""

import asyncio
from collections.abc import Callable

from agent.events import Event, Failed

MAX_EVENTS = 64
"""Past so many, model and speech wait for the caller: some 40 s of audio."""


class Outbox:
    """Events in the order in which they happen. One task takes them out."""

    def __init__(self) -> None:
        self._events: asyncio.Queue[tuple[Event, Callable[[], None] | None] | None] = asyncio.Queue(MAX_EVENTS)

    async def put(self, event: Event, on_taken: Callable[[], None] | None = None) -> None:
        """Add an event; waits while the caller is behind. `on_taken` is called when the event is on its way to them."""
        await self._events.put((event, on_taken))

    async def end(self) -> None:
        """Nothing follows."""
        await self._events.put(None)

    def interrupt(self, last: Failed) -> None:
        """Drop what the caller has not taken, for they no longer listen; `last` is all that follows."""
        while not self._events.empty():
            self._events.get_nowait()
        self._events.put_nowait((last, None))
        self._events.put_nowait(None)

    async def take(self) -> Event | None:
        """The next event; None after the last."""
        item = await self._events.get()
        if item is None:
            return None
        event, on_taken = item
        if on_taken is not None:
            on_taken()
        return event
