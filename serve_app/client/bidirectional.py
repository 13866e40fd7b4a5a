"""Speech from a SageMaker endpoint over InvokeEndpointWithBidirectionalStream: the WebSocket's conversation, message by
message, on a signed HTTP/2 stream. Every session has a connection of its own.

Beside facts about the service, this file works around what its SDK (0.12) and the AWS CRT under it do with a connection
that is lost: an answer whose head never came is waited for without end, and so is room for the next message.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from threading import Lock
from typing import Any, Unpack
from urllib.parse import urlsplit

import boto3
from aws_sdk_sagemaker_runtime_http2.client import AsyncSageMakerRuntimeHTTP2Client
from aws_sdk_sagemaker_runtime_http2.config import AsyncSageMakerRuntimeHTTP2Config
from aws_sdk_sagemaker_runtime_http2.models import (
    InternalServerError,
    InternalStreamFailure,
    InvokeEndpointWithBidirectionalStreamInput,
    ModelError,
    ModelStreamError,
    RequestPayloadPart,
    RequestStreamEventPayloadPart,
    ResponseStreamEventPayloadPart,
    ServiceUnavailableError,
)
from awscrt.aio.http import AIOHttp2ClientConnection
from awscrt.exceptions import AwsCrtError
from awscrt.http import HttpHeaders, HttpRequest
from awscrt.io import (
    ClientBootstrap,
    ClientTlsContext,
    DefaultHostResolver,
    EventLoopGroup,
    SocketOptions,
    TlsContextOptions,
)
from botocore import UNSIGNED
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from smithy_core.exceptions import CallError, SmithyError
from smithy_http import tuples_to_fields
from smithy_http.aio.crt import AWSCRTHTTPResponse

from serve_app.client.errors import BrokenAnswer, NoCredentials, UnexpectedAnswer, Unreachable
from serve_app.client.session import Session
from serve_app.client.spoken import spoken
from serve_app.client.types import Chunk, Options, Text
from serve_app.errors import EngineUnavailable, QueueSaturated, SpeechError

PORT = 8443
"""On 443, which the SDK would choose, the call is never answered."""

CREDENTIALS_TIMEOUT_S = 10.0
OPEN_TIMEOUT_S = 20.0
HEAD_TIMEOUT_S = 0.5
SEND_TIMEOUT_S = 10.0
CLOSE_TIMEOUT_S = 1.0
"""Whoever closes a session has heard what they wanted; the service's goodbye is not worth a wait."""

KEEP_ALIVE_IDLE_S, KEEP_ALIVE_INTERVAL_S, KEEP_ALIVE_PROBES = 30, 10, 3
"""Of TCP: the CRT sends no HTTP/2 pings, and nothing else would notice that the other side has vanished."""

_POLITE_CODES = {"1000", "1001"}
"""With these a container ends a WebSocket as it should; the service reports even the second as an error."""


