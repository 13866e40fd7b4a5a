import asyncio
import base64
import io
import json
import wave

import pytest

from serve_app.engine.fake import FakeEngine
from serve_app.errors import Internal, QueueSaturated
from serve_app.metrics import TTFA_S, UTTERANCES
from serve_app.protocol.sse import SseDecoder
from tests.asgi import http, turns_until
from tests.audio.test_encoders import FRAME_SAMPLES, MP3_PRIMING, decoded
from tests.fakes import CountingRecorder, app_over

PATH = "/invocations"
THREE = "One is here. Two is here. Three is here."


async def answer_to(body, engine=None, recorder=None, **limits):
    async with http(app_over(engine or FakeEngine(), recorder, **limits), PATH, body) as exchange:
        return await exchange.response()


def test_first_audio_leaves_before_the_second_segment_exists():
    async def scenario():
        engine = FakeEngine(gated=True)
        async with http(app_over(engine), PATH, {"text": THREE}) as exchange:
            engine.allow(1)
            start, first = await exchange.next(), await exchange.next()
            assert start["status"] == 200
            assert first["body"].startswith(b"RIFF")
            assert len(first["body"]) > 44
            assert len(engine.finished) == 1
            engine.allow(2)
            while (await exchange.next())["more_body"]:
                pass
        assert len(engine.finished) == 3

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("how", "times"), [({}, 1), ({"stream": False}, 0), ({"stream": False, "transport": "sse"}, 1)]
)
def test_an_answer_that_comes_as_a_whole_has_no_first_audio_that_could_be_late(how, times):
    recorder = CountingRecorder()
    assert asyncio.run(answer_to({"text": THREE} | how, recorder=recorder))[0] == 200
    assert len(recorder.values.get(TTFA_S.name, [])) == times
    assert recorder.outcomes(UTTERANCES) == ["complete"]


def test_no_more_than_the_lookahead_is_synthesized_ahead_of_a_client_that_does_not_read():
    async def scenario():
        engine = FakeEngine()
        text = " ".join(f"Sentence number {n} is here." for n in range(50))
        async with http(app_over(engine, lookahead_segments=2), PATH, {"text": text}, capacity=1) as exchange:
            await exchange.next()
            for _ in range(200):
                await asyncio.sleep(0)
            assert len(engine.started) <= 4
            async with asyncio.timeout(10):
                while (await exchange.next())["more_body"]:
                    pass
            assert len(engine.finished) == 50

    asyncio.run(scenario())


def test_streamed_wav_has_one_header_of_unknown_size_and_nothing_after_the_pcm():
    status, headers, body = asyncio.run(answer_to({"text": THREE}))
    assert status == 200
    assert headers["content-type"] == "audio/wav"
    assert "content-length" not in headers
    assert body[4:8] == body[40:44] == b"\xff\xff\xff\xff"
    assert body.count(b"RIFF") == 1
    assert len(body) % 2 == 0


def test_whole_answer_has_true_sizes_and_tells_what_it_cost():
    status, headers, body = asyncio.run(answer_to({"text": THREE, "stream": False}))
    assert status == 200
    assert int(headers["content-length"]) == len(body)
    assert int.from_bytes(body[4:8], "little") == len(body) - 8
    with wave.open(io.BytesIO(body)) as file:
        assert (file.getnchannels(), file.getsampwidth(), file.getframerate()) == (1, 2, 24000)
        assert file.getnframes() == (len(body) - 44) // 2
        assert float(headers["x-audio-duration"]) == pytest.approx(file.getnframes() / 24000, abs=0.001)
    assert headers["x-characters-processed"] == str(len(THREE))
    assert float(headers["x-inference-time-ms"]) >= 0
    assert float(headers["x-rtf"]) >= 0


