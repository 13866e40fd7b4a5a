"""Speech over POST /invocations: one request, one answer that streams."""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Literal, Unpack

import httpx

from serve_app.client.address import authorization, http_url, is_loopback, wait_before_retry_s
from serve_app.client.answer import open_answer
from serve_app.client.errors import BrokenAnswer, Unreachable, refusal
from serve_app.client.types import Chunk, Options, Text, with_defaults

ROUTE = "/invocations"
Transport = Literal["binary", "sse"]

_JSON = {"content-type": "application/json"}

CONNECT_TIMEOUT_S = 10.0
SILENCE_TIMEOUT_S = 60.0
"""How long a server may send nothing, in its queue or between two sentences."""


async def invocation(text: Text, transport: Transport, options: Options) -> dict[str, Any]:
    """The body of a request; waits for the whole of a text that is still being written."""
    whole = text if isinstance(text, str) else "".join([piece async for piece in text])
    return {"text": whole, "transport": transport, **with_defaults(options)}


class HttpClient:
    """See `SpeechClient`. Connections are kept and shared; word timings come over `sse` only."""

    def __init__(self, server: str, transport: Transport = "binary", key: str | None = None) -> None:
        """`server`: http://HOST:PORT or ws://HOST:PORT; `key`: of its API, where it asks for one. Raises ValueError."""
        self._url, self._transport = http_url(server, ROUTE), transport
        self._http = httpx.AsyncClient(
            timeout=httpx.Timeout(SILENCE_TIMEOUT_S, connect=CONNECT_TIMEOUT_S),
            limits=httpx.Limits(max_connections=None),
            # A compressing proxy would hold audio back.
            headers={"accept-encoding": "identity", **authorization(key)},
            trust_env=not is_loopback(self._url),
        )

    async def synthesize(self, text: Text, **options: Unpack[Options]) -> AsyncGenerator[Chunk, None]:
        """See `SpeechClient.synthesize`. A text in pieces is sent when it is whole."""
        body = await invocation(text, self._transport, options)
        async with self._asked(body) as response:
            answer = open_answer(response.headers.get("content-type", ""), body["request_id"])
            try:
                async for data in response.aiter_bytes():
                    for chunk in answer.feed(data):
                        yield chunk
            except httpx.RequestError as exc:
                raise BrokenAnswer("the answer broke off") from exc
            for chunk in answer.finish():
                yield chunk

    async def aclose(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    @asynccontextmanager
    async def _asked(self, body: dict[str, Any]) -> AsyncIterator[httpx.Response]:
        """An answer of status 200, its body unread."""
        content, attempt = json.dumps(body), 0
        while True:
            attempt += 1
            request = self._http.build_request("POST", self._url, content=content, headers=_JSON)
            try:
                response = await self._http.send(request, stream=True)
            except (httpx.ConnectError, httpx.ConnectTimeout) as exc:
                raise Unreachable("no server answers there") from exc
            except httpx.RequestError as exc:
                raise BrokenAnswer("the server hung up before it answered") from exc
            try:
                if response.status_code == 200:
                    yield response
                    return
                refused = await _refusal(response)
            finally:
                await response.aclose()
            wait_s = wait_before_retry_s(attempt, response.status_code, response.headers.get("retry-after"))
            if wait_s is None:
                raise refused
            await asyncio.sleep(wait_s)


async def _refusal(response: httpx.Response) -> Exception:
    try:
        return refusal(response.status_code, await response.aread())
    except httpx.RequestError:
        return refusal(response.status_code, b"")
