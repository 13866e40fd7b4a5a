"""The clients for code without an event loop."""

import asyncio
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine, Generator, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self, Unpack

from serve_app.client.session import Event, Session, SessionClient
from serve_app.client.types import Chunk, Options, SpeechClient


class _Loop:
    """An event loop in a thread of its own, which goes on while the caller does something else with the audio."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="speech-client", daemon=True)
        self._thread.start()

    def run[T](self, work: Coroutine[Any, Any, T]) -> T:
        """Wait for `work`; an interrupt of the wait cancels it."""
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        finally:
            future.cancel()

    def each[T](self, items: AsyncIterator[T], turn: asyncio.Lock) -> Iterator[T]:
        """The items. `turn` is held while one is waited for, also by a wait that was just interrupted."""
        while True:
            try:
                item = self.run(_next(items, turn))
            except StopAsyncIteration:
                return
            yield item

    @property
    def stopped(self) -> bool:
        return self._loop.is_closed()

    def stop(self) -> None:
        self.run(self._loop.shutdown_asyncgens())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class BlockingClient:
    """Any client, blocking. Use it as a context manager, or `close` it. Usable from several threads."""

    def __init__(self, client: SpeechClient) -> None:
        self._client = client
        self._loop = _Loop()

    def synthesize(self, text: str, **options: Unpack[Options]) -> Generator[Chunk, None, None]:
        """See `SpeechClient.synthesize`; closing the generator early closes the connection."""
        chunks = self._client.synthesize(text, **options)
        turn = asyncio.Lock()
        try:
            yield from self._loop.each(chunks, turn)
        finally:
            if not self._loop.stopped:
                self._loop.run(_close(chunks, turn))

    @contextmanager
    def session(self, **options: Unpack[Options]) -> Iterator["BlockingSession"]:
        """See `SessionClient.session`. Raises TypeError for a client that has none."""
        if not isinstance(self._client, SessionClient):
            raise TypeError("only a WebSocketClient and a BidirectionalClient have sessions")
        context = self._client.session(**options)
        session = self._loop.run(context.__aenter__())
        try:
            yield BlockingSession(session, self._loop)
        finally:
            self._loop.run(context.__aexit__(None, None, None))

    def close(self) -> None:
        """Close the client and its connections."""
        self._loop.run(self._client.aclose())
        self._loop.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


class BlockingSession:
    """`Session`, blocking. One thread may iterate while another one sends."""

    def __init__(self, session: Session, loop: _Loop) -> None:
        self._session, self._loop = session, loop

    def say(self, text: str, **options: Unpack[Options]) -> str:
        """See `Session.say`."""
        return self._loop.run(self._session.say(text, **options))

    def feed(self, text: str, **options: Unpack[Options]) -> str:
        """See `Session.feed`."""
        return self._loop.run(self._session.feed(text, **options))

    def end(self) -> None:
        """See `Session.end`."""
        self._loop.run(self._session.end())

    def cancel(self, request_id: str | None = None) -> None:
        """See `Session.cancel`."""
        self._loop.run(self._session.cancel(request_id))

    def close(self) -> None:
        """See `Session.close`."""
        self._loop.run(self._session.close())

    def __iter__(self) -> Iterator[Event]:
        return self._loop.each(self._session, asyncio.Lock())


async def _next[T](items: AsyncIterator[T], turn: asyncio.Lock) -> T:
    async with turn:
        return await anext(items)


async def _close(chunks: AsyncGenerator[Chunk, None], turn: asyncio.Lock) -> None:
    async with turn:
        await chunks.aclose()
