"""InvokeEndpointWithBidirectionalStream: signed parts to WebSocket frames and back, on one HTTP/2 stream."""

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from dataclasses import dataclass

from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed

from scripts.local_endpoint.container import BIDIRECTIONAL_PATH
from scripts.local_endpoint.errors import (
    HTTP2_NAMES,
    ServiceError,
    StreamError,
    out_of_time,
    stream_broken,
    validation_error,
)
from scripts.local_endpoint.eventstream import CONTENT_TYPE, BadEncoding, Decoder, Message, error_member, payload_part
from scripts.local_endpoint.http2 import Stream
from scripts.local_endpoint.routes import Admitted, Routes
from scripts.local_endpoint.settings import VARIANT, Faults, Limits
from scripts.local_endpoint.signatures import EventChain, Request

log = logging.getLogger(__name__)

NORMAL_CODE, NO_CODE = 1000, 1005


@dataclass(frozen=True)
class Part:
    """A PayloadPart of the caller's."""

    data: bytes
    is_text: bool
    complete: bool


@dataclass
class Account:
    """What became of one stream."""

    endpoint: str
    parts_received: int = 0
    parts_sent: int = 0
    end_frame: bool = False
    """The input ended with the signed empty frame."""

    error: str | None = None
    """The name of the error that the caller was sent."""


class Bidirectional:
    """Answers the streams of all connections. `ended` is called with the account of each that reached its container."""

    def __init__(
        self, routes: Routes, limits: Limits, faults: Faults, *, all_binary: bool, ended: Callable[[Account], object]
    ) -> None:
        self._routes, self._limits, self._faults = routes, limits, faults
        self._all_binary, self._ended = all_binary, ended

    async def serve(self, stream: Stream) -> None:
        """Answer one stream, whatever comes."""
        try:
            path, query, admitted = self._admit(stream)
            async with admitted.container.connect(path, query, admitted.signed.region) as socket:
                await stream.respond(
                    200,
                    [("content-type", CONTENT_TYPE), ("x-amzn-invoked-production-variant", VARIANT)],
                )
                await self._converse(stream, socket, admitted)
        except ServiceError as exc:
            await _refuse(stream, exc)
        except ConnectionError:
            raise
        except Exception:
            log.exception("stream=%d failed", stream.id)
            if stream.responded:
                await stream.send(error_member(StreamError("InternalStreamFailure", "An internal failure occurred.")))
                await stream.end()
            else:
                await _refuse(stream, ServiceError("InternalFailure", 500, "An internal failure occurred."))

    def _admit(self, stream: Stream) -> tuple[str, str, Admitted]:
        headers = {name: value for name, value in stream.headers.items() if not name.startswith(":")}
        headers.setdefault("host", stream.headers[":authority"])
        request = Request(stream.headers[":method"], stream.headers[":path"], headers, b"")
        admitted = self._routes.admit(request, BIDIRECTIONAL_PATH)
        path = headers.get("x-amzn-sagemaker-model-invocation-path", BIDIRECTIONAL_PATH)
        if path.startswith("/"):
            raise validation_error("The model invocation path must not begin with a slash.")
        return path, headers.get("x-amzn-sagemaker-model-query-string", ""), admitted

    async def _converse(self, stream: Stream, socket: ClientConnection, admitted: Admitted) -> None:
        """Both directions until the end; the stream's last message tells a failure."""
        account = Account(admitted.container.name)
        log.info("endpoint=%s stream=%d opened", account.endpoint, stream.id)
        try:
            await self._exchange(stream, socket, EventChain(admitted.signed), account)
        except StreamError as exc:
            account.error = exc.name
            await stream.send(error_member(exc))
        finally:
            log.info(
                "endpoint=%s stream=%d ended parts_received=%d parts_sent=%d error=%s",
                account.endpoint,
                stream.id,
                account.parts_received,
                account.parts_sent,
                account.error,
            )
            self._ended(account)
        await stream.end()

    async def _exchange(self, stream: Stream, socket: ClientConnection, chain: EventChain, account: Account) -> None:
        """Return when the container has closed normally. Raises StreamError."""
        caller = asyncio.create_task(self._deliver(stream, socket, chain, account))
        container = asyncio.create_task(self._give_back(socket, stream, account))
        try:
            async with asyncio.timeout(self._limits.connection_s):
                await asyncio.wait((caller, container), return_when=asyncio.FIRST_COMPLETED)
                if caller.done():
                    caller.result()
                await container
        except TimeoutError as exc:
            raise out_of_time(self._limits.connection_s) from exc
        finally:
            caller.cancel()
            container.cancel()
            await asyncio.gather(caller, container, return_exceptions=True)

    async def _deliver(self, stream: Stream, socket: ClientConnection, chain: EventChain, account: Account) -> None:
        """Every message of the caller's is one of the container's; the end of the input closes the WebSocket."""
        async with aclosing(self._parts(stream, chain, account)) as parts:
            try:
                async for part in parts:
                    is_text = part.is_text and not self._all_binary
                    message = part.data if part.complete else _fragments(part, parts)
                    await socket.send(message, text=is_text)
            except ConnectionClosed:
                return  # the other direction knows why
        await socket.close()

    async def _parts(self, stream: Stream, chain: EventChain, account: Account) -> AsyncGenerator[Part, None]:
        decoder = Decoder()
        try:
            async with aclosing(stream.chunks()) as chunks:
                async for chunk in chunks:
                    for envelope in decoder.feed(chunk):
                        chain.verify(envelope)
                        if not envelope.payload:
                            account.end_frame = True
                            stream.input_ended = True  # but for the empty DATA frame that says so to HTTP/2
                            return
                        account.parts_received += 1
                        yield _part_in(envelope)
        except BadEncoding as exc:
            raise StreamError("ValidationException", str(exc), modeled=False) from exc
        if self._faults.demand_end_frame:
            raise StreamError("ValidationException", "The input ended without its signed empty frame.", modeled=False)

    async def _give_back(self, socket: ClientConnection, stream: Stream, account: Account) -> None:
        """Every message of the container's is a part. Raises StreamError unless the container closed normally."""
        self._cut_if_due(stream, account)
        try:
            while True:
                frame = await socket.recv()
                if isinstance(frame, str):
                    if (error := _error_in(frame)) is not None:
                        raise error
                    part = payload_part(frame.encode(), DataType="UTF8", CompletionState="COMPLETE")
                else:
                    part = payload_part(frame, DataType="BINARY", CompletionState="COMPLETE")
                await stream.send(part)
                account.parts_sent += 1
                self._cut_if_due(stream, account)
        except ConnectionClosed as exc:
            if (error := _error_of(exc)) is not None:
                raise error from exc

    def _cut_if_due(self, stream: Stream, account: Account) -> None:
        if account.parts_sent == self._faults.cut_after_parts:
            stream.cut()
            raise ConnectionAbortedError("cut on purpose")


