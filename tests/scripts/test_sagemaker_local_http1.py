"""InvokeEndpoint and InvokeEndpointWithResponseStream through the local endpoint, called by the real boto3."""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from typing import Any

import boto3
import httpx
import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.exceptions import ClientError, EventStreamError

from scripts.local_endpoint.endpoint import LocalEndpoint, endpoint_in_thread, local_endpoint
from scripts.local_endpoint.settings import MAX_BODY_BYTES, Limits
from scripts.running import free_port
from tests.client.hostile import Exchange, http_server
from tests.scripts.local_containers import REGION, http_container, runtime, websocket_container

AUDIO = bytes(at * 7 % 256 for at in range(20_000))


async def speak(exchange: Exchange) -> None:
    """Answer with AUDIO in chunks of 4000 bytes."""
    chunks = [AUDIO[at : at + 4000] for at in range(0, len(AUDIO), 4000)]
    await exchange.answer("audio/wav", chunks, headers={"X-Amzn-SageMaker-Custom-Attributes": "mood=good"})


def played(response: dict[str, Any]) -> list[bytes]:
    return [event["PayloadPart"]["Bytes"] for event in response["Body"]]


def against[T](
    reply: Callable[[Exchange], Awaitable[None]],
    call: Callable[[Any], T],
    *,
    limits: Limits | None = None,
    https: bool = False,
    seed: int = 0,
    **credentials: str,
) -> T:
    """What `call` makes of a boto3 client for an endpoint in front of a container that does as `reply` says."""

    async def scenario() -> T:
        async with (
            http_container(reply) as url,
            local_endpoint(url, limits=limits, https=https, seed=seed) as endpoint,
        ):
            return await asyncio.to_thread(call, runtime(endpoint, **credentials))

    return asyncio.run(scenario())


def refused(reply: Callable[[Exchange], Awaitable[None]], call: Callable[[Any], Any], **options: Any) -> dict[str, Any]:
    """The error response that `call` ran into."""
    with pytest.raises(ClientError) as caught:
        against(reply, call, **options)
    return dict(caught.value.response)


@pytest.mark.parametrize("https", [False, True])
def test_invoke_endpoint_gives_the_containers_answer_and_passes_on_what_the_service_passes_on(https: bool) -> None:
    seen: list[Exchange] = []

    async def container(exchange: Exchange) -> None:
        seen.append(exchange)
        await speak(exchange)

    def call(client: Any) -> tuple[dict[str, Any], bytes]:
        response = client.invoke_endpoint(
            EndpointName="tts",
            Body=b'{"text": "Hi."}',
            ContentType="application/json",
            Accept="audio/wav",
            CustomAttributes="a=b",
            TargetVariant="AllTraffic",
        )
        return response, response["Body"].read()

    response, body = against(container, call, https=https)
    assert body == AUDIO
    assert response["ContentType"] == "audio/wav"
    assert response["InvokedProductionVariant"] == "AllTraffic"
    assert response["CustomAttributes"] == "mood=good"
    head = seen[0].head.lower()
    assert head.startswith("post /invocations http/1.1\r\n")
    assert seen[0].body == b'{"text": "Hi."}'
    for line in ("content-type: application/json", "accept: audio/wav", "x-amzn-sagemaker-custom-attributes: a=b"):
        assert f"\r\n{line}\r\n" in head
    for stripped in ("authorization", "x-amz-date", "x-amzn-sagemaker-target-variant"):
        assert stripped not in head


def test_a_response_stream_has_the_same_bytes_in_parts_that_end_elsewhere() -> None:
    def call(client: Any) -> tuple[dict[str, Any], list[bytes]]:
        response = client.invoke_endpoint_with_response_stream(EndpointName="tts", Body=b"{}", Accept="audio/wav")
        return response, played(response)

    response, parts = against(speak, call)
    assert b"".join(parts) == AUDIO
    assert len(parts) > 5
    assert any(len(part) % 2 for part in parts)
    assert response["ContentType"] == "audio/wav"
    assert response["InvokedProductionVariant"] == "AllTraffic"
    assert response["CustomAttributes"] == "mood=good"


def test_parts_leave_before_the_container_has_said_more() -> None:
    async def scenario() -> None:
        heard = asyncio.Event()

        async def container(exchange: Exchange) -> None:
            exchange.writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n")
            await heard.wait()
            exchange.writer.write(b"3\r\ndef\r\n0\r\n\r\n")

        async with http_container(container) as url, local_endpoint(url) as endpoint:
            client = runtime(endpoint)
            response = await asyncio.to_thread(
                client.invoke_endpoint_with_response_stream, EndpointName="tts", Body=b"{}"
            )
            events = iter(response["Body"])
            first = b""
            while first != b"abc":
                first += (await asyncio.to_thread(next, events))["PayloadPart"]["Bytes"]
            heard.set()
            rest = await asyncio.to_thread(lambda: [event["PayloadPart"]["Bytes"] for event in events])
            assert b"".join(rest) == b"def"

    asyncio.run(scenario())