class BidirectionalClient:
    """See `SessionClient`. A connection for each `synthesize` and each `session`.

    Audio comes as fast as the endpoint sends it and waits here: the SDK has no way to slow an endpoint down.
    """

    def __init__(
        self,
        endpoint: str,
        *,
        region: str | None = None,
        endpoint_uri: str | None = None,
        target_variant: str | None = None,
        boto_session: boto3.Session | None = None,
    ) -> None:
        """
        Args:
            endpoint: its name.
            region: that of `boto_session` unless given.
            endpoint_uri: https://HOST:PORT of a service other than the region's own. Certificates are checked against
                the system's, or against those that the environment names in SSL_CERT_FILE or SSL_CERT_DIR now.
            boto_session: where credentials come from, anew for each connection; by default, from the environment.

        Raises ValueError: no region, or an address that is none. BotoCoreError, such as for a profile that is none.
        """
        self._boto_session = boto_session or boto3.Session(region_name=region)
        self._endpoint, self._target_variant = endpoint, target_variant
        self._region = region or self._boto_session.region_name
        if not self._region:
            raise ValueError("there is no AWS region; name one, or set AWS_REGION")
        self._uri = endpoint_uri or self._regional_uri()
        self._host, self._port = _address(self._uri)
        loop = EventLoopGroup(1)
        self._bootstrap = ClientBootstrap(loop, DefaultHostResolver(loop))
        self._tls = ClientTlsContext(TlsContextOptions())
        self._credentials_lock = Lock()  # boto3 sessions are not made for several threads
        self._background = _Background()

    @asynccontextmanager
    async def session(self, **options: Unpack[Options]) -> AsyncIterator[Session]:
        """See `SessionClient.session`. Raises NoCredentials, too."""
        parts = await self._connect()
        try:
            yield Session(parts, options)
        finally:
            await self._background.wait_for(parts.close())

    def synthesize(self, text: Text, **options: Unpack[Options]) -> AsyncGenerator[Chunk, None]:
        """See `SpeechClient.synthesize`. A text in pieces is spoken while it is being written."""
        return spoken(self.session(), text, options)

    async def aclose(self) -> None:
        """Wait for connections that are still being closed."""
        await self._background.finish()

    async def _connect(self) -> "_Parts":
        credentials = await self._credentials()
        try:
            async with asyncio.timeout(OPEN_TIMEOUT_S):
                transport = _Transport(await self._dial(), self._background)
                invoking = self._background.start(self._invoke(transport, credentials))
                try:
                    return await asyncio.shield(invoking)  # cancelled inside, the SDK would leave failing tasks behind
                except BaseException:
                    await self._background.wait_for(transport.close())
                    raise
        except TimeoutError as exc:
            raise Unreachable(f"SageMaker at {self._host} does not answer") from exc
        except AwsCrtError as exc:
            raise Unreachable(f"SageMaker cannot be reached at {self._host}: {exc.message} ({exc.name})") from exc
        except SmithyError as exc:
            raise _refusal(exc) from exc

    async def _dial(self) -> Any:
        tls = self._tls.new_connection_options()
        tls.set_server_name(self._host)
        tls.set_alpn_list(["h2"])
        socket = SocketOptions()
        socket.keep_alive = True
        socket.keep_alive_timeout_secs = KEEP_ALIVE_IDLE_S
        socket.keep_alive_interval_secs = KEEP_ALIVE_INTERVAL_S
        socket.keep_alive_max_probes = KEEP_ALIVE_PROBES
        dialling = self._background.start(
            AIOHttp2ClientConnection.new(self._host, self._port, self._bootstrap, socket, tls)
        )
        try:
            # Left alone when nobody waits any longer: a cancelled one makes the CRT's thread complain. It takes 15 s at
            # most by the CRT's own limits.
            return await asyncio.shield(dialling)
        except asyncio.CancelledError:
            dialling.add_done_callback(self._hang_up)
            raise

    def _hang_up(self, dialled: "asyncio.Task[Any]") -> None:
        if not dialled.cancelled() and dialled.exception() is None:
            self._background.start(dialled.result().close())

    async def _invoke(self, transport: "_Transport", credentials: dict[str, str | None]) -> "_Parts":
        config = await AsyncSageMakerRuntimeHTTP2Config.resolve(
            region=self._region, endpoint_uri=self._uri, transport=transport, **credentials
        )
        stream = await AsyncSageMakerRuntimeHTTP2Client(config=config).invoke_endpoint_with_bidirectional_stream(
            InvokeEndpointWithBidirectionalStreamInput(
                endpoint_name=self._endpoint, target_variant=self._target_variant
            )
        )
        _, receiver = await stream.await_output()
        return _Parts(transport, stream.input_stream, receiver, self._background)

    async def _credentials(self) -> dict[str, str | None]:
        """As the SDK's settings. Raises NoCredentials; without any, the SDK's call would never return."""

        def look() -> Any:
            with self._credentials_lock:
                credentials = self._boto_session.get_credentials()
                return credentials and credentials.get_frozen_credentials()

        try:
            async with asyncio.timeout(CREDENTIALS_TIMEOUT_S):
                found = await asyncio.to_thread(look)
        except TimeoutError as exc:
            raise NoCredentials(f"no AWS credentials came within {CREDENTIALS_TIMEOUT_S:g} s") from exc
        except (BotoCoreError, ClientError) as exc:  # whose text may be that of any program
            raise NoCredentials(f"the AWS credentials cannot be had ({type(exc).__name__})") from exc
        if not found:
            raise NoCredentials("there are no AWS credentials: set AWS_PROFILE, run `aws configure`, or give a role")
        return {
            "aws_access_key_id": found.access_key,
            "aws_secret_access_key": found.secret_key,
            "aws_session_token": found.token,
        }

    def _regional_uri(self) -> str:
        # botocore knows the domains of all partitions. The environment's endpoint for other services is not meant.
        runtime = self._boto_session.client(
            "sagemaker-runtime",
            region_name=self._region,
            config=Config(signature_version=UNSIGNED, ignore_configured_endpoint_urls=True),
        )
        return f"{runtime.meta.endpoint_url}:{PORT}"