@pytest.mark.parametrize("format", ["wav", "mp3", "aac", "opus", "flac"])
@pytest.mark.parametrize("sentences", [1, 3, 20])
@pytest.mark.parametrize("stream", [True, False])
def test_every_format_decodes_to_the_length_of_its_pcm_streamed_or_not(format, sentences, stream):
    text = " ".join(f"Sentence number {number} is here." for number in range(sentences))
    pcm = asyncio.run(answer_to({"text": text, "format": "pcm"}))[2]
    status, headers, body = asyncio.run(answer_to({"text": text, "format": format, "stream": stream}))
    assert status == 200
    assert headers.get("content-length") == (None if stream else str(len(body)))
    audio, rate = decoded(body, format if format == "mp3" else None)
    surplus = len(audio) - (MP3_PRIMING if format == "mp3" else 0) - len(pcm) / 2 * rate / 24_000
    assert -1 <= surplus <= FRAME_SAMPLES[format] + 1


def test_pcm_at_another_rate_is_as_long_as_at_the_models_own():
    _, _, own = asyncio.run(answer_to({"text": THREE, "format": "pcm"}))
    _, headers, low = asyncio.run(answer_to({"text": THREE, "format": "pcm", "sample_rate": 8000}))
    assert headers["content-type"] == "audio/pcm;rate=8000"
    assert len(low) / 2 / 8000 == pytest.approx(len(own) / 2 / 24000, abs=0.001)


def events_of(body):
    decoder = SseDecoder()
    events = decoder.feed(body)
    decoder.close()
    return [(event.event, json.loads(event.data)) for event in events]


def test_events_carry_the_same_audio_as_the_binary_answer():
    _, _, pcm = asyncio.run(answer_to({"text": THREE, "format": "pcm"}))
    request = {"text": THREE, "format": "pcm", "transport": "sse", "request_id": "r1"}
    status, headers, body = asyncio.run(answer_to(request))
    assert (status, headers["content-type"].split(";")[0]) == (200, "text/event-stream")
    (start, first), *chunks, (end, last) = events_of(body)
    assert (start, end) == ("audio_stream_start", "audio_stream_end")
    assert first == {"request_id": "r1", "format": "pcm", "voice": "af_heart", "sample_rate": 24000}
    assert [data["seq"] for _, data in chunks] == list(range(len(chunks)))
    assert b"".join(base64.b64decode(data["data"]) for _, data in chunks) == pcm
    assert last == {
        "request_id": "r1",
        "total_chunks": len(chunks),
        "duration_s": pytest.approx(len(pcm) / 48000, abs=0.001),
    }


def test_the_stream_of_events_starts_before_inference():
    async def scenario():
        engine = FakeEngine(gated=True)
        async with http(app_over(engine), PATH, {"text": "Hi there.", "transport": "sse"}) as exchange:
            await exchange.next()
            assert b"audio_stream_start" in (await exchange.next())["body"]
            assert not engine.finished

    asyncio.run(scenario())


def test_word_timings_precede_their_audio_and_are_within_it():
    request = {"text": THREE, "transport": "sse", "timestamps": True, "format": "pcm"}
    events = events_of(asyncio.run(answer_to(request))[2])
    words = [word for name, data in events if name == "audio_words" for word in data["words"]]
    assert [word["w"] for word in words] == ["One is here.", "Two is here.", "Three is here."]
    starts = [word["start_s"] for word in words]
    assert starts == sorted(starts)
    assert words[-1]["end_s"] <= events[-1][1]["duration_s"] + 0.025
    assert [name for name, _ in events][1] == "audio_words"


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b"not json", 400, "bad_request"),
        (b"[]", 400, "bad_request"),
        ({"text": " "}, 400, "bad_request"),
        ({}, 400, "bad_request"),
        ({"text": "..."}, 400, "nothing_to_speak"),
        ({"text": "Hi", "voice": "af_hart"}, 400, "unknown_voice"),
        ({"text": "Hi", "voice": "af_heart+af_hart(2)"}, 400, "unknown_voice"),
        ({"text": "Hi", "voice": "af_heart(0)+af_bella"}, 400, "bad_request"),
        ({"text": "Hi", "voice": "bf_emma+af_heart"}, 400, "unsupported_language"),
        ({"text": "Hi", "lang": "z"}, 400, "unsupported_language"),
        ({"text": "Hi", "speed": "1.0"}, 400, "bad_request"),
        ({"text": "Hi", "format": "midi"}, 400, "bad_request"),
        ({"text": "Hi", "request_timestamp": 1.0}, 408, "request_stale"),
        ({"text": "x" * 101}, 413, "text_too_long"),
        ({"text": "Hi", "pad": "x" * 5000}, 413, "text_too_long"),
    ],
)
def test_refusals_have_their_status_and_code(body, status, code):
    got, headers, answer = asyncio.run(answer_to(body, max_text_chars=100, max_body_bytes=4000))
    error = json.loads(answer)
    assert (got, error["code"]) == (status, code)
    assert set(error) == {"error", "code", "request_id"}
    assert headers["content-type"] == "application/json"


