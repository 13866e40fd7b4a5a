"""Bidirectional streams through the local endpoint, called by the real HTTP/2 SDK."""

import asyncio
from contextlib import AsyncExitStack, suppress

import pytest
from aws_sdk_sagemaker_runtime_http2.models import InputValidationError, ModelError, ModelStreamError
from websockets.asyncio.server import ServerConnection
from websockets.exceptions import ConnectionClosed

from scripts.local_endpoint.bidirectional import Account
from scripts.local_endpoint.endpoint import local_endpoint
from scripts.local_endpoint.settings import Faults, Limits
from tests.scripts.local_containers import Caller, Talk, caller, echo, websocket_container

# A refused stream leaves a task behind in the SDK, which cannot be closed and complains when it is collected.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


async def to_the_end(talk: Talk) -> None:
    while await talk.receive():
        pass


def test_a_part_is_a_frame_of_its_type_and_comes_back_as_one() -> None:
    frames: list[str | bytes] = []

    async def container(socket: ServerConnection) -> None:
        async for frame in socket:
            frames.append(frame)
            await socket.send(frame)

    async def scenario() -> None:
        async with websocket_container(container) as url, local_endpoint(url) as endpoint, caller(endpoint) as sdk:
            talk = await sdk.talk()
            await talk.send("grüß dich".encode(), "UTF8", "COMPLETE")
            await talk.send(b"\x00\xff", "BINARY", "COMPLETE")
            await talk.send(b'{"text": "untyped"}')
            await talk.send(b"", "UTF8")
            parts = [await talk.receive() for _ in range(4)]
            await talk.close()
            assert await talk.receive() is None
        assert frames == ["grüß dich", b"\x00\xff", b'{"text": "untyped"}', ""]
        assert parts == [
            ("UTF8", "grüß dich".encode()),
            ("BINARY", b"\x00\xff"),
            ("BINARY", b'{"text": "untyped"}'),
            ("UTF8", b""),
        ]

    asyncio.run(scenario())


def test_all_binary_delivers_text_in_binary_frames() -> None:
    async def scenario() -> None:
        async with (
            websocket_container(echo) as url,
            local_endpoint(url, all_binary=True) as endpoint,
            caller(endpoint) as sdk,
        ):
            talk = await sdk.talk()
            await talk.send(b"typed", "UTF8")
            assert await talk.receive() == ("BINARY", b"typed")
            await talk.close()

    asyncio.run(scenario())


def test_partial_parts_are_one_message_even_cut_within_a_character() -> None:
    async def scenario() -> None:
        async with websocket_container(echo) as url, local_endpoint(url) as endpoint, caller(endpoint) as sdk:
            talk = await sdk.talk()
            text = "grüß dich".encode()
            await talk.send(text[:3], "UTF8", "PARTIAL")
            await talk.send(text[3:4], "UTF8", "PARTIAL")
            await talk.send(text[4:], "UTF8", "COMPLETE")
            await talk.send(b"next", "UTF8", "COMPLETE")
            assert [await talk.receive(), await talk.receive()] == [("UTF8", text), ("UTF8", b"next")]
            await talk.close()

    asyncio.run(scenario())


def test_a_part_of_a_megabyte_passes_both_ways() -> None:
    async def scenario() -> None:
        async with websocket_container(echo) as url, local_endpoint(url) as endpoint, caller(endpoint) as sdk:
            talk = await sdk.talk()
            data = bytes(at * 7 % 256 for at in range(1_000_003))
            await talk.send(data)
            assert await talk.receive() == ("BINARY", data)
            await talk.close()

    asyncio.run(scenario())


def test_the_container_may_speak_first_and_both_speak_at_once() -> None:
    async def container(socket: ServerConnection) -> None:
        await socket.send("welcome")
        heard = await socket.recv()
        await socket.send(f"heard {heard!r}")
        await socket.send(b"unasked")
        await socket.wait_closed()

    async def scenario() -> None:
        async with websocket_container(container) as url, local_endpoint(url) as endpoint, caller(endpoint) as sdk:
            talk = await sdk.talk()
            assert await talk.receive() == ("UTF8", b"welcome")
            await talk.send(b"hello", "UTF8")
            assert await talk.receive() == ("UTF8", b"heard 'hello'")
            assert await talk.receive() == ("BINARY", b"unasked")
            await talk.close()
            assert await talk.receive() is None

    asyncio.run(scenario())


