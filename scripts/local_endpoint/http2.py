"""HTTP/2 over asyncio: one connection moves bytes between its socket and the streams on it; h2 knows the protocol.

Both directions wait for whoever is slow, stream by stream: what a caller sent is acknowledged when its stream has taken
it, and what a stream sends waits for the caller's window. The connection's own window is renewed at once, so that one
slow stream does not hold up the others; what waits is bounded by RECEIVE_WINDOW_BYTES a stream.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import (
    ConnectionTerminated,
    DataReceived,
    RemoteSettingsChanged,
    RequestReceived,
    StreamEnded,
    StreamReset,
    WindowUpdated,
)
from h2.exceptions import ProtocolError
from h2.settings import SettingCodes

log = logging.getLogger(__name__)

RECEIVE_WINDOW_BYTES = 256 * 1024
CONNECTION_WINDOW_BYTES = 2**24
READ_BYTES = 64 * 1024


class Stream:
    """One request and its answer. Its methods raise ConnectionError when the connection is lost."""

    def __init__(self, connection: "Connection", stream_id: int, headers: dict[str, str]) -> None:
        self.id, self.headers = stream_id, headers
        self.window_opened = asyncio.Event()
        self.input_ended = False
        self.responded = False
        self._connection = connection
        self._received: asyncio.Queue[tuple[bytes, int] | None] = asyncio.Queue()

    def take(self, data: bytes, window_bytes: int) -> None:
        """Something has come; `window_bytes` is what it counts in the window."""
        self._received.put_nowait((data, window_bytes))

    def take_end(self) -> None:
        self.input_ended = True
        self._received.put_nowait(None)

    async def chunks(self) -> AsyncGenerator[bytes, None]:
        """The request's body as it comes; more is let in when a slice is asked for."""
        while (received := await self._received.get()) is not None:
            data, window_bytes = received
            if not self.input_ended:
                self._connection.acknowledge(self.id, window_bytes)
            yield data

    async def respond(self, status: int, headers: Iterable[tuple[str, str]], body: bytes | None = None) -> None:
        """Send the head of the answer; with a `body`, all of it."""
        self.responded = True
        self._connection.send_head(self.id, [(":status", str(status)), *headers])
        if body is not None:
            await self.send(body)
            await self.end()

    async def send(self, data: bytes) -> None:
        """Send a piece of the answer, as the caller's window lets it go."""
        rest = memoryview(data)
        while rest:
            while not (size := min(self._connection.window(self.id), len(rest))):
                self.window_opened.clear()
                await self.window_opened.wait()
            await self._connection.send_data(self.id, bytes(rest[:size]))
            rest = rest[size:]

    async def end(self) -> None:
        """End the answer, and tell the caller that no more is wanted if it is still sending."""
        self._connection.end(self.id, still_sending=not self.input_ended)
        await self._connection.drain()

    def cut(self) -> None:
        """Close the connection, with all its streams, in the middle of whatever is going on."""
        self._connection.close()


class Connection:
    """One caller's connection; `serve` answers each of its streams in a task that ends with the stream."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        serve: Callable[[Stream], Awaitable[None]],
    ) -> None:
        self._reader, self._writer, self._serve = reader, writer, serve
        self._h2 = H2Connection(H2Configuration(client_side=False, header_encoding="utf-8"))
        self._streams: dict[int, Stream] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}

    async def run(self) -> None:
        """Read until the caller leaves or breaks the protocol; then every stream ends."""
        self._h2.local_settings.update({SettingCodes.INITIAL_WINDOW_SIZE: RECEIVE_WINDOW_BYTES})
        self._h2.initiate_connection()
        self._h2.increment_flow_control_window(CONNECTION_WINDOW_BYTES)
        self._flush()
        try:
            while data := await self._reader.read(READ_BYTES):
                for event in self._h2.receive_data(data):
                    self._on(event)
                # Without waiting for the socket: a caller that reads nothing must still be read from.
                self._flush()
        except ProtocolError as exc:
            log.info("a caller broke HTTP/2: %s", exc)
            self._flush()  # h2 has put the GOAWAY there
        except ConnectionError:
            pass
        finally:
            tasks = list(self._tasks.values())
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self.close()

    def _on(self, event: object) -> None:
        match event:
            case RequestReceived(stream_id=stream_id, headers=headers):
                stream = self._streams[stream_id] = Stream(self, stream_id, _text(headers))
                self._tasks[stream_id] = asyncio.create_task(self._answer(stream))
            case DataReceived(stream_id=stream_id, data=data, flow_controlled_length=length):
                if length:
                    self._h2.increment_flow_control_window(length)
                if stream_id in self._streams:
                    self._streams[stream_id].take(data, length)
            case StreamEnded(stream_id=stream_id) if stream_id in self._streams:
                self._streams[stream_id].take_end()
            case StreamReset(stream_id=stream_id) if stream_id in self._tasks:
                self._tasks[stream_id].cancel()
            case WindowUpdated() | RemoteSettingsChanged():
                for stream in self._streams.values():
                    stream.window_opened.set()
            case ConnectionTerminated(error_code=code):
                log.debug("the caller is leaving, code %s", code)

    async def _answer(self, stream: Stream) -> None:
        try:
            await self._serve(stream)
        except ConnectionError:
            pass
        finally:
            del self._streams[stream.id], self._tasks[stream.id]

    def acknowledge(self, stream_id: int, window_bytes: int) -> None:
        """Let the caller of this stream send that much more."""
        if window_bytes:
            with self._sending():
                self._h2.increment_flow_control_window(window_bytes, stream_id)

    def window(self, stream_id: int) -> int:
        """How many bytes of this stream may go out in one frame now."""
        with self._sending():
            return max(0, min(self._h2.local_flow_control_window(stream_id), self._h2.max_outbound_frame_size))

    def send_head(self, stream_id: int, headers: list[tuple[str, str]]) -> None:
        with self._sending():
            self._h2.send_headers(stream_id, headers)

    async def send_data(self, stream_id: int, data: bytes) -> None:
        with self._sending():
            self._h2.send_data(stream_id, data)
        await self.drain()

    def end(self, stream_id: int, *, still_sending: bool) -> None:
        with self._sending():
            self._h2.end_stream(stream_id)
            if still_sending:
                self._h2.reset_stream(stream_id, ErrorCodes.NO_ERROR)  # RFC 9113, 8.1

    async def drain(self) -> None:
        """Wait while the socket takes no more. Raises ConnectionError."""
        await self._writer.drain()

    def close(self) -> None:
        self._writer.close()

    @contextmanager
    def _sending(self) -> Iterator[None]:
        """Send what h2 is told meanwhile. Raises ConnectionResetError when the caller has left the stream."""
        try:
            yield
        except ProtocolError as exc:
            raise ConnectionResetError("the caller has left") from exc
        self._flush()

    def _flush(self) -> None:
        if (data := self._h2.data_to_send()) and not self._writer.is_closing():
            self._writer.write(data)


def _text(headers: Iterable[tuple[str | bytes, str | bytes]]) -> dict[str, str]:
    """h2 decodes by itself (`header_encoding`); this tells the type checker so."""
    return {str(name): str(value) for name, value in headers}