def test_unknown_voice_names_near_matches_and_echoes_the_request_id():
    _, _, answer = asyncio.run(answer_to({"text": "Hi", "voice": "af_hart", "request_id": "r7"}))
    error = json.loads(answer)
    assert "af_heart" in error["error"]
    assert error["request_id"] == "r7"


@pytest.mark.parametrize("wrong", [{"voice": "af_hart"}, {"voice": "af_heart(x)"}, {"lang": "z"}])
def test_what_cannot_be_spoken_is_refused_before_a_stream_of_events_begins(wrong):
    status, _, _ = asyncio.run(answer_to({"text": "Hi", "transport": "sse", **wrong}))
    assert status == 400


@pytest.mark.parametrize("fields", [{"voice": "af_bella(2)+bf_emma(1)"}, {"voice": "bf_emma + af_bella", "lang": "a"}])
def test_a_blend_of_voices_is_spoken_in_the_language_of_its_first_voice_unless_told_otherwise(fields):
    engine = FakeEngine()
    status, _, body = asyncio.run(answer_to({"text": "Hi there.", "transport": "sse", **fields}, engine))
    assert status == 200
    assert engine.finished[-1].voice == events_of(body)[0][1]["voice"] == fields["voice"]


@pytest.mark.parametrize("format", ["wav", "mp3"])
@pytest.mark.parametrize("fields", [{}, {"stream": False}, {"transport": "sse"}])
def test_a_pause_is_in_the_audio_of_every_answer(format, fields):
    without, paused = (
        asyncio.run(answer_to({"text": text, "format": format, **fields}))
        for text in ("One. Two.", "One. [pause:5s] Two. [pause:1s]")
    )
    assert paused[0] == 200
    # Its seconds take the place of a seam's 0.2 and an end's 0.05; base64 adds a third.
    expected = 5.75 * (48_000 if format == "wav" else 6_000) * (4 / 3 if "transport" in fields else 1)
    assert len(paused[2]) - len(without[2]) == pytest.approx(expected, rel=0.05)


def test_words_after_a_pause_are_timed_after_it():
    body = {"text": "One. [pause:5s] Two.", "transport": "sse", "timestamps": True}
    events = events_of(asyncio.run(answer_to(body))[2])
    first, second = (data["words"][0] for name, data in events if name == "audio_words")
    assert second["start_s"] - first["end_s"] == pytest.approx(5, abs=0.01)


def test_a_whole_answer_counts_its_pauses():
    _, headers, _ = asyncio.run(answer_to({"text": "[pause:2s] One. [pause:3s]", "stream": False}))
    assert float(headers["x-audio-duration"]) == pytest.approx(5 + 0.025 * len("One."), abs=0.001)


@pytest.mark.parametrize("text", ["[pause:1s]", "[pause:1s] ... [pause:300ms]"])
def test_pauses_alone_are_nothing_to_speak(text):
    status, _, body = asyncio.run(answer_to({"text": text}))
    assert (status, json.loads(body)["code"]) == (400, "nothing_to_speak")


