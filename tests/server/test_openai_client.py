"""The official `openai` package against a real socket, used as its documentation says."""

import asyncio
import base64
import threading
from contextlib import contextmanager

import httpx2
import pytest
import uvicorn
from openai import (
    APIConnectionError,
    APIStatusError,
    AsyncOpenAI,
    BadRequestError,
    InternalServerError,
    NotFoundError,
    OpenAI,
)

from scripts.fake_app import bare
from serve_app.engine.fake import FakeEngine
from serve_app.errors import EngineUnavailable, Internal
from serve_app.protocol.openai import MODELS
from serve_app.protocol.sse import SseDecoder
from tests.audio.test_encoders import decoded
from tests.fakes import app_over

THREE = "One is here. Two is here. Three is here."
HANG_S = 20


@contextmanager
def listening(app):
    """The base URL of `app` behind uvicorn on a port of its own."""
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_config=None))
    started = threading.Event()
    startup = server.startup

    async def announced(sockets=None):
        await startup(sockets)
        started.set()

    server.startup = announced
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    assert started.wait(HANG_S)
    port = server.servers[0].sockets[0].getsockname()[1]
    try:
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        server.should_exit = True
        thread.join(HANG_S)


def client_of(url, kind=OpenAI):
    return kind(base_url=url, api_key="none is asked for", max_retries=0, timeout=HANG_S)


@pytest.fixture(scope="module")
def url():
    with listening(bare()) as base_url:
        yield base_url


@pytest.fixture(scope="module")
def client(url):
    with client_of(url) as opened:
        yield opened


def speech_of(client, **fields):
    return client.audio.speech.create(**{"model": "tts-1", "voice": "coral", "input": THREE, **fields})


@pytest.mark.parametrize("format", ["mp3", "opus", "aac", "flac", "wav"])
def test_an_answer_written_to_a_file_plays(client, format, tmp_path):
    file = tmp_path / f"speech.{format}"
    speech_of(client, response_format=format).write_to_file(file)
    samples, rate = decoded(file.read_bytes())
    pcm = speech_of(client, response_format="pcm").content
    assert len(samples) / rate == pytest.approx(len(pcm) / 48_000, abs=0.1)


def test_the_streaming_response_hands_audio_over_as_it_comes(client):
    whole = speech_of(client, response_format="pcm").content
    with client.audio.speech.with_streaming_response.create(
        model="gpt-4o-mini-tts", voice="marin", input=THREE, response_format="pcm", instructions="Sound happy."
    ) as response:
        assert response.headers["content-type"] == "audio/pcm;rate=24000"
        assert response.request_id
        parts = list(response.iter_bytes())
    assert b"".join(parts) == whole
    assert len(parts) > 1


def test_the_first_bytes_reach_the_client_while_the_rest_is_not_yet_synthesized():
    engine = FakeEngine(gated=True)
    engine.allow(1)
    with (
        listening(app_over(engine)) as url,
        client_of(url) as client,
        client.audio.speech.with_streaming_response.create(
            model="tts-1", voice="coral", input=THREE, response_format="pcm"
        ) as response,
    ):
        first = next(response.iter_bytes())
        assert first
        assert len(engine.finished) == 1


def test_events_decode_to_the_answer_in_audio(client):
    with client.audio.speech.with_streaming_response.create(
        model="gpt-4o-mini-tts", voice="coral", input=THREE, response_format="mp3", stream_format="sse"
    ) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        decoder = SseDecoder()
        events = [event.json() for part in response.iter_bytes() for event in decoder.feed(part)]
    *deltas, done = events
    assert {event["type"] for event in deltas} == {"speech.audio.delta"}
    assert done["type"] == "speech.audio.done"
    assert set(done["usage"]) == {"input_tokens", "output_tokens", "total_tokens"}
    audio = b"".join(base64.b64decode(event["audio"], validate=True) for event in deltas)
    assert audio == speech_of(client).content