def test_the_callers_path_and_query_reach_the_container() -> None:
    asked: list[str] = []

    async def container(socket: ServerConnection) -> None:
        assert socket.request is not None
        asked.append(socket.request.path)

    async def scenario() -> None:
        async with websocket_container(container) as url, local_endpoint(url) as endpoint, caller(endpoint) as sdk:
            for fields in ({}, {"model_invocation_path": "v1/speech", "model_query_string": "voice=af&speed=1"}):
                talk = await sdk.talk(**fields)
                assert await talk.receive() is None
                await talk.close()
        assert asked == ["/invocations-bidirectional-stream", "/v1/speech?voice=af&speed=1"]

    asyncio.run(scenario())


def test_the_end_of_the_input_closes_the_containers_socket_and_the_sdk_sends_the_end_frame() -> None:
    codes: list[int | None] = []

    async def container(socket: ServerConnection) -> None:
        async for frame in socket:
            await socket.send(frame)
        codes.append(socket.close_code)

    async def scenario() -> None:
        ended: asyncio.Queue[Account] = asyncio.Queue()
        faults = Faults(demand_end_frame=True)
        async with (
            websocket_container(container) as url,
            local_endpoint(url, faults=faults, ended=ended.put_nowait) as endpoint,
            caller(endpoint) as sdk,
        ):
            talk = await sdk.talk()
            await talk.send(b"one", "UTF8")
            assert await talk.receive() == ("UTF8", b"one")
            await talk.close()
            await talk.close()
            assert await talk.receive() is None
            assert await ended.get() == Account("tts", parts_received=1, parts_sent=1, end_frame=True)
        assert codes == [1000]

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("code", "reason", "error_code", "message"),
    [
        (1011, "the model broke", "1011", "the model broke"),
        (4000, "", "4000", "code 4000"),
        (1001, "bye", "1001", "bye"),
    ],
)
def test_a_close_with_another_code_than_1000_is_a_model_stream_error(
    code: int, reason: str, error_code: str, message: str
) -> None:
    async def container(socket: ServerConnection) -> None:
        await socket.send(b"audio")
        await socket.close(code, reason)

    async def scenario() -> None:
        async with websocket_container(container) as url, local_endpoint(url) as endpoint, caller(endpoint) as sdk:
            talk = await sdk.talk()
            assert await talk.receive() == ("BINARY", b"audio")
            with pytest.raises(ModelStreamError, match=message) as caught:
                await talk.receive()
            assert caught.value.error_code == error_code
            await talk.close()

    asyncio.run(scenario())


def test_a_container_that_dies_is_a_broken_stream() -> None:
    async def container(socket: ServerConnection) -> None:
        await socket.send(b"audio")
        socket.transport.abort()

    async def scenario() -> None:
        async with websocket_container(container) as url, local_endpoint(url) as endpoint, caller(endpoint) as sdk:
            talk = await sdk.talk()
            with pytest.raises(ModelStreamError) as caught:
                await to_the_end(talk)
            assert caught.value.error_code == "StreamBroken"
            await talk.close()

    asyncio.run(scenario())


def test_an_error_frame_of_the_containers_is_that_error_and_text_that_only_mentions_one_is_not() -> None:
    harmless = '{"text": "a ModelStreamError is what you say"}'

    async def container(socket: ServerConnection) -> None:
        await socket.send(harmless)
        await socket.send('{"ModelStreamError": {"ErrorCode": "OutOfMemory", "Message": "no room"}}')
        await socket.wait_closed()

    async def scenario() -> None:
        async with websocket_container(container) as url, local_endpoint(url) as endpoint, caller(endpoint) as sdk:
            talk = await sdk.talk()
            assert await talk.receive() == ("UTF8", harmless.encode())
            with pytest.raises(ModelStreamError, match="no room") as caught:
                await talk.receive()
            assert caught.value.error_code == "OutOfMemory"
            await talk.close()

    asyncio.run(scenario())