def test_requests_past_the_bound_are_refused_with_retry_after():
    async def scenario():
        engine = FakeEngine(gated=True)
        app = app_over(engine, max_requests=1)
        async with http(app, PATH, {"text": "Hi there."}) as busy:
            await turns_until(lambda: engine.started)
            async with http(app, PATH, {"text": "Hi there."}) as surplus:
                status, headers, body = await surplus.response()
            assert (status, json.loads(body)["code"]) == (503, "queue_saturated")
            assert int(headers["retry-after"]) >= 1
            engine.allow(1)
            assert (await busy.response())[0] == 200
            engine.allow(1)
            async with http(app, PATH, {"text": "Hi there."}) as later:
                assert (await later.response())[0] == 200

    asyncio.run(scenario())


def test_a_refusal_of_the_engine_says_when_to_come_back():
    engine = FakeEngine()
    engine.fail_next(QueueSaturated("The engine is busy. Try again in 7 s.", 7))
    status, headers, body = asyncio.run(answer_to({"text": "Hi there."}, engine=engine))
    assert (status, headers["retry-after"], json.loads(body)["code"]) == (503, "7", "queue_saturated")


def test_requests_whose_body_is_still_coming_count_and_have_a_deadline():
    async def scenario():
        app = app_over(FakeEngine(), max_requests=1, send_stall_timeout_s=0.05)
        async with http(app, PATH, {"text": "Hi there."}, more_body=True) as slow:
            await asyncio.sleep(0)
            async with http(app, PATH, {"text": "Hi there."}) as surplus:
                status, _, body = await surplus.response()
            assert (status, json.loads(body)["code"]) == (503, "queue_saturated")
            status, _, body = await slow.response()
            assert (status, json.loads(body)["code"]) == (408, "request_stale")
        async with http(app, PATH, {"text": "Hi there."}) as later:
            assert (await later.response())[0] == 200

    asyncio.run(scenario())


@pytest.mark.parametrize("text", ["Hi there.", THREE])
def test_a_client_that_goes_away_stops_its_synthesis_and_frees_its_place(text):
    async def scenario():
        engine, recorder = FakeEngine(gated=True), CountingRecorder()
        async with http(app_over(engine, recorder), PATH, {"text": text}) as exchange:
            await turns_until(lambda: engine.started)
            exchange.to_app.put_nowait({"type": "http.disconnect"})
            await exchange.ended()
        assert engine.queue_depth == 0
        assert len(engine.cancelled) == min(2, text.count("."))
        assert recorder.outcomes(UTTERANCES) == ["disconnected"]

    asyncio.run(scenario())


def test_a_failure_after_the_first_byte_breaks_the_body():
    async def scenario():
        engine = FakeEngine(gated=True)
        async with http(app_over(engine), PATH, {"text": THREE}) as exchange:
            engine.allow(1)
            await exchange.next()
            await exchange.next()
            engine.fail_next(Internal("the model failed"))
            engine.allow(1)
            with pytest.raises(Internal):
                await exchange.response_body()

    asyncio.run(scenario())


def test_a_failure_in_a_stream_of_events_is_its_last_event():
    async def scenario():
        engine = FakeEngine()
        engine.fail_next(Internal("the model failed"))
        async with http(app_over(engine), PATH, {"text": "Hi there.", "transport": "sse"}) as exchange:
            return await exchange.response()

    _, _, body = asyncio.run(scenario())
    assert [name for name, _ in events_of(body)] == ["audio_stream_start", "error"]


def test_a_client_that_takes_nothing_is_dropped():
    async def scenario():
        engine, recorder = FakeEngine(), CountingRecorder()
        app = app_over(engine, recorder, send_stall_timeout_s=0.01)
        async with http(app, PATH, {"text": THREE}, capacity=1) as exchange:
            await exchange.ended()
        assert recorder.outcomes(UTTERANCES) == ["disconnected"]

    asyncio.run(scenario())


def test_other_paths_and_methods_have_the_shape_of_every_error():
    async def scenario():
        async with http(app_over(FakeEngine()), "/nowhere", {}) as exchange:
            status, _, body = await exchange.response()
        assert (status, json.loads(body)["code"]) == (404, "bad_request")
        async with http(app_over(FakeEngine()), PATH, {}, method="PUT") as exchange:
            assert (await exchange.response())[0] == 405

    asyncio.run(scenario())
