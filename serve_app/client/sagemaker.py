"""Speech from a SageMaker endpoint: InvokeEndpointWithResponseStream."""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Unpack

import boto3
from botocore.config import Config
from botocore.eventstream import ParserError
from botocore.exceptions import BotoCoreError, ClientError, ConnectionClosedError, EventStreamError, ReadTimeoutError
from urllib3.exceptions import HTTPError

from serve_app.client.answer import open_answer
from serve_app.client.errors import BrokenAnswer, UnexpectedAnswer, Unreachable, refusal
from serve_app.client.http import CONNECT_TIMEOUT_S, SILENCE_TIMEOUT_S, Transport, invocation
from serve_app.client.types import Chunk, Options, Text
from serve_app.errors import SpeechError


class SageMakerClient:
    """See `SpeechClient`. Word timings come over `sse` only; the service passes no Retry-After on, so nothing is asked
    twice.
    """

    def __init__(self, endpoint: str, transport: Transport = "binary", runtime: Any = None) -> None:
        """`endpoint`: its name. `runtime`: a boto3 `sagemaker-runtime` client instead of one from the environment.

        Raises BotoCoreError, such as for a missing region.
        """
        self._endpoint, self._transport = endpoint, transport
        self._runtime = runtime or boto3.client(
            "sagemaker-runtime",
            config=Config(
                connect_timeout=CONNECT_TIMEOUT_S,
                read_timeout=SILENCE_TIMEOUT_S,
                max_pool_connections=100,  # one a stream
                retries={"total_max_attempts": 1},
            ),
        )

    async def synthesize(self, text: Text, **options: Unpack[Options]) -> AsyncGenerator[Chunk, None]:
        """See `SpeechClient.synthesize`. A text in pieces is sent when it is whole."""
        body = await invocation(text, self._transport, options)
        parts = _Parts(
            lambda: self._runtime.invoke_endpoint_with_response_stream(
                EndpointName=self._endpoint, ContentType="application/json", Body=json.dumps(body)
            )
        )
        try:
            answer = open_answer(await parts.content_type(), body["request_id"])
            while (data := await parts.next()) is not None:
                for chunk in answer.feed(data):
                    yield chunk
            for chunk in answer.finish():
                yield chunk
        finally:
            parts.hang_up()

    async def aclose(self) -> None:
        """Close idle connections."""
        self._runtime.close()


class _Parts:
    """The payload parts of one response stream. botocore blocks, so a thread reads them, one when it is wanted: a slow
    consumer slows the endpoint.
    """

    def __init__(self, invoke: Callable[[], Any]) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="response-stream")
        self._response: Future[Any] = self._thread.submit(invoke)
        self._events: Iterator[Any] = iter(())

    async def content_type(self) -> str:
        """Of what the parts make up together. Raises SpeechError when the endpoint refuses."""
        try:
            response = await asyncio.wrap_future(self._response)
        except (ClientError, BotoCoreError) as exc:
            raise _refusal(exc) from exc
        self._events = iter(response["Body"])
        return str(response.get("ContentType", ""))

    async def next(self) -> bytes | None:
        """The bytes of the next part; None after the last. Raises BrokenAnswer, also for an error among the parts."""
        try:
            event = await asyncio.wrap_future(self._thread.submit(next, self._events, None))
        except EventStreamError as exc:
            raise BrokenAnswer(f"the endpoint broke the answer off: {exc.response['Error']['Code']}") from exc
        except (HTTPError, BotoCoreError, ParserError) as exc:
            raise BrokenAnswer("the answer broke off") from exc
        if event is None:
            return None
        if "PayloadPart" not in event:
            raise BrokenAnswer(f"the endpoint broke the answer off: {', '.join(event)}")
        return bytes(event["PayloadPart"].get("Bytes", b""))

    def hang_up(self) -> None:
        """Close the connection, at once if the thread is reading and else when the endpoint has answered."""
        self._response.add_done_callback(self._close)

    def _close(self, response: "Future[Any]") -> None:
        if not response.cancelled() and response.exception() is None:
            body = response.result()["Body"]
            # close() alone would wait for the read that is going on; the public wrapper has nothing else.
            with suppress(ValueError, RuntimeError, OSError):  # the stream was at its end
                body._raw_stream.shutdown()
            self._thread.submit(body.close)
        self._thread.shutdown(wait=False)


def _refusal(exc: ClientError | BotoCoreError) -> SpeechError:
    if isinstance(exc, ClientError):
        details = exc.response
        if "OriginalStatusCode" in details:  # the container's own answer
            return refusal(int(details["OriginalStatusCode"]), str(details.get("OriginalMessage", "")).encode())
        return UnexpectedAnswer(f"SageMaker refused the request: {exc}")
    if isinstance(exc, ReadTimeoutError | ConnectionClosedError):
        return BrokenAnswer("the endpoint hung up before it answered")
    return Unreachable(f"SageMaker cannot be reached: {exc}")
