"""The whole chain with real weights: agent, local SageMaker endpoint, running stack."""

import asyncio
import json
from base64 import b64decode

import httpx
import pytest

from deploy.check import BYTES_PER_SECOND, Target, Wishes, check
from scripts.compare_modes import ask, local_agent
from scripts.local_endpoint.endpoint import endpoint_in_thread
from serve_app.protocol.sse import SseDecoder
from tests.client.endpoints import client_of


@pytest.fixture(scope="module")
def endpoint(stack):
    with endpoint_in_thread(stack.http) as running:
        yield running


@pytest.fixture
def runtime(endpoint):
    import boto3

    return boto3.client(
        "sagemaker-runtime",
        endpoint_url=endpoint.http_url,
        region_name="eu-west-1",
        aws_access_key_id=endpoint.credentials.access_key,
        aws_secret_access_key=endpoint.credentials.secret_key,
    )


def test_every_promise_of_the_check_is_kept(endpoint, runtime):
    """Three sentences of the published sizes on one session among them, over the real SDK clients."""
    target = Target("tts", runtime, client_of(endpoint))

    async def broken() -> list[str]:
        wishes = Wishes(sessions=2, utterances=2, ttfa_p95_s=60)
        return [f"{found.promise}: {found.seen}" async for found in check(target, wishes) if not found.kept]

    assert asyncio.run(broken()) == []


def test_the_agent_speaks_while_it_writes_and_is_understood(stack, listener, tmp_path):
    text = tmp_path / "answer.txt"
    text.write_text("Yes, of course. The train to Boston leaves at nine. It takes about four hours.")
    with local_agent(stack.http, "--reader-text", str(text), "--tokens-per-second", "40") as agent:
        answers = {mode: ask(agent.http, "When does the train leave?", mode, 0, 0) for mode in ("bidi", "batch")}
        answer = httpx.post(f"{agent.http}/invocations", json={"prompt": "When does the train leave?"}, timeout=60)
        assert httpx.get(f"{agent.http}/ping").json()["status"] == "Healthy"
    assert [found.error for found in answers.values()] == ["", ""]
    events = [event.json() for event in SseDecoder().feed(answer.content)]
    audio = b"".join(b64decode(event["data"]) for event in events if event["type"] == "audio_chunk")
    heard = " ".join(listener.words(audio))
    assert "train to boston" in heard
    assert "4 hours" in heard.replace("four", "4")
    assert len(audio) / BYTES_PER_SECOND == pytest.approx(events[-2]["duration_s"], abs=0.01)
    assert text.read_text() not in json.dumps(agent.lines)