class _Background:
    """Tasks that go on when nobody waits for them any longer."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    def start(self, work: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any]":
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    async def wait_for(self, work: Coroutine[Any, Any, Any]) -> None:
        """Wait until it has ended, well or not. Being cancelled ends the wait alone."""
        await asyncio.wait({self.start(work)})

    async def finish(self) -> None:
        if self._tasks:
            await asyncio.wait(self._tasks)

    def _ended(self, task: "asyncio.Task[Any]") -> None:
        self._tasks.discard(task)
        _retrieve(task)


def _retrieve(task: "asyncio.Task[Any]") -> None:
    """Else asyncio reports that nobody looked at how it failed."""
    if not task.cancelled():
        task.exception()


class _Transport:
    """What the SDK sends its one request through: a connection of the CRT's that carries a single stream."""

    SUPPORTS_DUPLEX_STREAMING = True
    TIMEOUT_EXCEPTIONS: tuple[type[Exception], ...] = ()

    def __init__(self, connection: Any, background: _Background) -> None:
        self._connection, self._background = connection, background
        self._body: Any = None
        self._ended: asyncio.Task[Any] | None = None
        self._head: asyncio.Task[Any] | None = None

    def __deepcopy__(self, memo: dict[int, Any]) -> "_Transport":
        return self  # the SDK copies its settings, and this is in there

    async def send(self, request: Any, *, request_config: object = None) -> AWSCRTHTTPResponse:
        """Begin the request; returns when the head of the answer is there. Raises ConnectionResetError."""
        self._body, target = request.body, request.destination
        headers = [(field.name, value) for field in request.fields.entries.values() for value in field.values]
        if "host" not in request.fields:
            headers.append(("host", target.netloc))
        path = target.path if target.query is None else f"{target.path}?{target.query}"
        stream = self._connection.request(HttpRequest(request.method, path, HttpHeaders(headers)), request.body)
        # Writes on behind an answer that has ended; the SDK keeps that task to itself, and it fails for no harm.
        stream._writer.add_done_callback(_retrieve)
        self._ended = self._background.start(stream.wait_for_completion())
        self._head = asyncio.create_task(_head(stream))
        await asyncio.wait({self._ended, self._head}, return_when=asyncio.FIRST_COMPLETED)
        await asyncio.wait({self._head}, timeout=HEAD_TIMEOUT_S)  # a short answer may have ended before it was noticed
        if not self._head.done():
            raise ConnectionResetError("SageMaker hung up before it answered")
        status, fields = self._head.result()
        return AWSCRTHTTPResponse(status=status, fields=tuples_to_fields(fields), stream=stream)

    async def stop_sending(self) -> None:
        """Nothing more is taken, and what waits to be sent, or for room, waits no longer."""
        if self._body is not None:
            await self._body.close(flush=False)

    async def close(self) -> None:
        """Close the connection."""
        await self.stop_sending()
        closing = self._background.start(self._connection.close())
        await asyncio.wait({closing} if self._ended is None else {closing, self._ended}, timeout=CLOSE_TIMEOUT_S)
        if self._head is not None:
            self._head.cancel()  # not before: the CRT's thread complains when it has something for a cancelled wait


async def _head(stream: Any) -> tuple[int, list[tuple[str, str]]]:
    return await stream.get_response_status_code(), await stream.get_response_headers()


