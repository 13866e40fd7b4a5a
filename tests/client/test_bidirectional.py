"""The HTTP/2 client of SageMaker: the service's own SDK, over TLS, against a local endpoint."""

import asyncio
import gc
import json
import logging
import os
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Any

import boto3
import pytest
from aws_sdk_sagemaker_runtime_http2.models import RequestPayloadPart, RequestStreamEventPayloadPart
from aws_sdk_signers import AsyncEventSigner
from smithy_aws_core.identity import AWSCredentialsIdentity, StaticCredentialsResolver
from smithy_aws_event_stream.aio import AWSEventPublisher, SigningConfig
from smithy_aws_event_stream.events import EventHeaderEncoder
from smithy_json import JSONCodec
from websockets.asyncio.server import ServerConnection

from scripts.local_endpoint.certificate import tls_context, write_certificate
from scripts.local_endpoint.endpoint import LocalEndpoint
from scripts.local_endpoint.eventstream import Decoder
from scripts.local_endpoint.http2 import Connection, Stream
from scripts.local_endpoint.settings import Faults, Limits
from serve_app.client import bidirectional
from serve_app.client.bidirectional import BidirectionalClient
from serve_app.client.errors import BrokenAnswer, NoCredentials, UnexpectedAnswer, Unreachable
from serve_app.errors import EngineUnavailable, QueueSaturated, SpeechError
from serve_app.protocol.messages import SynthesisComplete
from tests.client.endpoints import client_of, deployed, socket_server
from tests.client.hostile import HANG_S, collected, joined
from tests.client.streams import PCM, aws_message, aws_part

TEXT = "Hello there."
START: dict[str, object] = {"type": "synthesis_start"}
COMPLETE: dict[str, object] = {"type": "synthesis_complete", "total_duration_s": 0.1, "elapsed_s": 0.1}
EVENT_STREAM = ("content-type", "application/vnd.amazon.eventstream")


def client_at(**options: Any) -> BidirectionalClient:
    return BidirectionalClient("tts", boto_session=boto3.Session("test", "test", region_name="eu-west-1"), **options)


async def answer(websocket: ServerConnection, frames: list[dict[str, object] | bytes]) -> None:
    """Answer one message with these frames."""
    request_id = json.loads(await websocket.recv())["request_id"]
    for frame in frames:
        await websocket.send(frame if isinstance(frame, bytes) else json.dumps({"request_id": request_id} | frame))


def ask_hostile(frames: list[dict[str, object] | bytes], *, close_code: int | None = 1000, **options: Any) -> bytes:
    """The audio from a container that answers one message with these frames; without a code it just goes away."""

    async def scenario() -> bytes:
        async def serve_one(websocket: ServerConnection) -> None:
            await answer(websocket, frames)
            if close_code is None:
                websocket.transport.abort()
            else:
                await websocket.close(close_code)

        async with socket_server(serve_one) as url, deployed(url, **options) as service:
            return joined(await collected(service.client.synthesize(TEXT)))

    return asyncio.run(scenario())