def test_the_async_client_streams_audio_and_events_side_by_side(url):
    async def streamed(client, stream_format):
        async with client.audio.speech.with_streaming_response.create(
            model="tts-1", voice="coral", input=THREE, response_format="pcm", stream_format=stream_format
        ) as response:
            return b"".join([part async for part in response.iter_bytes()])

    async def scenario():
        async with asyncio.timeout(HANG_S), client_of(url, AsyncOpenAI) as client:
            return await asyncio.gather(*(streamed(client, kind) for kind in ("audio", "sse", "audio", "sse")))

    audio, events, again, more_events = asyncio.run(scenario())
    assert audio == again
    assert events == more_events
    decoded_events = [event.json() for event in SseDecoder().feed(events)]
    assert b"".join(base64.b64decode(event.get("audio", "")) for event in decoded_events) == audio


def test_a_custom_voice_is_named_by_an_object_with_its_id(client):
    assert speech_of(client, voice={"id": "af_bella"}).content == speech_of(client, voice="af_bella").content


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"voice": "af_hart"}, "voice"),
        ({"input": " "}, "input"),
        ({"speed": 5}, "speed"),
        ({"response_format": "midi"}, "response_format"),
        ({"stream_format": "zip"}, "stream_format"),
    ],
)
def test_a_refused_field_is_a_bad_request_error_that_names_it(client, fields, param):
    with pytest.raises(BadRequestError) as caught:
        speech_of(client, **fields)
    assert (caught.value.param, caught.value.type) == (param, "invalid_request_error")
    assert caught.value.code
    assert caught.value.request_id
    assert caught.value.body["message"] in str(caught.value)


def test_too_long_an_input_keeps_its_status(client):
    with pytest.raises(APIStatusError) as caught:
        speech_of(client, input="x" * 50_001)
    assert (caught.value.status_code, caught.value.code) == (413, "text_too_long")


def test_an_unknown_model_is_a_not_found_error(client):
    with pytest.raises(NotFoundError) as caught:
        speech_of(client, model="gpt-4o")
    assert caught.value.code == "model_not_found"
    with pytest.raises(NotFoundError):
        client.models.retrieve("gpt-4o")


def test_a_resource_that_is_not_here_is_a_not_found_error(client):
    with pytest.raises(NotFoundError) as caught:
        client.chat.completions.create(model="kokoro", messages=[{"role": "user", "content": "Hi."}])
    assert caught.value.code == "unknown_url"


def test_models_are_listed_and_retrieved(client):
    listed = client.models.list()
    assert [model.id for model in listed] == list(MODELS)
    assert client.models.retrieve("kokoro") == listed.data[0]


@pytest.mark.parametrize("fault", [Internal("the model failed"), EngineUnavailable("a replica went away")])
def test_a_failing_engine_is_an_internal_server_error(fault):
    engine = FakeEngine()
    engine.fail_next(fault)
    with listening(app_over(engine)) as url, client_of(url) as client:
        with pytest.raises(InternalServerError) as caught:
            speech_of(client)
        assert (caught.value.status_code, caught.value.code) == (fault.http_status, fault.code)
        assert caught.value.type == "server_error"
        assert speech_of(client).content, "the next request is served"


class FailsInTheSecondSentence(FakeEngine):
    async def synthesize(self, segment):
        if segment.index > 0:
            raise Internal("the model failed")
        return await super().synthesize(segment)


def test_a_failure_in_mid_stream_is_never_a_complete_answer():
    with (
        listening(app_over(FailsInTheSecondSentence())) as url,
        client_of(url) as client,
        client.audio.speech.with_streaming_response.create(
            model="tts-1", voice="coral", input=THREE, response_format="pcm"
        ) as response,
    ):
        parts = response.iter_bytes()
        assert next(parts)
        with pytest.raises((httpx2.TransportError, APIConnectionError)):
            list(parts)
