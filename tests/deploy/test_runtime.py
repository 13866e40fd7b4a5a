"""The hello, over a real bidirectional stream: HTTP/2 with TLS and signatures, on loopback."""

import asyncio
import json

import pytest
from websockets.asyncio.server import ServerConnection

from deploy.errors import DeployError
from deploy.runtime import HELLO, require_answer
from tests.client.endpoints import deployed, socket_server
from tests.deploy.fake_runtime import Speaker


async def hello(answer) -> tuple[list[str], float]:
    """What a container was sent, and how many seconds of audio came from it."""
    said = []

    async def serve_one(socket: ServerConnection) -> None:
        async for message in socket:
            fields = json.loads(message)
            if "text" in fields:
                said.append(fields["text"])
                await answer(socket, fields["request_id"])

    async with socket_server(serve_one) as container, deployed(container) as tts:
        return said, await asyncio.to_thread(require_answer, tts.client, "tts")


async def speak(socket: ServerConnection, request_id: str) -> None:
    await socket.send(json.dumps({"type": "synthesis_start", "request_id": request_id}))
    await socket.send(bytes(48_000))
    done = {"type": "synthesis_complete", "request_id": request_id, "total_duration_s": 1.0, "elapsed_s": 0.1}
    await socket.send(json.dumps(done))


async def refuse(socket: ServerConnection, request_id: str) -> None:
    error = {"type": "error", "request_id": request_id, "message": "The engine is busy.", "code": "queue_saturated"}
    await socket.send(json.dumps(error))


async def vanish(socket: ServerConnection, request_id: str) -> None:
    await socket.close(1011)


def test_a_hello_over_a_bidirectional_stream_is_heard():
    assert asyncio.run(hello(speak)) == ([HELLO], 1.0)


@pytest.mark.parametrize(("answer", "says"), [(refuse, "The engine is busy"), (vanish, "does not speak")])
def test_an_endpoint_that_refuses_or_hangs_up_does_not_answer(answer, says):
    with pytest.raises(DeployError, match=says):
        asyncio.run(hello(answer))


def test_the_client_is_closed_whatever_comes():
    heard, silent = Speaker(), Speaker(failure=TimeoutError())
    assert require_answer(heard, "tts") == 1.525
    with pytest.raises(DeployError, match="nothing came within"):
        require_answer(silent, "tts")
    assert heard.closed
    assert silent.closed