async def _refuse(stream: Stream, error: ServiceError) -> None:
    log.info("stream=%d refused: %s", stream.id, error.name)
    name = HTTP2_NAMES.get(error.name, error.name)
    headers = [("content-type", "application/json"), ("x-amzn-errortype", name)]
    await stream.respond(error.http_status, headers, error.body())


async def _fragments(first: Part, rest: AsyncIterator[Part]) -> AsyncIterator[bytes]:
    """The frames of one message that comes in several parts; its type is that of the first."""
    yield first.data
    async for part in rest:
        yield part.data
        if part.complete:
            return


def _part_in(envelope: Message) -> Part:
    """Raises BadEncoding, StreamError."""
    messages = list(Decoder().feed(envelope.payload))
    if len(messages) != 1 or messages[0].headers.get(":event-type") != "PayloadPart":
        raise StreamError("ValidationException", "A signed event must hold one PayloadPart.", modeled=False)
    headers = messages[0].headers
    data_type, completion = headers.get("DataType", "BINARY"), headers.get("CompletionState", "COMPLETE")
    if data_type not in ("UTF8", "BINARY") or completion not in ("PARTIAL", "COMPLETE"):
        raise StreamError(
            "ValidationException", f"No such type of a part: {data_type!r}, {completion!r}.", modeled=False
        )
    return Part(messages[0].payload, data_type == "UTF8", completion == "COMPLETE")


def _error_in(frame: str) -> StreamError | None:
    """The error that a container sends as a frame of its own: {"ModelStreamError": {"ErrorCode", "Message"}}."""
    if "ModelStreamError" not in frame:
        return None
    try:
        fields = json.loads(frame)["ModelStreamError"]
        return StreamError("ModelStreamError", str(fields["Message"]), ErrorCode=str(fields["ErrorCode"]))
    except (ValueError, KeyError, TypeError):
        return None


def _error_of(closed: ConnectionClosed) -> StreamError | None:
    """What a caller is told of the end of the WebSocket; None if that was a normal one, or our own doing."""
    ours_first = closed.sent is not None and closed.sent.code == NORMAL_CODE and not closed.rcvd_then_sent
    if ours_first or (closed.rcvd is not None and closed.rcvd.code in (NORMAL_CODE, NO_CODE)):
        return None
    if closed.rcvd is None:
        return stream_broken("The connection to the model was lost.")
    message = closed.rcvd.reason or f"The model closed the stream with code {closed.rcvd.code}."
    return StreamError("ModelStreamError", message, ErrorCode=str(closed.rcvd.code))
