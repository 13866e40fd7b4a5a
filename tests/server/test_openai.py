import asyncio
import base64
import json
import re

import pytest

from serve_app.config import LimitSettings
from serve_app.engine.fake import FakeEngine
from serve_app.errors import EngineUnavailable, Internal
from serve_app.formats import FORMATS
from serve_app.metrics import TTFA_S, UTTERANCES, NoRecorder
from serve_app.protocol.openai import MODELS, VOICES
from serve_app.protocol.sse import SseDecoder
from serve_app.server.gateway import create_app
from serve_app.server.speech import Speech
from tests.asgi import http, turns_until
from tests.audio.test_encoders import FRAME_SAMPLES, MP3_PRIMING, decoded, mp3_frames
from tests.audio.test_mp4 import boxes
from tests.fakes import CountingRecorder, FakePhonemizer, app_over

PATH = "/v1/audio/speech"
THREE = "One is here. Two is here. Three is here."
EVERY_VOICE = tuple(sorted({"af_bella", "af_heart", "bf_emma", *VOICES.values()}))


async def answer_to(body, engine=None, *, path=PATH, method="POST", recorder=None, **limits):
    async with http(app_over(engine or FakeEngine(), recorder, **limits), path, body, method=method) as exchange:
        return await exchange.response()


def spoken(engine=None, **fields):
    return asyncio.run(answer_to({"model": "kokoro", "voice": "af_heart", "input": THREE, **fields}, engine))


def got(path, engine=None):
    status, _, body = asyncio.run(answer_to(b"", engine, path=path, method="GET"))
    return status, json.loads(body)


def events_of(body):
    decoder = SseDecoder()
    events = [(event.event, event.json()) for event in decoder.feed(body)]
    assert not decoder.close()
    return events


@pytest.mark.parametrize("format", ["mp3", "opus", "aac", "flac", "wav", "pcm"])
def test_every_format_has_its_content_type(format):
    status, headers, body = spoken(response_format=format)
    assert (status, headers["content-type"]) == (200, FORMATS[format].media_type.format(rate=24_000))
    assert body
    assert "content-length" not in headers


@pytest.mark.parametrize("format", ["mp3", "opus", "aac", "flac", "wav"])
@pytest.mark.parametrize("sentences", [1, 3, 20])
def test_an_answer_of_many_sentences_is_one_stream_as_long_as_its_pcm(format, sentences):
    text = " ".join(f"Sentence number {number} is here." for number in range(sentences))
    pcm = spoken(input=text, response_format="pcm")[2]
    body = spoken(input=text, response_format=format)[2]
    audio, rate = decoded(body, format if format == "mp3" else None)
    surplus = len(audio) - (MP3_PRIMING if format == "mp3" else 0) - len(pcm) / 2 * rate / 24_000
    assert -1 <= surplus <= FRAME_SAMPLES[format] + 1
    match format:
        case "wav":
            assert body.count(b"RIFF") == 1
            assert body[4:8] == body[40:44] == b"\xff\xff\xff\xff"
            assert body[44:] == pcm
        case "opus":
            assert [page[1] & 2 for page in body.split(b"OggS")[1:]].count(2) == 1
        case "aac":
            kinds = [kind for kind, _ in boxes(body)]
            assert kinds[:2] == [b"ftyp", b"moov"]
            assert set(kinds[2:]) == {b"moof", b"mdat"}
        case "mp3":
            assert set(mp3_frames(body)) == {144}
            assert not re.search(b"Xing|Info|ID3", body[:2_000])


def test_first_audio_leaves_before_the_second_segment_exists():
    async def scenario():
        engine = FakeEngine(gated=True)
        async with http(app_over(engine), PATH, {"input": THREE, "response_format": "wav"}) as exchange:
            engine.allow(1)
            start, first = await exchange.next(), await exchange.next()
            assert start["status"] == 200
            assert first["body"].startswith(b"RIFF")
            assert len(engine.finished) == 1

    asyncio.run(scenario())


@pytest.mark.parametrize("format", ["mp3", "aac", "flac", "wav", "pcm"])
def test_events_carry_the_same_audio_as_the_answer_in_audio(format):
    audio = spoken(response_format=format, stream_format="audio")[2]
    status, headers, body = spoken(response_format=format, stream_format="sse")
    assert (status, headers["content-type"].split(";")[0]) == (200, "text/event-stream")
    *deltas, (last, done) = events_of(body)
    assert {name for name, _ in deltas} == {"speech.audio.delta"}
    assert last == "speech.audio.done"
    assert all(data["type"] == name for name, data in [*deltas, (last, done)])
    assert b"".join(base64.b64decode(data["audio"], validate=True) for _, data in deltas) == audio


def test_usage_counts_characters_in_and_frames_of_the_model_out():
    pcm = spoken(response_format="pcm")[2]
    _, done = events_of(spoken(response_format="pcm", stream_format="sse")[2])[-1]
    frames = round(len(pcm) / 2 / 600)
    assert done["usage"] == {
        "input_tokens": len(THREE),
        "output_tokens": frames,
        "total_tokens": len(THREE) + frames,
    }