def test_what_the_service_refuses_is_the_sdks_exception() -> None:
    async def scenario() -> None:
        async with websocket_container(echo) as url, local_endpoint(url) as endpoint, caller(endpoint) as sdk:
            with pytest.raises(InputValidationError, match=r"Endpoint nobody of account \d+ not found\."):
                await sdk.talk("nobody")
            with pytest.raises(InputValidationError, match="must not begin with a slash"):
                await sdk.talk(model_invocation_path="/v1/speech")
            with pytest.raises(InputValidationError, match="Variant Blue"):
                await sdk.talk(target_variant="Blue")
            with pytest.raises(ModelError) as caught:
                await sdk.talk(model_invocation_path="refused")
            assert caught.value.original_status_code == 403
            assert "not for you" not in str(caught.value.message)
            assert (await sdk.talk(target_variant="AllTraffic")) is not None

    asyncio.run(scenario())


def test_a_container_that_has_gone_opens_no_stream() -> None:
    async def scenario() -> None:
        async with AsyncExitStack() as stack:
            async with websocket_container(echo) as url:
                endpoint = await stack.enter_async_context(local_endpoint(url))
            sdk = await stack.enter_async_context(caller(endpoint))
            with pytest.raises(ModelError) as caught:
                await sdk.talk()
            assert caught.value.original_status_code == 0

    asyncio.run(scenario())


def test_a_wrong_secret_opens_no_stream() -> None:
    async def scenario() -> None:
        async with websocket_container(echo) as url, local_endpoint(url) as endpoint, caller(endpoint, "wrong") as sdk:
            with pytest.raises(Exception, match="(?i)signature"):
                await sdk.talk()

    asyncio.run(scenario())


@pytest.mark.parametrize("clients", [1, 5])
def test_twenty_streams_at_once_keep_their_own_order(clients: int) -> None:
    async def scenario() -> None:
        async with websocket_container(echo) as url, local_endpoint(url) as endpoint:

            async def one_client(number: int) -> None:
                async with caller(endpoint) as sdk, asyncio.TaskGroup() as tasks:
                    for stream in range(20 // clients):
                        tasks.create_task(one_stream(sdk, f"{number}.{stream}"))

            async def one_stream(sdk: Caller, name: str) -> None:
                talk = await sdk.talk()
                sent = [f"{name}.{at}".encode() * 500 for at in range(10)]
                for data in sent:
                    await talk.send(data, "UTF8")
                assert [await talk.receive() for _ in sent] == [("UTF8", data) for data in sent]
                await talk.close()
                assert await talk.receive() is None

            async with asyncio.TaskGroup() as tasks:
                for number in range(clients):
                    tasks.create_task(one_client(number))

    asyncio.run(scenario())


def test_a_connection_cut_on_purpose_ends_after_so_many_parts() -> None:
    gone = asyncio.Event()

    async def container(socket: ServerConnection) -> None:
        with suppress(ConnectionClosed):
            for at in range(100):
                await socket.send(b"%d" % at)
        await socket.wait_closed()
        gone.set()

    async def scenario() -> None:
        async with websocket_container(container) as url, local_endpoint(url) as endpoint, caller(endpoint) as sdk:
            endpoint.faults.cut_after_parts = 3
            talk = await sdk.talk()
            assert [await talk.receive() for _ in range(4)] == [*(("BINARY", b"%d" % at) for at in range(3)), None]
            await gone.wait()
            endpoint.faults.cut_after_parts = None
            again = await sdk.talk()
            assert [await again.receive() for _ in range(4)] == [("BINARY", b"%d" % at) for at in range(4)]

    asyncio.run(scenario())


def test_a_stream_past_its_time_is_ended_with_an_error() -> None:
    async def scenario() -> None:
        async with (
            websocket_container(echo) as url,
            local_endpoint(url, limits=Limits(connection_s=0.05)) as endpoint,
            caller(endpoint) as sdk,
        ):
            talk = await sdk.talk()
            with pytest.raises(ModelStreamError) as caught:
                await talk.receive()
            assert caught.value.error_code == "ModelInvocationTimeExceeded"
            endpoint.limits.connection_s = 60.0
            again = await sdk.talk()
            await again.send(b"again")
            assert await again.receive() == ("BINARY", b"again")

    asyncio.run(scenario())