def complaints(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What asyncio had to say about tasks of the client's side."""
    texts = [caplog.handler.format(record) for record in caplog.records if record.name == "asyncio"]
    return [text for text in texts if any(name in text for name in ("awscrt", "smithy", "serve_app"))]


# The stream as the service wants it


def test_a_conversation_ends_with_the_signed_empty_frame(server: str) -> None:
    """Several AWS services answer an input without it with an error, however well the conversation went."""

    async def scenario() -> None:
        async with deployed(server, faults=Faults(demand_end_frame=True)) as service:
            async with service.client.session() as session:
                for _ in range(3):
                    await session.say(TEXT)
                for _ in range(3):
                    while not isinstance(await anext(session), SynthesisComplete):
                        pass
            account = await service.accounts.get()
            assert (account.parts_received, account.end_frame, account.error) == (3, True, None)

    asyncio.run(scenario())


def test_a_close_message_ends_the_conversation_without_an_error(server: str) -> None:
    async def scenario() -> None:
        async with deployed(server, faults=Faults(demand_end_frame=True)) as service:
            async with service.client.session() as session:
                for _ in range(3):
                    await session.say(TEXT)
                await session.close()
                events = [event async for event in session]
            assert sum(isinstance(event, SynthesisComplete) for event in events) == 3
            assert (await service.accounts.get()).error is None

    asyncio.run(scenario())


def test_the_pinned_sdk_ends_an_input_with_a_signed_empty_frame_once() -> None:
    class Written:
        def __init__(self) -> None:
            self.frames: list[bytes] = []

        async def write(self, data: bytes) -> None:
            self.frames.append(data)

        async def close(self) -> None:
            pass

    async def scenario() -> list[bytes]:
        signing = SigningConfig(
            signer=AsyncEventSigner(initial_signature=b"0" * 64, event_encoder_cls=EventHeaderEncoder),
            signing_properties={"region": "eu-west-1", "service": "sagemaker"},
            identity_resolver=StaticCredentialsResolver(
                AWSCredentialsIdentity(access_key_id="test", secret_access_key="test")
            ),
            identity_properties={},
        )
        written = Written()
        publisher: AWSEventPublisher[Any] = AWSEventPublisher(JSONCodec(), written, signing)
        await publisher.send(RequestStreamEventPayloadPart(value=RequestPayloadPart(bytes_=b"{}", data_type="UTF8")))
        await publisher.close()
        await publisher.close()
        return written.frames

    part, end = [message for frame in asyncio.run(scenario()) for message in Decoder().feed(frame)]
    assert part.payload
    assert end.payload == b""
    assert set(end.headers) == {":date", ":chunk-signature"}


def test_every_message_is_one_frame_of_text_unless_the_service_makes_it_binary() -> None:
    async def heard(all_binary: bool) -> list[str | bytes]:
        frames: list[str | bytes] = []

        async def serve_one(websocket: ServerConnection) -> None:
            frames.extend([frame async for frame in websocket])

        async with socket_server(serve_one) as url, deployed(url, all_binary=all_binary) as service:
            async with service.client.session() as session:
                await session.say("caf\u00e9 \U0001f327 na\u00efve.", request_id="r")
                await session.cancel("r")
            await service.accounts.get()
        return frames

    text, binary = asyncio.run(heard(False)), asyncio.run(heard(True))
    assert [json.loads(frame).get("type") for frame in text] == [None, "cancel"]
    assert binary == [frame.encode() for frame in text if isinstance(frame, str)]


def test_audio_keeps_every_sample_and_is_never_taken_for_control() -> None:
    slices: list[dict[str, object] | bytes] = [PCM[:1], PCM[1:4], b"{", b'}{"a":', PCM[4:4067]]
    assert ask_hostile([START, *slices, COMPLETE]) == (PCM[:4] + b'{}{"a":' + PCM[4:4067])[:4074]


def test_a_message_in_several_parts_is_one_message() -> None:
    complete = json.dumps(COMPLETE | {"request_id": "r"}).encode()

    async def scenario() -> bytes:
        async def reply(stream: Stream) -> None:
            await stream.respond(200, [EVENT_STREAM])
            await anext(stream.chunks())
            await stream.send(aws_part(json.dumps(START | {"request_id": "r"}).encode()))
            for data, state in ((PCM[:3], "PARTIAL"), (PCM[3:9], "COMPLETE"), (complete[:9], "PARTIAL")):
                await stream.send(partial_part(data, state))
            await stream.send(partial_part(complete[9:], "COMPLETE"))
            await stream.end()

        async with service_like(reply) as client:
            return joined(await collected(client.synthesize(TEXT, request_id="r")))

    assert asyncio.run(scenario()) == PCM[:8]


def partial_part(data: bytes, state: str) -> bytes:
    kind = {":message-type": "event", ":event-type": "PayloadPart", ":content-type": "application/octet-stream"}
    return aws_message(kind | {"CompletionState": state}, data)


# What goes wrong among the parts


@pytest.mark.parametrize("close_code", [None, 1000, 1001, 1011])
def test_a_container_that_leaves_in_the_middle_is_an_error(close_code: int | None) -> None:
    with pytest.raises(BrokenAnswer):
        ask_hostile([START, PCM], close_code=close_code)


def test_the_container_says_why_it_broke_off() -> None:
    with pytest.raises(BrokenAnswer, match=r"broke the conversation off.*1013"):
        ask_hostile([START, PCM], close_code=1013)


@pytest.mark.parametrize("parts", [0, 1, 2])
def test_a_connection_cut_in_the_middle_is_an_error(server: str, parts: int, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with deployed(server, faults=Faults(cut_after_parts=parts)) as service:
            with pytest.raises(BrokenAnswer):
                await collected(service.client.synthesize(TEXT))
            gc.collect()

    asyncio.run(scenario())
    assert not complaints(caplog)


def test_the_end_of_the_thirty_minutes_is_an_error_only_for_what_is_unanswered() -> None:
    with pytest.raises(BrokenAnswer, match="ModelInvocationTimeExceeded"):
        asyncio.run(spoken_past_the_limit())


async def spoken_past_the_limit() -> None:
    async def serve_one(websocket: ServerConnection) -> None:
        await answer(websocket, [START, PCM])
        await websocket.wait_closed()

    async with socket_server(serve_one) as url, deployed(url, limits=Limits(connection_s=0.3)) as service:
        await collected(service.client.synthesize(TEXT))


@pytest.mark.parametrize("code", [1000, 1001])
def test_a_polite_end_with_nothing_unanswered_is_the_end_of_the_iteration(code: int) -> None:
    async def scenario() -> None:
        async def serve_one(websocket: ServerConnection) -> None:
            await answer(websocket, [START, PCM, COMPLETE])
            await websocket.close(code)

        async with socket_server(serve_one) as url, deployed(url) as service, service.client.session() as session:
            await session.say(TEXT)
            events = [event async for event in session]
            assert isinstance(events[-1], SynthesisComplete)
            with pytest.raises(BrokenAnswer):
                await session.say(TEXT)

    asyncio.run(scenario())


def test_senders_do_not_hang_on_a_connection_that_is_lost_or_takes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bidirectional, "SEND_TIMEOUT_S", 0.2)

    async def say_much(reply: Callable[[Stream], Awaitable[None]]) -> None:
        async with service_like(reply) as client, client.session() as session:
            for _ in range(100):
                await session.say("Hello there. " * 3000)

    async def takes_nothing(stream: Stream) -> None:
        await stream.respond(200, [EVENT_STREAM])
        await asyncio.Event().wait()

    async def cuts(stream: Stream) -> None:
        await stream.respond(200, [EVENT_STREAM])
        async for _ in stream.chunks():
            stream.cut()
            return

    for reply in (takes_nothing, cuts):
        with pytest.raises(BrokenAnswer):
            asyncio.run(say_much(reply))


def test_a_say_that_is_cancelled_does_not_break_the_chain_of_signatures(server: str) -> None:
    async def scenario() -> None:
        async with deployed(server) as service, service.client.session() as session:
            for _ in range(5):
                saying = asyncio.create_task(session.say(TEXT))
                await asyncio.wait({saying}, timeout=0)
                saying.cancel()
                await asyncio.gather(saying, return_exceptions=True)
            last = await session.say(TEXT)
            while (event := await anext(session)).request_id != last or not isinstance(event, SynthesisComplete):
                pass

    asyncio.run(scenario())


# What is refused, and what does not answer


@asynccontextmanager
async def service_like(reply: Callable[[Stream], Awaitable[None]]) -> AsyncIterator[BidirectionalClient]:
    """A client of a service that answers every stream with `reply`."""
    tasks: set[asyncio.Task[None]] = set()

    def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.add(asyncio.create_task(Connection(reader, writer, reply).run()))

    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        certificate, key = write_certificate(Path(folder))
        patch.setenv("SSL_CERT_FILE", str(certificate))
        tls = tls_context(certificate, key, "h2")
        listener = await asyncio.start_server(connected, "127.0.0.1", 0, ssl=tls, ssl_shutdown_timeout=0.1)
        client = client_at(endpoint_uri=f"https://localhost:{listener.sockets[0].getsockname()[1]}")
    try:
        async with asyncio.timeout(HANG_S):
            yield client
            await client.aclose()
    finally:
        listener.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def refused(status: int, name: str, **fields: object) -> SpeechError:
    """What a service's refusal becomes."""

    async def scenario() -> SpeechError:
        async def reply(stream: Stream) -> None:
            headers = [("content-type", "application/json"), ("x-amzn-errortype", name)]
            await stream.respond(status, headers, json.dumps({"Message": "why", **fields}).encode())

        async with service_like(reply) as client:
            with pytest.raises(SpeechError) as caught:
                await collected(client.synthesize(TEXT))
            return caught.value

    return asyncio.run(scenario())


@pytest.mark.parametrize(
    ("status", "name", "kind", "told"),
    [
        (400, "InputValidationError", UnexpectedAnswer, "why"),
        (403, "AccessDeniedException", UnexpectedAnswer, "InvokeEndpointWithBidirectionalStream"),
        (429, "ThrottlingException", QueueSaturated, "throttles"),
        (400, "ThrottlingException", QueueSaturated, "throttles"),
        (500, "InternalServerError", EngineUnavailable, "why"),
        (503, "ServiceUnavailableError", EngineUnavailable, "why"),
        (418, "Teapot", UnexpectedAnswer, "418"),
    ],
)
def test_refusals_of_the_service_tell_what_to_do(status: int, name: str, kind: type[SpeechError], told: str) -> None:
    error = refused(status, name)
    assert type(error) is kind
    assert told in error.message


@pytest.mark.parametrize(
    ("status", "kind", "told"),
    [
        (HTTPStatus.SERVICE_UNAVAILABLE, EngineUnavailable, "no room"),
        (HTTPStatus.FORBIDDEN, UnexpectedAnswer, "status 403"),
    ],
)
def test_a_containers_own_refusal_is_told_apart(status: HTTPStatus, kind: type[SpeechError], told: str) -> None:
    async def scenario() -> None:
        async def serve_one(websocket: ServerConnection) -> None:
            await websocket.close()

        async with socket_server(serve_one, refuse_with=status) as url, deployed(url) as service:
            with pytest.raises(kind, match=told):
                await collected(service.client.synthesize(TEXT))

    asyncio.run(scenario())


def test_an_unknown_endpoint_and_a_wrong_key_are_refused(endpoint: LocalEndpoint) -> None:
    with pytest.raises(UnexpectedAnswer, match="not found"):
        asyncio.run(collected(client_of(endpoint, "other").synthesize(TEXT)))
    with pytest.raises(UnexpectedAnswer, match="credentials"):
        asyncio.run(collected(client_of(endpoint, secret_key="wrong").synthesize(TEXT)))


def test_a_service_that_hangs_up_or_says_nothing_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    async def cuts(stream: Stream) -> None:
        stream.cut()

    async def says_nothing(stream: Stream) -> None:
        await asyncio.Event().wait()

    async def connect_to(reply: Callable[[Stream], Awaitable[None]]) -> None:
        async with service_like(reply) as client, client.session():
            raise AssertionError("there is no answer")

    with pytest.raises(BrokenAnswer, match="hung up before it answered"):
        asyncio.run(connect_to(cuts))
    monkeypatch.setattr(bidirectional, "OPEN_TIMEOUT_S", 0.3)
    with pytest.raises(Unreachable, match="does not answer"):
        asyncio.run(connect_to(says_nothing))


def test_no_service_at_all_is_unreachable(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    async def connect_to(port: int) -> None:
        client = client_at(endpoint_uri=f"https://localhost:{port}")
        async with aclosing(client), client.session():
            raise AssertionError("nobody listens")

    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        monkeypatch.setattr(bidirectional, "OPEN_TIMEOUT_S", 0.2)

        def hang_up() -> None:
            silent.accept()[0].close()  # else the CRT waits for 10 s

        later = threading.Timer(0.5, hang_up)
        later.start()
        with pytest.raises(Unreachable, match="does not answer"):
            asyncio.run(connect_to(port))
        later.join()
    monkeypatch.undo()
    with pytest.raises(Unreachable, match="cannot be reached at localhost"):
        asyncio.run(connect_to(port))
    assert capfd.readouterr().err == ""


def test_missing_credentials_are_a_sentence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "none"))

    async def connect(client: BidirectionalClient) -> None:
        async with client.session():
            raise AssertionError("there is nobody to be")

    with pytest.raises(NoCredentials, match="aws configure"):
        asyncio.run(connect(BidirectionalClient("tts", region="eu-west-1")))
    with pytest.raises(ValueError, match="AWS_REGION"):
        BidirectionalClient("tts")

    class Slow:
        region_name = "eu-west-1"

        def __init__(self) -> None:
            self.released = threading.Event()

        def get_credentials(self) -> None:
            self.released.wait(HANG_S)

    slow = Slow()
    monkeypatch.setattr(bidirectional, "CREDENTIALS_TIMEOUT_S", 0.1)

    async def scenario() -> None:
        with pytest.raises(NoCredentials, match="within"):
            await connect(BidirectionalClient("tts", endpoint_uri="https://localhost:1", boto_session=slow))
        slow.released.set()

    asyncio.run(scenario())