@pytest.mark.parametrize("asked", [{}, {"stream_format": "audio"}])
def test_audio_is_what_comes_unless_events_were_asked_for(asked):
    assert spoken(**asked)[1]["content-type"] == "audio/mpeg"


def test_speed_makes_the_answer_shorter():
    slow, fast = (spoken(response_format="pcm", speed=speed)[2] for speed in (0.25, 1))
    assert len(slow) > 2 * len(fast)


class EveryLanguage(FakePhonemizer):
    async def pieces(self, sentence, lang):
        return await super().pieces(sentence, "a")


def test_every_listed_voice_and_every_openai_name_gives_audio():
    async def scenario():
        engine = FakeEngine(voices=EVERY_VOICE)
        speech = Speech(EveryLanguage(), engine, NoRecorder(), lookahead_segments=2)
        app = create_app(speech, LimitSettings(), NoRecorder())

        async def voice_used(voice):
            async with http(app, PATH, {"model": "tts-1", "input": "Hi there.", "voice": voice}) as exchange:
                status, _, body = await exchange.response()
            assert (status, bool(body)) == (200, True), voice
            return engine.started[-1].voice

        async with http(app, "/v1/audio/voices", b"", method="GET") as exchange:
            listed = json.loads((await exchange.response())[2])["voices"]
        assert [set(entry) for entry in listed] == [{"id", "name"}] * len(EVERY_VOICE)
        assert all(isinstance(value, str) for entry in listed for value in entry.values())
        for entry in listed:
            assert await voice_used(entry["id"]) == await voice_used(entry) == entry["id"]
        for name, voice in VOICES.items():
            assert await voice_used(name) == voice

    asyncio.run(scenario())


def test_a_switch_gives_the_voices_as_bare_ids():
    assert got("/v1/audio/voices?format=ids") == (200, {"voices": ["af_heart", "af_bella", "bf_emma"]})
    status, refused = got("/v1/audio/voices?format=xml")
    assert (status, refused["error"]["param"]) == (400, "format")


def test_names_of_either_kind_may_be_blended():
    engine = FakeEngine(voices=EVERY_VOICE)
    status, _, body = spoken(engine, voice="nova(2)+af_heart(1)")
    assert (status, bool(body)) == (200, True)
    assert {segment.voice for segment in engine.finished} == {"af_nova(2)+af_heart(1)"}


@pytest.mark.parametrize("voice", ["af_heart(0)+af_bella", "af_heart+", "af_heart(much)"])
def test_an_ill_formed_blend_blames_the_voice(voice):
    status, _, body = spoken(voice=voice)
    error = json.loads(body)["error"]
    assert (status, error["code"], error["param"]) == (400, "bad_request", "voice")


@pytest.mark.parametrize("voice", ["af_hart", "alloy", "../af_heart", "af_heart+af_hart", "af_heart+alloy(2)"])
@pytest.mark.parametrize("stream_format", ["audio", "sse"])
def test_a_voice_that_is_not_loaded_is_refused_with_the_list_before_any_audio(voice, stream_format):
    status, headers, body = spoken(voice=voice, stream_format=stream_format)
    error = json.loads(body)["error"]
    assert (status, headers["content-type"]) == (400, "application/json")
    assert (error["code"], error["param"], error["type"]) == ("unknown_voice", "voice", "invalid_request_error")
    assert "voices: af_heart, af_bella, bf_emma" in error["message"]