STREAMED = [
    lambda client: client.invoke_endpoint(EndpointName="tts", Body=b"{}"),
    lambda client: client.invoke_endpoint_with_response_stream(EndpointName="tts", Body=b"{}"),
]


@pytest.mark.parametrize("call", STREAMED, ids=["whole", "streamed"])
@pytest.mark.parametrize(("status", "side"), [("413 Too Large", "client"), ("503 Busy", "server")])
def test_an_error_of_the_container_is_a_model_error_with_its_words(
    call: Callable[[Any], Any], status: str, side: str
) -> None:
    async def container(exchange: Exchange) -> None:
        await exchange.answer("application/json", [b'{"error": "no"}'], status=status)

    error = refused(container, call)
    code = int(status[:3])
    assert (error["ResponseMetadata"]["HTTPStatusCode"], error["Error"]["Code"]) == (424, "ModelError")
    assert error["Error"]["Message"].startswith(f'Received {side} error ({code}) from primary with message "')
    assert (error["OriginalStatusCode"], error["OriginalMessage"]) == (code, '{"error": "no"}')
    assert error["LogStreamArn"] == f"arn:aws:logs:{REGION}:123456789012:log-group:/aws/sagemaker/Endpoints/tts"


@pytest.mark.parametrize("call", STREAMED, ids=["whole", "streamed"])
def test_a_container_that_does_not_answer_in_time_is_a_model_error_without_a_status(call: Callable[[Any], Any]) -> None:
    error = refused(lambda exchange: exchange.hung_up(), call, limits=Limits(invocation_s=0.05))
    assert (error["Error"]["Code"], error["OriginalStatusCode"]) == ("ModelError", 0)
    assert "timed out" in error["OriginalMessage"]


@pytest.mark.parametrize("call", STREAMED, ids=["whole", "streamed"])
def test_a_container_that_has_gone_is_a_model_error_without_a_status(call: Callable[[Any], Any]) -> None:
    async def scenario() -> None:
        async with AsyncExitStack() as stack:
            async with http_container(speak) as url:
                endpoint = await stack.enter_async_context(local_endpoint(url))
            client = runtime(endpoint)
            with pytest.raises(ClientError) as caught:
                await asyncio.to_thread(call, client)
            assert caught.value.response["OriginalStatusCode"] == 0

    asyncio.run(scenario())


async def break_off(exchange: Exchange) -> None:
    await exchange.answer("audio/wav", [b"abc"], whole=False)


def test_a_whole_answer_that_breaks_off_is_a_model_error() -> None:
    error = refused(break_off, STREAMED[0])
    assert (error["Error"]["Code"], error["OriginalStatusCode"]) == ("ModelError", 0)


@pytest.mark.parametrize("cause", ["broken", "late"])
def test_a_stream_that_breaks_off_or_takes_too_long_ends_with_a_model_stream_error(cause: str) -> None:
    async def stall(exchange: Exchange) -> None:
        exchange.writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n")
        await exchange.hung_up()

    heard: list[bytes] = []

    def call(client: Any) -> None:
        for event in STREAMED[1](client)["Body"]:
            heard.append(event["PayloadPart"]["Bytes"])

    reply, limits = (break_off, None) if cause == "broken" else (stall, Limits(response_stream_s=0.2))
    with pytest.raises(EventStreamError, match="ModelStreamError"):
        against(reply, call, limits=limits)
    assert b"".join(heard) == b"abc"


def test_a_caller_that_hangs_up_closes_the_containers_connection() -> None:
    async def scenario() -> None:
        left = asyncio.Event()

        async def container(exchange: Exchange) -> None:
            exchange.writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n")
            await exchange.hung_up()
            left.set()

        async with http_container(container) as url, local_endpoint(url) as endpoint:
            response = await asyncio.to_thread(STREAMED[1], runtime(endpoint))
            response["Body"].close()
            await left.wait()

    asyncio.run(scenario())


def test_twenty_streams_run_at_once() -> None:
    async def scenario() -> None:
        here, everyone = 0, asyncio.Event()

        async def container(exchange: Exchange) -> None:
            nonlocal here
            here += 1
            if here == 20:
                everyone.set()
            await everyone.wait()
            await speak(exchange)

        async with http_container(container) as url, local_endpoint(url) as endpoint:
            client = runtime(endpoint)
            loop = asyncio.get_running_loop()
            with ThreadPoolExecutor(20) as threads:
                calls = [loop.run_in_executor(threads, lambda: played(STREAMED[1](client))) for _ in range(20)]
                answers = await asyncio.gather(*calls)
        assert [b"".join(parts) for parts in answers] == [AUDIO] * 20

    asyncio.run(scenario())


