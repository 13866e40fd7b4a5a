"""InvokeEndpoint and InvokeEndpointWithResponseStream over HTTP/1.1, as an ASGI application."""

import asyncio
import itertools
import logging
import uuid
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing

import httpx
from starlette.requests import ClientDisconnect
from starlette.requests import Request as HttpRequest
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from scripts.local_endpoint.container import TIMED_OUT
from scripts.local_endpoint.errors import ServiceError, StreamError, out_of_time, stream_broken, validation_error
from scripts.local_endpoint.eventstream import CONTENT_TYPE, error_member, payload_part
from scripts.local_endpoint.routes import Admitted, Routes
from scripts.local_endpoint.settings import MAX_BODY_BYTES, VARIANT, Limits
from scripts.local_endpoint.signatures import Request
from scripts.local_endpoint.slicing import odd_parts
from serve_app.server.responses import Body, ClientGone, while_connected

log = logging.getLogger(__name__)

INVOKE, INVOKE_WITH_STREAM = "invocations", "invocations-response-stream"
FORWARDED = (
    "content-type",
    "x-amzn-sagemaker-custom-attributes",
    "x-amzn-sagemaker-enable-explanations",
    "x-amzn-sagemaker-inference-id",
    "x-amzn-sagemaker-session-id",
    "x-amzn-sagemaker-target-model",
)
"""Of a caller's headers, what the container gets; the service strips all others."""

RETURNED = (
    "x-amzn-sagemaker-closed-session-id",
    "x-amzn-sagemaker-custom-attributes",
    "x-amzn-sagemaker-new-session-id",
)


class Http1:
    """Answers every request; `seed` decides where streams are cut."""

    def __init__(self, routes: Routes, limits: Limits, seed: int) -> None:
        self._routes, self._limits, self._seeds = routes, limits, itertools.count(seed)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request_id = str(uuid.uuid4())
        try:
            http = HttpRequest(scope, receive)
            query = scope["query_string"].decode()
            target = scope["raw_path"].decode() + (f"?{query}" if query else "")
            headers = {name: ",".join(http.headers.getlist(name)) for name in http.headers}
            request = Request(scope["method"], target, headers, await http.body())
            streams = target.partition("?")[0].endswith(f"/{INVOKE_WITH_STREAM}")
            admitted = self._routes.admit(request, INVOKE_WITH_STREAM if streams else INVOKE)
            if len(request.body) > MAX_BODY_BYTES:
                raise validation_error(
                    "1 validation error detected: Value at 'body' failed to satisfy constraint: Member must have "
                    f"length less than or equal to {MAX_BODY_BYTES}"
                )
            answer = self._stream if streams else self._whole
            await while_connected(receive, answer(admitted, request, request_id, scope, receive, send))
        except (ClientGone, ClientDisconnect):
            log.info("request=%s the caller left", request_id)
        except ServiceError as exc:
            log.info("request=%s refused: %s", request_id, exc.name)
            errors = {"x-amzn-ErrorType": exc.name, "x-amzn-RequestId": request_id}
            await Response(exc.body(), exc.http_status, errors, "application/json")(scope, receive, send)

    async def _whole(
        self, admitted: Admitted, request: Request, request_id: str, scope: Scope, receive: Receive, send: Send
    ) -> None:
        container, region = admitted.container, admitted.signed.region
        headers = _forwarded(request.headers, request.headers.get("accept"))
        try:
            async with (
                asyncio.timeout(self._limits.invocation_s),
                container.invoke(headers, request.body, region, self._limits.invocation_s) as answer,
            ):
                body = await answer.aread()
        except TimeoutError as exc:
            raise container.failed(0, TIMED_OUT, region) from exc
        except httpx.TransportError as exc:
            raise container.failed(0, "The container broke its answer off.", region) from exc
        content_type = answer.headers.get("content-type", "application/octet-stream")
        about = {**_returned(answer, request_id), "content-type": content_type}
        await Response(body, 200, about)(scope, receive, send)

    async def _stream(
        self, admitted: Admitted, request: Request, request_id: str, scope: Scope, receive: Receive, send: Send
    ) -> None:
        headers = _forwarded(request.headers, request.headers.get("x-amzn-sagemaker-accept"))
        async with admitted.container.invoke(
            headers, request.body, admitted.signed.region, self._limits.invocation_s
        ) as answer:
            about = _returned(answer, request_id)
            if content_type := answer.headers.get("content-type"):
                about["x-amzn-sagemaker-content-type"] = content_type
            body = Body(send)
            await body.start(CONTENT_TYPE, about)
            async with aclosing(self._members(answer)) as members:
                async for member in members:
                    await body.write(member)
            await body.end()

    async def _members(self, answer: httpx.Response) -> AsyncGenerator[bytes, None]:
        """The events of a response stream; an exception is the last of one that broke off."""
        limit_s = self._limits.response_stream_s
        ends_s = asyncio.get_running_loop().time() + limit_s
        try:
            async with aclosing(odd_parts(answer.aiter_bytes(), next(self._seeds))) as parts:
                while True:
                    async with asyncio.timeout_at(ends_s):
                        part = await anext(parts, None)
                    if part is None:
                        return
                    yield payload_part(part)
        except TimeoutError:
            yield error_member(out_of_time(limit_s))
        except httpx.TransportError as exc:
            log.info("the container broke its answer off: %s", type(exc).__name__)
            yield error_member(stream_broken("The connection to the model was lost."))
        except httpx.DecodingError:
            yield error_member(StreamError("InternalStreamFailure", "The model's answer could not be decoded."))


def _forwarded(headers: Mapping[str, str], accept: str | None) -> dict[str, str]:
    forwarded = {name: headers[name] for name in FORWARDED if name in headers}
    return {**forwarded, "accept": accept or "*/*"}


def _returned(answer: httpx.Response, request_id: str) -> dict[str, str]:
    returned = {name: answer.headers[name] for name in RETURNED if name in answer.headers}
    return {**returned, "x-amzn-invoked-production-variant": VARIANT, "x-amzn-requestid": request_id}
