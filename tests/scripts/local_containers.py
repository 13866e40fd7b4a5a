"""Containers that a test tells what to do, and the callers' side of the local endpoint: real SDKs, and bare HTTP/2."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from http import HTTPStatus
from typing import Any, Self

import boto3
import h2.config
import h2.connection
import h2.events
import pytest
from aws_sdk_sagemaker_runtime_http2.client import AsyncSageMakerRuntimeHTTP2Client
from aws_sdk_sagemaker_runtime_http2.config import AsyncSageMakerRuntimeHTTP2Config
from aws_sdk_sagemaker_runtime_http2.models import (
    InvokeEndpointWithBidirectionalStreamInput,
    RequestPayloadPart,
    RequestStreamEventPayloadPart,
)
from aws_sdk_signers import AsyncEventSigner, AWSCredentialIdentity
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.config import Config
from h2.exceptions import StreamClosedError
from smithy_aws_event_stream.events import EventHeaderEncoder, EventMessage
from smithy_http.aio.crt import AWSCRTHTTPClient, AWSCRTHTTPClientConfig
from websockets.asyncio.server import Request, Response, ServerConnection, serve

from scripts.local_endpoint.endpoint import LocalEndpoint
from scripts.local_endpoint.eventstream import CONTENT_TYPE, Decoder, Message
from scripts.local_endpoint.signatures import EVENTS
from tests.client.hostile import HANG_S, Exchange, http_server

REGION = "eu-west-1"
PATH = "/endpoints/tts/invocations-bidirectional-stream"


@asynccontextmanager
async def websocket_container(
    handler: Callable[[ServerConnection], Awaitable[None]], *, refused_path: str = "/refused"
) -> AsyncIterator[str]:
    """The URL of a container whose WebSocket does as `handler` says."""

    def route(connection: ServerConnection, request: Request) -> Response | None:
        if request.path == "/ping":
            return connection.respond(HTTPStatus.OK, "")
        return connection.respond(HTTPStatus.FORBIDDEN, "not for you") if request.path == refused_path else None

    async with (
        asyncio.timeout(HANG_S),
        serve(handler, "127.0.0.1", 0, process_request=route, max_size=None, compression=None) as server,
    ):
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


@asynccontextmanager
async def http_container(reply: Callable[[Exchange], Awaitable[None]]) -> AsyncIterator[str]:
    """The URL of a container that answers /invocations as `reply` says."""

    async def route(exchange: Exchange) -> None:
        if exchange.head.startswith("GET /ping "):
            await exchange.answer("text/plain", [b"ok"])
        else:
            await reply(exchange)

    async with http_server(route) as server:
        yield server.url


async def echo(socket: ServerConnection) -> None:
    async for frame in socket:
        await socket.send(frame)


def runtime(endpoint: LocalEndpoint, secret: str = "test", key_id: str = "test", region: str = REGION) -> Any:
    """boto3's client, as a program would make it."""
    return boto3.client(
        "sagemaker-runtime",
        endpoint_url=endpoint.http_url,
        region_name=region,
        aws_access_key_id=key_id,
        aws_secret_access_key=secret,
        verify=str(endpoint.certificate),
        config=Config(retries={"total_max_attempts": 1}, max_pool_connections=20),
    )


class Talk:
    """One bidirectional stream of the real SDK."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._receiver: Any = None

    async def opened(self) -> Any:
        """The output of the operation. Raises its errors."""
        output, self._receiver = await self._stream.await_output()
        return output

    async def send(self, data: bytes, data_type: str | None = None, completion: str | None = None) -> None:
        part = RequestPayloadPart(bytes_=data, data_type=data_type, completion_state=completion)
        await self._stream.input_stream.send(RequestStreamEventPayloadPart(value=part))

    async def receive(self) -> tuple[str, bytes] | None:
        """Type and bytes of the next part; None at the end. Raises the stream's errors."""
        event = await self._receiver.receive()
        return None if event is None else (event.value.data_type, event.value.bytes_ or b"")

    async def close(self) -> None:
        """End the input."""
        await self._stream.input_stream.close()


class Caller:
    """The real SDK's client."""

    def __init__(self, client: AsyncSageMakerRuntimeHTTP2Client) -> None:
        self._client = client

    async def talk(self, endpoint_name: str = "tts", **fields: str) -> Talk:
        """Open a stream. Raises the operation's errors."""
        asked = InvokeEndpointWithBidirectionalStreamInput(endpoint_name=endpoint_name, **fields)
        talk = Talk(await self._client.invoke_endpoint_with_bidirectional_stream(asked))
        await talk.opened()
        return talk


@asynccontextmanager
async def caller(endpoint: LocalEndpoint, secret: str = "test") -> AsyncIterator[Caller]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SSL_CERT_FILE", str(endpoint.certificate))
        transport = AWSCRTHTTPClient(client_config=AWSCRTHTTPClientConfig(force_http_2=True))
    config = await AsyncSageMakerRuntimeHTTP2Config.resolve(
        region=REGION,
        endpoint_uri=endpoint.h2_url,
        transport=transport,
        aws_access_key_id="test",
        aws_secret_access_key=secret,
    )
    async with AsyncSageMakerRuntimeHTTP2Client(config=config) as client:
        yield Caller(client)