def test_credentials_are_asked_for_anew_for_every_connection(endpoint: LocalEndpoint) -> None:
    class Counting(boto3.Session):
        asked = 0

        def get_credentials(self) -> Any:
            self.asked += 1
            return super().get_credentials()

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SSL_CERT_FILE", str(endpoint.certificate))
        keys = endpoint.credentials
        session = Counting(keys.access_key, keys.secret_key, region_name="eu-west-1")
        client = BidirectionalClient("tts", endpoint_uri=endpoint.h2_url, boto_session=session)
    for expected in (1, 2):
        asyncio.run(collected(client.synthesize(TEXT)))
        assert session.asked == expected


@pytest.mark.parametrize(
    ("region", "host"),
    [
        ("eu-west-1", "runtime.sagemaker.eu-west-1.amazonaws.com"),
        ("cn-north-1", "runtime.sagemaker.cn-north-1.amazonaws.com.cn"),
    ],
)
def test_the_address_is_that_of_the_region_on_its_own_port(
    region: str, host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")  # of some other service
    client = BidirectionalClient("tts", region=region)
    assert (client._host, client._port) == (host, 8443)


@pytest.mark.parametrize("uri", ["http://localhost:8443", "localhost:8443", "https://", "https://localhost:port"])
def test_an_address_without_tls_is_refused_at_once(uri: str) -> None:
    with pytest.raises(ValueError):
        client_at(endpoint_uri=uri)


# What is left behind


def test_a_hundred_sessions_leave_nothing_behind(endpoint: LocalEndpoint, caplog: pytest.LogCaptureFixture) -> None:
    client = client_of(endpoint)

    def held() -> tuple[int, int]:
        gc.collect()
        pooled = sum(thread.name.startswith("asyncio_") for thread in threading.enumerate())
        return len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task")) - pooled

    async def use(how: int) -> None:
        match how % 4:
            case 0:
                async with client.session():
                    pass
            case 1:
                await collected(client.synthesize(TEXT))
            case 2:
                async with aclosing(client.synthesize("This is a sentence. " * 50)) as chunks:
                    await anext(chunks)
            case 3:
                opening = asyncio.create_task(collected(client.synthesize(TEXT)))
                await asyncio.wait({opening}, timeout=0.01 * (how % 5))
                opening.cancel()
                await asyncio.gather(opening, return_exceptions=True)

    async def scenario() -> None:
        for how in range(4):
            await use(how)
        await client.aclose()
        before, tasks = held(), len(asyncio.all_tasks())
        for how in range(100):
            await use(how)
        await client.aclose()
        after = held()
        assert after[0] <= before[0] + 2
        assert after[1] <= before[1] + 2
        assert len(asyncio.all_tasks()) == tasks

    with caplog.at_level(logging.WARNING):
        asyncio.run(scenario())
    assert not complaints(caplog)


def test_the_websocket_client_does_without_the_sdk() -> None:
    code = "import sys, serve_app.client.websocket; print([m for m in sys.modules if m.split('.')[0] in {names}])"
    names = "('boto3', 'botocore', 'awscrt', 'smithy_core', 'aws_sdk_sagemaker_runtime_http2')"
    run = subprocess.run([sys.executable, "-c", code.format(names=names)], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