@pytest.mark.parametrize(
    ("body", "status", "code", "param"),
    [
        (b"not json", 400, "bad_request", None),
        ({}, 400, "bad_request", "input"),
        ({"input": "..."}, 400, "nothing_to_speak", "input"),
        ({"input": "x" * 101}, 413, "text_too_long", "input"),
        ({"input": "Hi", "pad": "x" * 5000}, 413, "text_too_long", None),
        ({"input": "Hi", "stream_format": "zip"}, 400, "bad_request", "stream_format"),
        ({"input": "Hi", "response_format": "zip"}, 400, "bad_request", "response_format"),
        ({"input": "Hi", "model": "gpt-4o"}, 404, "model_not_found", "model"),
        ({"input": "Hi", "voice": "bf_emma"}, 400, "unsupported_language", None),
        ({"input": "Hi", "voice": "bf_emma", "stream_format": "sse"}, 400, "unsupported_language", None),
    ],
)
def test_refusals_have_openais_shape_and_their_status(body, status, code, param):
    got_status, headers, answer = asyncio.run(answer_to(body, max_text_chars=100, max_body_bytes=4000))
    error = json.loads(answer)["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert (got_status, error["code"], error["param"]) == (status, code, param)
    assert error["type"] == "invalid_request_error"
    assert headers["content-type"] == "application/json"


def test_an_engine_that_is_down_is_a_server_error_on_every_route_that_needs_it():
    engine = FakeEngine()
    engine.break_down()
    status, headers, body = spoken(engine)
    assert (status, json.loads(body)["error"]["type"]) == (503, "server_error")
    assert int(headers["retry-after"]) >= 1
    assert got("/v1/audio/voices", engine)[0] == 503
    assert got("/v1/models", engine)[0] == 200


def test_requests_past_the_bound_are_refused_whichever_route_the_others_came_by():
    async def scenario():
        engine = FakeEngine(gated=True)
        app = app_over(engine, max_requests=1)
        async with http(app, "/invocations", {"text": "Hi there."}):
            await turns_until(lambda: engine.started)
            async with http(app, PATH, {"input": "Hi there."}) as surplus:
                status, headers, body = await surplus.response()
        assert (status, json.loads(body)["error"]["code"]) == (503, "queue_saturated")
        assert int(headers["retry-after"]) >= 1
        assert "x-request-id" not in headers

    asyncio.run(scenario())


def test_an_answer_and_a_refusal_carry_the_id_that_the_log_has():
    ids = {spoken(**fields)[1]["x-request-id"] for fields in ({}, {}, {"stream_format": "sse"}, {"speed": 9})}
    assert len(ids) == 4


@pytest.mark.parametrize("stream_format", ["audio", "sse"])
def test_a_failure_before_the_first_audio_has_its_own_status(stream_format):
    engine = FakeEngine()
    engine.fail_next(EngineUnavailable("a replica went away"))
    status, headers, body = spoken(engine, stream_format=stream_format)
    assert (status, json.loads(body)["error"]["code"]) == (503, "engine_unavailable")
    assert headers["x-request-id"]


def test_a_failure_after_the_first_byte_breaks_the_body():
    async def scenario():
        engine = FakeEngine(gated=True)
        async with http(app_over(engine), PATH, {"input": THREE}) as exchange:
            engine.allow(1)
            await exchange.next()
            engine.fail_next(Internal("the model failed"))
            engine.allow(1)
            with pytest.raises(Internal):
                await exchange.response_body()

    asyncio.run(scenario())


def test_a_failure_in_a_stream_of_events_is_its_last_event_in_openais_shape():
    async def scenario():
        engine = FakeEngine(gated=True)
        request = {"input": THREE, "stream_format": "sse", "response_format": "pcm"}
        async with http(app_over(engine), PATH, request) as exchange:
            engine.allow(1)
            await exchange.next()
            engine.fail_next(Internal("the model failed"))
            engine.allow(1)
            return await exchange.response_body()

    *deltas, (name, data) = events_of(asyncio.run(scenario()))
    assert {name for name, _ in deltas} == {"speech.audio.delta"}
    assert (name, data["type"], data["error"]["code"]) == ("error", "error", "internal")
    assert data["error"]["type"] == "server_error"


def test_a_client_that_goes_away_stops_its_synthesis():
    async def scenario():
        engine, recorder = FakeEngine(gated=True), CountingRecorder()
        async with http(app_over(engine, recorder), PATH, {"input": THREE}) as exchange:
            await turns_until(lambda: engine.started)
            exchange.to_app.put_nowait({"type": "http.disconnect"})
            await exchange.ended()
        assert engine.queue_depth == 0
        assert len(engine.cancelled) == 2
        assert recorder.outcomes(UTTERANCES) == ["disconnected"]

    asyncio.run(scenario())


def test_what_was_spoken_is_counted_under_its_own_route():
    recorder = CountingRecorder()
    asyncio.run(answer_to({"input": THREE}, recorder=recorder))
    assert [tags for _, tags in recorder.values[TTFA_S.name]] == [{"route": PATH}]
    assert recorder.outcomes(UTTERANCES) == ["complete"]


def test_models_are_listed_in_both_shapes_and_found_one_by_one():
    status, listed = got("/v1/models")
    assert (status, listed["object"]) == (200, "list")
    assert [model["id"] for model in listed["data"]] == list(MODELS)
    assert got("/v1/audio/models")[1]["models"][0] == {"id": "kokoro", "name": "kokoro"}
    for model in listed["data"]:
        assert got(f"/v1/models/{model['id']}") == (200, model)
    status, refused = got("/v1/models/hexgrad/other")
    assert (status, refused["error"]["code"]) == (404, "model_not_found")


@pytest.mark.parametrize(
    ("path", "method", "status", "code"),
    [
        ("/v1/audio/transcriptions", "POST", 404, "unknown_url"),
        ("/v1/", "GET", 404, "unknown_url"),
        (PATH, "GET", 405, "method_not_supported"),
        ("/v1/models", "POST", 405, "method_not_supported"),
    ],
)
def test_other_paths_and_methods_below_v1_have_openais_shape(path, method, status, code):
    got_status, headers, body = asyncio.run(answer_to(b"", path=path, method=method))
    error = json.loads(body)["error"]
    assert (got_status, error["code"], set(error)) == (status, code, {"message", "type", "param", "code"})
    assert ("allow" in headers) == (status == 405)
