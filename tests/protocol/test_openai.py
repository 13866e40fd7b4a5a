import json
import typing

import pytest
from openai.types.audio import SpeechCreateParams, SpeechModel

from serve_app.errors import BadRequest, EngineUnavailable, NothingToSpeak, TextTooLong, UnknownModel, UnknownVoice
from serve_app.protocol.openai import MODELS, VOICES, check_model, dump_error, parse_speech, voice_behind
from serve_app.protocol.requests import RequestLimits

LIMITS = RequestLimits(max_text_chars=100, max_request_age_s=56)


def parsed(**fields):
    return parse_speech(json.dumps(fields).encode(), LIMITS, 0.0, request_id="r1")


def names_in(annotation):
    """The strings of every Literal in an annotation."""
    if typing.get_origin(annotation) is typing.Literal:
        return set(typing.get_args(annotation))
    return set().union(*map(names_in, typing.get_args(annotation)))


def test_input_alone_gets_openais_default_format_and_our_default_voice():
    request = parsed(input="Hello there.")
    assert (request.text, request.format, request.voice, request.speed) == ("Hello there.", "mp3", "af_heart", 1.0)
    assert (request.transport, request.stream, request.request_id) == ("binary", True, "r1")


def test_every_field_says_what_it_says_at_openai():
    request = parsed(
        model="tts-1",
        input="Hi.",
        voice="bf_emma",
        response_format="opus",
        speed=1.5,
        stream_format="sse",
        instructions="Whisper.",
        something_new={"a": 1},
    )
    assert (request.voice, request.format, request.speed, request.transport) == ("bf_emma", "opus", 1.5, "sse")


def test_an_entry_of_the_voices_list_is_a_voice():
    assert parsed(input="Hi.", voice={"id": "bf_emma", "name": "Emma"}).voice == "bf_emma"


def test_fields_of_our_own_api_mean_nothing_here():
    request = parsed(input="Hi.", text="no", format="wav", transport="sse", stream=False, timestamps=True, lang="z")
    assert (request.text, request.format, request.transport) == ("Hi.", "mp3", "binary")
    assert (request.stream, request.timestamps, request.lang) == (True, False, None)


@pytest.mark.parametrize(
    ("fields", "error", "field"),
    [
        ({}, BadRequest, "input"),
        ({"input": 1}, BadRequest, "input"),
        ({"input": " \n"}, BadRequest, "input"),
        ({"input": "..."}, NothingToSpeak, "input"),
        ({"input": "x" * 101}, TextTooLong, "input"),
        ({"input": "Hi", "model": "gpt-4o"}, UnknownModel, "model"),
        ({"input": "Hi", "model": None}, BadRequest, "model"),
        ({"input": "Hi", "voice": ""}, BadRequest, "voice"),
        ({"input": "Hi", "voice": ["af_heart"]}, BadRequest, "voice"),
        ({"input": "Hi", "voice": {"name": "af_heart"}}, BadRequest, "voice"),
        ({"input": "Hi", "response_format": "midi"}, BadRequest, "response_format"),
        ({"input": "Hi", "speed": 4.01}, BadRequest, "speed"),
        ({"input": "Hi", "speed": 0.24}, BadRequest, "speed"),
        ({"input": "Hi", "speed": "1.0"}, BadRequest, "speed"),
        ({"input": "Hi", "speed": True}, BadRequest, "speed"),
        ({"input": "Hi", "stream_format": "zip"}, BadRequest, "stream_format"),
    ],
)
def test_a_refusal_blames_the_field_by_openais_name(fields, error, field):
    with pytest.raises(error) as caught:
        parsed(**fields)
    assert type(caught.value) is error
    assert caught.value.field == field


@pytest.mark.parametrize("body", [b"", b"[]", b"\xff", b"{", b'{"input": NaN}'])
def test_a_body_that_is_no_json_object_blames_no_field(body):
    with pytest.raises(BadRequest) as caught:
        parse_speech(body, LIMITS, 0.0, request_id="r1")
    assert caught.value.field is None


def test_every_model_and_voice_of_the_official_package_is_known():
    assert names_in(SpeechModel) <= set(MODELS)
    assert names_in(typing.get_type_hints(SpeechCreateParams)["voice"]) == set(VOICES)


def test_an_openai_voice_is_spoken_by_the_loaded_voice_that_stands_for_it():
    loaded = sorted(set(VOICES.values()))
    assert [voice_behind(name, loaded) for name in VOICES] == list(VOICES.values())
    assert len(loaded) == len(VOICES), "two names with one voice"


def test_a_loaded_voice_keeps_its_name_even_if_openai_has_one_like_it():
    assert voice_behind("alloy", ["alloy", "af_alloy"]) == "alloy"


def test_a_name_that_openai_lacks_stays_as_it_is():
    assert voice_behind("af_hart", ["af_heart"]) == "af_hart"


@pytest.mark.parametrize(
    ("blend", "voices"),
    [
        ("alloy+nova", "af_alloy+af_nova"),
        ("alloy(2)+nova(1)", "af_alloy(2)+af_nova(1)"),
        ("af_heart + alloy (2)", "af_heart + af_alloy (2)"),
        ("my-alloy+alloys+af_alloy+Alloy", "my-alloy+alloys+af_alloy+Alloy"),
        ("alloy)", "alloy)"),
    ],
)
def test_openais_names_may_be_blended(blend, voices):
    assert voice_behind(blend, ["af_heart", "af_alloy", "af_nova"]) == voices


def test_an_openai_voice_never_points_to_one_that_is_missing():
    with pytest.raises(UnknownVoice, match="af_alloy"):
        voice_behind("alloy", ["af_heart"])
    with pytest.raises(UnknownVoice, match="af_alloy"):
        voice_behind("af_heart+alloy(2)", ["af_heart"])


def test_an_unknown_model_is_refused_with_the_known_ones():
    with pytest.raises(UnknownModel, match="kokoro, tts-1"):
        check_model("whisper-1")


def test_an_error_object_has_openais_four_fields():
    refused = BadRequest("speed must be a number")
    refused.field = "speed"
    assert dump_error(refused) == {
        "error": {
            "message": "speed must be a number",
            "type": "invalid_request_error",
            "param": "speed",
            "code": "bad_request",
        }
    }
    assert dump_error(EngineUnavailable("down"))["error"]["type"] == "server_error"