class RawStream:
    """A stream whose caller says itself when it reads."""

    def __init__(self, connection: "RawConnection", stream_id: int, signature: str) -> None:
        self.id, self._connection = stream_id, connection
        self.status, self.headers, self.ended = 0, dict[str, str](), False
        self.data = bytearray()
        self.unread_bytes = 0
        self.reading = True
        self._signer = AsyncEventSigner(initial_signature=signature.encode(), event_encoder_cls=EventHeaderEncoder)

    async def signed(self, data: bytes | None) -> bytes:
        """A part in its envelope; None is the empty end frame."""
        signing: Any = {
            "identity": AWSCredentialIdentity(access_key_id="test", secret_access_key="test"),
            "properties": {"region": REGION, "service": "sagemaker"},
        }
        if data is None:
            return (await self._signer.sign_empty(event=EventMessage(), **signing)).encode()
        part = EventMessage(headers={":message-type": "event", ":event-type": "PayloadPart"}, payload=data)
        return (await self._signer.sign(event=part, **signing)).encode()

    async def send(self, data: bytes, *, end: bool = False) -> None:
        """Send as the window allows; waits for it."""
        await self._connection.send(self.id, data, end=end)

    async def until(self, condition: Callable[[], bool]) -> None:
        await self._connection.until(condition)

    async def finished(self) -> "RawStream":
        await self.until(lambda: self.ended)
        return self

    def messages(self) -> list[Message]:
        return list(Decoder().feed(bytes(self.data)))

    def read_on(self) -> None:
        """Take what has come, and everything from now on as it comes."""
        self.reading = True
        self._connection.acknowledge(self)


class RawConnection:
    """HTTP/2 by hand: windows opened, streams reset and connections dropped when a test says so."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, authority: str) -> None:
        self._reader, self.writer, self._authority = reader, writer, authority
        self.h2 = h2.connection.H2Connection(h2.config.H2Configuration(header_encoding="utf-8"))
        self.h2.initiate_connection()
        self.h2.increment_flow_control_window(2**24)
        self._changed = asyncio.Condition()
        self.streams: dict[int, RawStream] = {}
        self.lost = False
        self.flush()
        self._reading = asyncio.create_task(self._read())

    @classmethod
    async def open(cls, endpoint: LocalEndpoint) -> Self:
        context = ssl.create_default_context(cafile=str(endpoint.certificate))
        context.set_alpn_protocols(["h2"])
        host, port = "localhost", int(endpoint.h2_url.rpartition(":")[2])
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname=host)
        return cls(reader, writer, f"{host}:{port}")

    async def request(self, *, path: str = PATH, change: dict[str, str | None] | None = None) -> RawStream:
        """Open a stream with a signed request; `change` alters or drops headers once it is signed."""
        request = AWSRequest(
            "POST",
            f"https://{self._authority}{path}",
            {"content-type": CONTENT_TYPE, "x-amz-content-sha256": EVENTS, "host": self._authority},
        )
        credentials = boto3.Session("test", "test").get_credentials()
        SigV4Auth(credentials, "sagemaker", REGION).add_auth(request)
        headers = {name.lower(): value for name, value in request.headers.items() if name.lower() != "host"}
        signature = headers["authorization"].rpartition("=")[2]
        for name, value in (change or {}).items():
            if value is None:
                headers.pop(name)
            else:
                headers[name] = value
        pseudo = {":method": "POST", ":scheme": "https", ":authority": self._authority, ":path": path}
        stream_id = self.h2.get_next_available_stream_id()
        stream = self.streams[stream_id] = RawStream(self, stream_id, signature)
        self.h2.send_headers(stream_id, list({**pseudo, **headers}.items()))
        self.flush()
        return stream

    async def send(self, stream_id: int, data: bytes, *, end: bool) -> None:
        while data:
            await self.until(lambda: self.h2.local_flow_control_window(stream_id) > 0)
            size = min(self.h2.local_flow_control_window(stream_id), self.h2.max_outbound_frame_size)
            self.h2.send_data(stream_id, data[:size])
            data = data[size:]
            self.flush()
            await self.writer.drain()
        if end:
            self.h2.end_stream(stream_id)
            self.flush()

    async def until(self, condition: Callable[[], bool]) -> None:
        async with self._changed:
            await self._changed.wait_for(condition)

    def acknowledge(self, stream: RawStream) -> None:
        with suppress(StreamClosedError):  # by what follows in the same read
            if stream.unread_bytes:
                self.h2.increment_flow_control_window(stream.unread_bytes, stream.id)
        stream.unread_bytes = 0
        self.flush()

    def flush(self) -> None:
        self.writer.write(self.h2.data_to_send())

    async def close(self) -> None:
        self._reading.cancel()
        self.writer.transport.abort()
        await asyncio.gather(self._reading, return_exceptions=True)

    async def _read(self) -> None:
        try:
            while data := await self._reader.read(65536):
                for event in self.h2.receive_data(data):
                    self._on(event)
                self.flush()
                async with self._changed:
                    self._changed.notify_all()
        except ConnectionError:
            pass
        finally:
            self.lost = True
            async with self._changed:
                self._changed.notify_all()

    def _on(self, event: h2.events.Event) -> None:
        match event:
            case h2.events.ResponseReceived(stream_id=stream_id, headers=headers):
                stream = self.streams[stream_id]
                stream.headers = {str(name): str(value) for name, value in headers}
                stream.status = int(stream.headers[":status"])
            case h2.events.DataReceived(stream_id=stream_id, data=data, flow_controlled_length=length):
                stream = self.streams[stream_id]
                stream.data += data
                stream.unread_bytes += length
                if length:
                    self.h2.increment_flow_control_window(length)
                if stream.reading:
                    self.acknowledge(stream)
            case h2.events.StreamEnded(stream_id=stream_id):
                self.streams[stream_id].ended = True


@asynccontextmanager
async def raw_connection(endpoint: LocalEndpoint) -> AsyncIterator[RawConnection]:
    connection = await RawConnection.open(endpoint)
    try:
        yield connection
    finally:
        await connection.close()
