"""A session that outlives its connections: renewed between utterances, never in the middle of one."""

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self, Unpack

from serve_app.client.errors import BrokenAnswer
from serve_app.client.session import Event, Session, SessionClient
from serve_app.client.types import Options
from serve_app.errors import EngineUnavailable, IdleTimeout, SpeechError
from serve_app.protocol.messages import ErrorFrame, SynthesisCancelled, SynthesisStart

MAX_AGE_S = 25 * 60.0
"""SageMaker ends a connection after 30 minutes, whatever is going on."""


class RenewingSession(AsyncIterator[Event]):
    """A conversation, as `Session`, for as long as it takes. Use it as a context manager; leaving it hangs up.

    A connection is opened when it is first wanted. One that has reached its age takes no more utterances: they wait
    until those before are answered, and go to a new one, in order. One that the server ended while nothing was
    unanswered (idle time-out, rolling update) is replaced when the next text comes, without a word. What a server that
    goes away refuses before it began with it (those behind the text in hand) is said again, once, on the next
    connection. One that broke with something unanswered ends the iteration with BrokenAnswer; the session can be used
    and iterated on after that.

    One task has to iterate while others send, or what was said is never known to be answered.
    """

    def __init__(
        self,
        client: SessionClient,
        options: Options | None = None,
        *,
        max_age_s: float = MAX_AGE_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`options` hold for all utterances. `clock`: seconds, from any beginning."""
        self._client, self._options = client, options or Options()
        self._max_age_s, self._clock = max_age_s, clock
        self._link: _Link | None = None
        self._changed = asyncio.Event()  # there is a link, or there will never be another one
        self._order = asyncio.Lock()  # of those who send
        self._closed = self._left = False
        self._again: deque[_Said] = deque()  # what the server refused as it goes away
        self._told: deque[Event] = deque()
        self._closing: set[asyncio.Task[None]] = set()

    async def connect(self) -> None:
        """Have a connection ready ahead of the next text. What is said meanwhile waits for it.

        Being cancelled ends the wait, not the connecting. Raises SpeechError when there is no connecting.
        """
        async with self._order:
            if self._link is None or self._link.answered.is_set():
                await self._ready()

    async def say(self, text: str, **options: Unpack[Options]) -> str:
        """See `Session.say`. Raises what `SessionClient.session` does, too."""
        async with self._order:
            link, session = await self._ready()
            try:
                return await link.say(text, options)
            except BrokenAnswer:
                if session.unanswered:
                    raise
            # It had ended while nobody iterated, and nothing is lost.
            self._drop(link)
            link, _ = await self._ready()
            return await link.say(text, options)

    async def cancel(self, request_id: str | None = None) -> None:
        """See `Session.cancel`. Nothing happens when everything is answered; a `say` that still waits is not affected.

        A connection that has ended is the iteration's to report.
        """
        for said in [one for one in self._again if request_id in (None, one.request_id)]:
            self._again.remove(said)
            self._told.append(SynthesisCancelled(said.request_id, 0.0))
        if self._link is not None and not self._link.answered.is_set():
            session = await self._link.session()
            with suppress(BrokenAnswer):
                await session.cancel(request_id)

    async def close(self) -> None:
        """See `Session.close`."""
        async with self._order:
            self._closed = True
            if self._link is None or self._link.answered.is_set():
                self._drop(self._link)
                return
            session = await self._link.session()
            with suppress(BrokenAnswer):  # the iteration tells
                await session.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._closed = self._left = True
        self._drop(self._link)
        if self._closing:
            await asyncio.wait(self._closing)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        while True:
            if self._told:
                return self._told.popleft()
            if self._again and self._link is None and not self._left:
                async with self._order:
                    if self._again:
                        await self._ready()
            await self._changed.wait()
            if (link := self._link) is None:
                raise StopAsyncIteration
            event = await self._next_of(link)
            if event is None or (isinstance(event, ErrorFrame) and event.code == IdleTimeout.code):
                continue  # the frame is of the connection, not of an utterance
            if isinstance(event, ErrorFrame) and (said := await link.refused(event)) is not None:
                self._again.append(said)
                continue
            return event

    async def _next_of(self, link: "_Link") -> Event | None:
        """None: the link is of no use any more, and nothing is lost by that."""
        try:
            session = await link.session()
        except SpeechError:  # told to whoever wants to send
            self._drop(link)
            return None
        try:
            return await link.next()
        except (StopAsyncIteration, BrokenAnswer) as exc:
            async with link.sending:  # what is being sent is unanswered too, if it still gets away
                self._drop(link)
            if session.unanswered == 0 or self._left:
                return None
            if isinstance(exc, BrokenAnswer):
                raise
            raise BrokenAnswer(f"the server ended the session with {session.unanswered} texts unanswered") from exc
        except SpeechError:
            self._drop(link)
            raise

    async def _ready(self) -> "tuple[_Link, Session]":
        """A connection that takes another utterance. Raises SpeechError."""
        link = self._link
        if link is not None and (link.refuses or self._clock() - link.opened_s >= self._max_age_s):
            await link.answered.wait()
            self._drop(link)
        if self._closed and not self._again:
            raise BrokenAnswer("the session was closed")
        if self._link is None:
            self._link = _Link(self._client, self._options, self._clock())
            self._changed.set()
        link = self._link
        try:
            session = await link.session()
            if self._again:
                await self._say_again(link)
            return link, session
        except SpeechError:
            self._drop(link)
            self._again.clear()
            raise

    async def _say_again(self, link: "_Link") -> None:
        """On a new connection, before anything else. Raises BrokenAnswer."""
        while self._again:
            said = self._again.popleft()
            await link.say(said.text, said.options, last=True)
        if self._closed:
            await (await link.session()).close()

    def _drop(self, link: "_Link | None") -> None:
        """Use it no longer; its connection is closed meanwhile."""
        if link is self._link:
            self._link = None
            if self._closed:
                self._changed.set()
            else:
                self._changed.clear()
        if link is not None and not link.dropped:
            link.dropped = True
            link.answered.set()
            closing = asyncio.create_task(link.close())
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)


@dataclass(frozen=True, slots=True)
class _Said:
    """A text that a server has not begun with."""

    request_id: str
    text: str
    options: Options


class _Link:
    """One connection, from the wish for it on."""

    def __init__(self, client: SessionClient, options: Options, now_s: float) -> None:
        self.opened_s = now_s
        self.sending = asyncio.Lock()
        self.answered = asyncio.Event()
        """Nothing is unanswered, or nothing will be answered any more."""
        self.answered.set()
        self.dropped = False
        self.refuses = False
        """The server goes away: it takes no more texts, and closes when the one in hand is finished."""
        self._waiting: dict[str, _Said] = {}  # what may be said again
        self._context = client.session(**options)
        self._opening: asyncio.Task[Session] = asyncio.create_task(_entered(self._context))

    async def session(self) -> Session:
        """Wait until it stands. Raises SpeechError."""
        try:
            return await asyncio.shield(self._opening)
        except asyncio.CancelledError:
            if self._opening.cancelled():
                raise BrokenAnswer("the session was closed") from None
            raise

    async def say(self, text: str, options: Options, *, last: bool = False) -> str:
        """See `Session.say`. `last`: what is refused then is not said again."""
        session = await self.session()
        async with self.sending:
            if self.dropped:
                raise BrokenAnswer("the server ended the session")
            self.answered.clear()
            try:
                request_id = await session.say(text, **options)
                if not last:
                    self._waiting[request_id] = _Said(request_id, text, {**options, "request_id": request_id})
                return request_id
            finally:
                self._count(session)

    async def refused(self, error: ErrorFrame) -> _Said | None:
        """The text of an error by which a server says, before it has begun with it, that it goes away."""
        if error.code != EngineUnavailable.code:
            return None
        async with self.sending:  # the answer may be here before `say` has returned
            said = self._waiting.pop(error.request_id, None)
        self.refuses = self.refuses or said is not None
        return said

    async def next(self) -> Event:
        """See `Session`."""
        session = await self.session()
        event = await anext(session)
        self._count(session)
        if isinstance(event, SynthesisStart):
            self._waiting.pop(event.request_id, None)
        return event

    async def close(self) -> None:
        """Close it, or stop opening it."""
        self._opening.cancel()
        await asyncio.wait({self._opening})
        if not self._opening.cancelled() and self._opening.exception() is None:
            await self._context.__aexit__(None, None, None)

    def _count(self, session: Session) -> None:
        if session.unanswered == 0:
            self.answered.set()


async def _entered(context: Any) -> Session:
    session: Session = await context.__aenter__()
    return session
