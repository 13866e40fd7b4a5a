"""What the HTTP routes share: reading a bounded body, error bodies, and noticing that the client has gone."""

import asyncio
import json
import logging
from collections.abc import Coroutine
from typing import Any

from starlette.responses import Response
from starlette.types import Message, Receive, Send

from serve_app.errors import Internal, SpeechError, TextTooLong

log = logging.getLogger(__name__)


class ClientGone(Exception):
    """The client closed the connection, or took nothing for `send_stall_timeout_s`."""


def error_response(error: SpeechError, request_id: str = "unknown") -> Response:
    """The contract's error body with its status, and Retry-After where a retry makes sense."""
    body = {"error": error.message, "code": error.code, "request_id": request_id}
    headers = {} if error.retry_after_s is None else {"Retry-After": str(error.retry_after_s)}
    return Response(json.dumps(body), error.http_status, headers, media_type="application/json")


def as_speech_error(exc: Exception, request_id: str) -> SpeechError:
    """What a client is told of `exc`; a defect of ours is logged here, with its cause, and told as `internal`."""
    if isinstance(exc, SpeechError):
        return exc
    log.error("request_id=%s failed", request_id, exc_info=exc)
    return Internal("the server failed on this request; its log has the cause under the request_id")


async def read_body(receive: Receive, max_bytes: int) -> bytes:
    """The whole request body. Raises TextTooLong past `max_bytes`, ClientGone."""
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        body += message.get("body", b"")
        if len(body) > max_bytes:
            raise TextTooLong(f"the body is larger than {max_bytes} bytes")
        if not message.get("more_body", False):
            return bytes(body)


async def while_connected(receive: Receive, work: Coroutine[Any, Any, None]) -> None:
    """Run `work` until it ends or the client goes away, which cancels it. Raises what `work` raises, or ClientGone."""

    async def gone() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    working, watching = asyncio.create_task(work), asyncio.create_task(gone())
    try:
        await asyncio.wait((working, watching), return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientGone
        working.result()
    finally:
        for task in (working, watching):
            task.cancel()
        await asyncio.gather(working, watching, return_exceptions=True)


def impatient(send: Send, stall_timeout_s: float) -> Send:
    """`send`, but a client that takes nothing for `stall_timeout_s` counts as gone."""

    async def send_in_time(message: Message) -> None:
        try:
            async with asyncio.timeout(stall_timeout_s):
                await send(message)
        except TimeoutError as exc:
            raise ClientGone from exc

    return send_in_time


class Body:
    """A response body, written piece by piece. `started` tells whether a failure may still have its own status."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.started = False

    async def start(self, media_type: str, headers: dict[str, str] | None = None) -> None:
        """Send status 200 and the headers."""
        raw = Response(media_type=media_type, headers=headers).raw_headers
        # Starlette fills in the length of its own (empty) body; this one is chunked.
        raw = [(name, value) for name, value in raw if name != b"content-length"]
        await self._send({"type": "http.response.start", "status": 200, "headers": raw})
        self.started = True

    async def write(self, data: bytes) -> None:
        if data:
            await self._send({"type": "http.response.body", "body": data, "more_body": True})

    async def end(self) -> None:
        """End the body politely; never after a failure."""
        await self._send({"type": "http.response.body", "body": b"", "more_body": False})