class _Parts:
    """`Connection` over the stream's parts: one holds one frame, whichever kind, always as bytes."""

    def __init__(self, transport: _Transport, publisher: Any, receiver: Any, background: _Background) -> None:
        self._transport, self._publisher, self._receiver = transport, publisher, receiver
        self._background = background
        self._turn = asyncio.Lock()
        self._frames: asyncio.Queue[bytes | BrokenAnswer | None] = asyncio.Queue()
        # A task of its own: a receive() that is cancelled, as by a timeout around it, leaves the stream unreadable.
        self._reader = asyncio.create_task(self._read())

    async def send(self, message: str) -> None:
        # Not to be cancelled half-way: every part's signature is over that of the one before.
        await asyncio.shield(self._background.start(self._send(message)))

    async def receive(self) -> bytes | None:
        frame = await self._frames.get()
        if isinstance(frame, bytes):
            return frame
        self._frames.put_nowait(frame)  # it stays the end
        if frame is None:
            return None
        raise frame

    async def close(self) -> None:
        """End the input as the service wants it, wait a little for the end of the output, and hang up."""
        ending = self._background.start(self._publisher.close())  # writes a signed empty part
        await asyncio.wait({ending, self._reader}, timeout=CLOSE_TIMEOUT_S)
        await self._transport.close()
        await asyncio.wait({ending, self._reader}, timeout=CLOSE_TIMEOUT_S)

    async def _send(self, message: str) -> None:
        # As text: every container understands that, and SageMaker makes what it likes of it.
        part = RequestPayloadPart(bytes_=message.encode(), data_type="UTF8", completion_state="COMPLETE")
        async with self._turn:
            try:
                async with asyncio.timeout(SEND_TIMEOUT_S):
                    await self._publisher.send(RequestStreamEventPayloadPart(value=part))
            except (OSError, SmithyError) as exc:
                self._background.start(self._transport.close())  # without that part the signatures do not go on
                raise BrokenAnswer("the endpoint's connection has ended") from exc

    async def _read(self) -> None:
        end: BrokenAnswer | None = None
        try:
            frame = b""
            # A connection that is lost ends the parts like a polite end does. The session knows which one it was.
            while (event := await self._receiver.receive()) is not None:
                if not isinstance(event, ResponseStreamEventPayloadPart):
                    raise SmithyError("a part of an unknown kind")
                frame += event.value.bytes_ or b""
                if event.value.completion_state != "PARTIAL":
                    self._frames.put_nowait(frame)
                    frame = b""
        except (OSError, SmithyError) as exc:
            end = _breach(exc)
        finally:
            self._frames.put_nowait(end)
            await self._transport.stop_sending()


def _address(uri: str) -> tuple[str, int]:
    parts = urlsplit(uri)
    if parts.scheme != "https" or not parts.hostname:
        raise ValueError("the address of the service looks like https://HOST:PORT")  # HTTP/2 is agreed on within TLS
    return parts.hostname, parts.port or PORT


def _refusal(exc: SmithyError) -> SpeechError:
    """What a stream that was not opened is to the caller."""
    match exc:
        case ModelError() if exc.original_status_code in (None, 0, 503):  # its words get lost on the way
            return EngineUnavailable(
                "the container refused the connection: it is still loading or has no room for another session, "
                "or it has no WebSocket; its log tells"
            )
        case ModelError():
            return UnexpectedAnswer(f"the container refused the connection with status {exc.original_status_code}")
        case ServiceUnavailableError() | InternalServerError():
            return EngineUnavailable(f"SageMaker cannot reach the endpoint at the moment: {exc.message}")
        case CallError() if exc.is_throttling_error or "Throttling" in str(exc):
            return QueueSaturated("SageMaker throttles the account: too many requests")
        case CallError() if exc.response_metadata.http_status_code == 403:
            return UnexpectedAnswer(
                "SageMaker refused the credentials: they are wrong or have expired, or do not allow "
                "sagemaker:InvokeEndpointWithBidirectionalStream on the endpoint"
            )
        case CallError():
            return UnexpectedAnswer(f"SageMaker refused the connection: {exc.message}")
        case _ if isinstance(exc.__cause__, ConnectionResetError):
            return BrokenAnswer(str(exc.__cause__))
        case _:
            return UnexpectedAnswer(f"what answers there is not SageMaker: {exc}")


def _breach(exc: Exception) -> BrokenAnswer | None:
    """What an error among the parts is to the caller; None: it is none."""
    match exc:
        case ModelStreamError(error_code=code) if code in _POLITE_CODES:
            return None
        case ModelStreamError():
            return BrokenAnswer(f"the container broke the conversation off: {exc.message} ({exc.error_code})")
        case InternalStreamFailure():
            return BrokenAnswer(f"SageMaker broke the conversation off: {exc.message}")
        case _:
            return BrokenAnswer(f"the conversation broke off: {exc}")