def test_an_unknown_endpoint_or_variant_is_a_validation_error() -> None:
    error = refused(speak, lambda client: client.invoke_endpoint(EndpointName="nobody", Body=b""))
    assert error["ResponseMetadata"]["HTTPStatusCode"] == 400
    assert error["Error"] == {
        "Code": "ValidationError",
        "Message": "Endpoint nobody of account 123456789012 not found.",
    }
    error = refused(speak, lambda client: client.invoke_endpoint(EndpointName="tts", Body=b"", TargetVariant="Blue"))
    assert error["Error"]["Code"] == "ValidationError"


def test_a_body_past_the_services_limit_is_a_validation_error() -> None:
    error = refused(speak, lambda client: client.invoke_endpoint(EndpointName="tts", Body=bytes(MAX_BODY_BYTES + 1)))
    assert error["Error"]["Code"] == "ValidationError"
    assert f"less than or equal to {MAX_BODY_BYTES}" in error["Error"]["Message"]
    assert against(speak, lambda client: client.invoke_endpoint(EndpointName="tts", Body=bytes(MAX_BODY_BYTES)))


def test_the_endpoint_is_not_found_before_its_container_answers_the_ping() -> None:
    async def scenario() -> None:
        asked, ready = asyncio.Event(), False

        async def container(exchange: Exchange) -> None:
            if not exchange.head.startswith("GET /ping "):
                await speak(exchange)
                return
            asked.set()
            await exchange.answer("text/plain", [b""], status="200 OK" if ready else "503 Loading")

        async with http_server(container) as server, AsyncExitStack() as stack:
            port = free_port()
            entering = asyncio.create_task(stack.enter_async_context(local_endpoint(server.url, http_port=port)))
            await asked.wait()
            client = boto3.client(
                "sagemaker-runtime",
                endpoint_url=f"http://127.0.0.1:{port}",
                region_name=REGION,
                aws_access_key_id="test",
                aws_secret_access_key="test",
            )
            with pytest.raises(ClientError, match="not found"):
                await asyncio.to_thread(STREAMED[0], client)
            ready = True
            await entering
            await asyncio.to_thread(STREAMED[0], client)

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("credentials", "code"),
    [({"secret": "wrong"}, "InvalidSignatureException"), ({"key_id": "nobody"}, "UnrecognizedClientException")],
)
def test_wrong_credentials_are_refused(credentials: dict[str, str], code: str) -> None:
    error = refused(speak, STREAMED[0], **credentials)
    assert (error["ResponseMetadata"]["HTTPStatusCode"], error["Error"]["Code"]) == (403, code)


def test_any_region_is_served() -> None:
    assert against(speak, STREAMED[0], region="ap-southeast-2")


def signed_headers(endpoint: LocalEndpoint, body: bytes) -> tuple[str, dict[str, str]]:
    url = f"{endpoint.http_url}/endpoints/tts/invocations"
    request = AWSRequest("POST", url, {"content-type": "application/json"}, body)
    SigV4Auth(boto3.Session("test", "test").get_credentials(), "sagemaker", REGION).add_auth(request)
    return url, dict(request.headers.items())


def test_an_unsigned_or_altered_request_is_refused() -> None:
    async def scenario() -> None:
        async with http_container(speak) as url, local_endpoint(url) as endpoint, httpx.AsyncClient() as client:
            target, headers = signed_headers(endpoint, b"{}")
            assert (await client.post(target, headers=headers, content=b"{}")).status_code == 200
            for change, body, error in (
                ({"Authorization": ""}, b"{}", "MissingAuthenticationTokenException"),
                ({}, b'{"text": "else"}', "InvalidSignatureException"),
                ({"content-type": "text/plain"}, b"{}", "InvalidSignatureException"),
                (
                    {"x-amz-content-sha256": hashlib.sha256(b"else").hexdigest()},
                    b"{}",
                    "InvalidSignatureException",
                ),
                ({"X-Amz-Date": f"{datetime.now(UTC) - timedelta(minutes=1):%Y%m%dT%H%M%SZ}"}, b"{}", "InvalidSign"),
            ):
                response = await client.post(target, headers={**headers, **change}, content=body)
                assert response.status_code == 403
                assert response.headers["x-amzn-errortype"].startswith(error)

    asyncio.run(scenario())


def test_an_endpoint_in_a_thread_serves_code_without_a_loop() -> None:
    async def nobody(socket: object) -> None: ...

    async def scenario() -> None:
        async with websocket_container(nobody) as url:
            await asyncio.to_thread(in_thread, url)

    def in_thread(url: str) -> None:
        with endpoint_in_thread({"first": url, "second": url}) as endpoint:
            for name, expected in (("first", "ModelError"), ("second", "ModelError"), ("tts", "ValidationError")):
                with pytest.raises(ClientError) as caught:
                    runtime(endpoint).invoke_endpoint(EndpointName=name, Body=b"")
                assert caught.value.response["Error"]["Code"] == expected

    asyncio.run(scenario())


def test_a_container_that_never_comes_into_service_is_a_timeout() -> None:
    async def scenario() -> None:
        async with local_endpoint("http://127.0.0.1:9", in_service_timeout_s=0.1):
            pass

    with pytest.raises(TimeoutError):
        asyncio.run(scenario())
