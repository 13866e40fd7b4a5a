"""The agent with its real speech sessions, over both transports, against the product's routes on real sockets."""

import asyncio
import json
from base64 import b64decode

import httpx
import pytest

from agent.app import create_app
from agent.reader import SAMPLE, ReaderModel
from agent.request import parse_request
from agent.settings import load_settings
from agent.speech import SpeechSource
from scripts.local_endpoint.endpoint import endpoint_in_thread
from scripts.running import bare_running
from serve_app.client.errors import Unreachable
from serve_app.errors import BadRequest
from serve_app.protocol.sse import SseDecoder
from tests.agent.fakes import ScriptedModel
from tests.client.endpoints import socket_server
from tests.serving import served

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def server():
    with bare_running() as running:
        yield running.http


@pytest.fixture(scope="module")
def endpoint(server):
    with endpoint_in_thread(server) as running:
        yield running


@pytest.fixture(params=["websocket", "bidirectional"])
def settings(request, server, monkeypatch):
    """Settings of an agent that speaks over one of the transports."""
    if request.param == "websocket":
        return load_settings({}, {"tts_endpoint": server}, local=True)
    endpoint = request.getfixturevalue("endpoint")
    for name in ("AWS_PROFILE", "AWS_ENDPOINT_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SSL_CERT_FILE", str(endpoint.certificate))
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", endpoint.credentials.access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", endpoint.credentials.secret_key)
    given = {"tts_endpoint": "tts", "tts_endpoint_uri": endpoint.h2_url, "region": "eu-west-1"}
    return load_settings({}, given, local=True)


def app_of(settings, model):
    return create_app(settings, model, SpeechSource(settings).open)


async def events_of(url, **payload):
    async with httpx.AsyncClient(timeout=30) as client:
        answer = await client.post(f"{url}/invocations", json={"prompt": "Hi", **payload})
    assert answer.status_code == 200
    return [event.json() for event in SseDecoder().feed(answer.content)]


def audio_of(events):
    return b"".join(b64decode(event["data"]) for event in events if event["type"] == "audio_chunk")


def of_type(events, kind):
    return [event for event in events if event["type"] == kind]


async def test_an_answer_is_whole_in_both_modes(settings):
    with served(app_of(settings, ReaderModel(tokens_per_second=0))) as url:
        for mode in ("bidi", "batch"):
            events = await events_of(url, mode=mode)
            assert "".join(event["text"] for event in of_type(events, "text_delta")) == SAMPLE
            (start,), (end,) = of_type(events, "audio_stream_start"), of_type(events, "audio_stream_end")
            assert (start["format"], start["sample_rate"]) == ("pcm16", 24000)
            assert len(of_type(events, "audio_chunk")) == end["total_chunks"]
            assert len(audio_of(events)) == pytest.approx(end["duration_s"] * 48_000, abs=100)
            assert events[-1]["type"] == "agent_end"


async def test_audio_is_heard_while_the_model_still_writes(settings):
    more = asyncio.Event()
    model = ScriptedModel(["The first sentence is here. The", more, " second one comes later."])
    with served(app_of(settings, model)) as url:
        decoder, seen = SseDecoder(), []
        async with (
            httpx.AsyncClient(timeout=30) as client,
            client.stream("POST", f"{url}/invocations", json={"prompt": "Hi"}) as answer,
        ):
            async for data in answer.aiter_bytes():
                for event in decoder.feed(data):
                    seen.append(event.json())
                    if seen[-1]["type"] == "audio_chunk" and not more.is_set():
                        assert "later" not in json.dumps(of_type(seen, "text_delta"))
                        model.loop.call_soon_threadsafe(more.set)
    assert seen[-1]["type"] == "agent_end"


async def test_a_refusal_of_the_speech_server_is_the_one_error(settings):
    with served(app_of(settings, ReaderModel(tokens_per_second=0))) as url:
        events = await events_of(url, voice="nobody")
    assert of_type(events, "error") == events[-1:]
    assert "unknown voice 'nobody'" in events[-1]["message"]


@pytest.mark.parametrize("format", ["mp3", "ulaw"])
async def test_sentences_in_another_format_are_one_stream(server, format):
    settings = load_settings({}, {"tts_endpoint": server}, local=True)
    with served(app_of(settings, ReaderModel(tokens_per_second=0))) as url:
        events = await events_of(url, format=format)
    assert events[-1]["type"] == "agent_end"
    seconds = of_type(events, "audio_stream_end")[0]["duration_s"]
    rate = {"mp3": 6000, "ulaw": 8000}[format]
    assert len(audio_of(events)) == pytest.approx(seconds * rate, rel=0.1)


async def test_twenty_turns_at_once_are_each_whole(server):
    settings = load_settings({}, {"tts_endpoint": server}, local=True)
    with served(app_of(settings, ReaderModel("One is here. Two is there.", tokens_per_second=0))) as url:
        turns = await asyncio.gather(*(events_of(url, request_id=f"r{number}") for number in range(20)))
    for number, events in enumerate(turns):
        assert {event["request_id"] for event in events} == {f"r{number}"}
        assert events[-1]["type"] == "agent_end", events[-1]
        assert audio_of(events) == audio_of(turns[0])


async def test_a_speech_server_that_is_not_there_is_one_error():
    settings = load_settings({}, {"tts_endpoint": "http://127.0.0.1:1"}, local=True)
    with served(app_of(settings, ReaderModel(tokens_per_second=5))) as url:
        events = await events_of(url)
    assert events[-1] == {**events[-1], "type": "error", "message": "speech: no server answers there"}


async def test_a_speech_server_that_dies_in_the_middle_ends_the_model_and_is_one_error():
    async def die(socket):
        request_id = json.loads(await socket.recv())["request_id"]
        await socket.send(json.dumps({"type": "synthesis_start", "request_id": request_id}))
        await socket.send(bytes(4800))
        socket.transport.abort()

    model = ScriptedModel(["One is here. Two", asyncio.Event()])
    async with socket_server(die) as address:
        with served(app_of(load_settings({}, {"tts_endpoint": address}, local=True), model)) as url:
            events = await events_of(url)
    assert [event["type"] for event in events][-2:] == ["audio_chunk", "error"]
    assert "connection ended" in events[-1]["message"]
    assert model.closed == 1


def request_for(endpoint):
    return parse_request({"prompt": "Hi", "endpoint": endpoint})


async def test_a_caller_may_not_have_the_agent_connect_to_an_address(server):
    source = SpeechSource(load_settings({}, {"tts_endpoint": server}, local=True))
    source.open(request_for(server))
    for address in ("http://127.0.0.1:1", "ws://10.0.0.1:80", "tts-1"):
        with pytest.raises(BadRequest, match="endpoint"):
            source.open(request_for(address))
    named = SpeechSource(load_settings({}, {"tts_endpoint": "tts-1", "region": "eu-west-1"}, local=True))
    named.open(request_for("tts-2"))
    for name in ("http://127.0.0.1:1", "-tts", "a" * 64, "tts/../x"):
        with pytest.raises(BadRequest, match="endpoint"):
            named.open(request_for(name))


async def test_a_session_that_cannot_be_had_says_so():
    source = SpeechSource(load_settings({}, {"tts_endpoint": "http://127.0.0.1:1"}, local=True))
    async with source.open(parse_request({"prompt": "Hi"})) as speech:
        with pytest.raises(Unreachable):
            await speech.connect()
