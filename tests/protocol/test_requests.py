"""Bodies of POST /invocations: every refusal of the contract's table, and what a client reads when it is refused."""

import json
import math
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from serve_app.errors import BadRequest, NothingToSpeak, RequestStale, SpeechError, TextTooLong
from serve_app.formats import FORMATS, SAMPLE_RATES
from serve_app.protocol.requests import (
    RequestLimits,
    SpeechRequest,
    build_request,
    parse_invocation,
)

LIMITS = RequestLimits(max_text_chars=40, max_request_age_s=56.0)
NOW_S = 1_700_000_000.0


def parse(fields: dict[str, Any]) -> SpeechRequest:
    return parse_invocation(json.dumps(fields).encode(), LIMITS, NOW_S)


def refusal(body: bytes) -> SpeechError:
    with pytest.raises(SpeechError) as caught:
        parse_invocation(body, LIMITS, NOW_S)
    return caught.value


def test_a_text_alone_gets_the_defaults_of_the_contract() -> None:
    assert parse({"text": "Hello there."}).model_dump() == {
        "text": "Hello there.",
        "voice": "af_heart",
        "lang": None,
        "speed": 1.0,
        "format": "wav",
        "sample_rate": 24000,
        "request_id": "unknown",
        "request_timestamp": None,
        "timestamps": False,
        "stream": True,
        "transport": "binary",
    }


def test_the_language_is_the_one_asked_for_else_the_first_letter_of_the_voice() -> None:
    assert parse({"text": "Hi.", "voice": "bf_emma"}).language == "b"
    assert parse({"text": "Hi.", "voice": "bf_emma", "lang": "a"}).language == "a"


def test_a_request_cannot_be_changed() -> None:
    with pytest.raises(ValidationError):
        parse({"text": "Hi."}).speed = 2.0  # type: ignore[misc]


@pytest.mark.parametrize(
    "fields",
    [
        {"speed": 0.25},
        {"speed": 4},
        {"format": "mp3", "sample_rate": 8000},
        {"format": "opus", "sample_rate": 48000},
        {"transport": "sse", "timestamps": True},
        {"stream": False},
        {"request_id": "x" * 128},
        {"request_timestamp": NOW_S - 56.0},
        {"request_timestamp": NOW_S + 3600},
        {"voice": "af_bella(2)+af_sky(1)"},
        {"unheard_of": {"a": [None]}},
        {"text": "x" * 40},
    ],
    ids=str,
)
def test_values_on_the_border_are_accepted(fields: dict[str, Any]) -> None:
    request = parse({"text": "Hi.", **fields})
    assert {name: getattr(request, name) for name in fields if name != "unheard_of"} == {
        name: value for name, value in fields.items() if name != "unheard_of"
    }


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"text": None}, "text must be a string"),
        ({"text": 5}, "text must be a string"),
        ({"text": "  \n"}, "text is blank"),
        ({"text": "\ud800"}, "text is blank"),
        ({"voice": ""}, "voice must be a voice id"),
        ({"voice": None}, "voice must be"),
        ({"voice": "af\nheart"}, "voice must be"),
        ({"voice": "v" * 201}, "voice must be"),
        ({"lang": ""}, "lang must be"),
        ({"lang": 1}, "lang must be"),
        ({"speed": "1.0"}, "speed must be a number from 0.25 to 4.0"),
        ({"speed": True}, "speed must be"),
        ({"speed": 0.2}, "speed must be"),
        ({"speed": 4.1}, "speed must be"),
        ({"speed": 10**400}, "speed must be"),
        ({"stream": "true"}, "stream must be true or false"),
        ({"stream": 1}, "stream must be"),
        ({"transport": "grpc"}, "transport must be binary or sse"),
        ({"format": "ogg"}, "format must be one of wav, mp3, pcm, aac, opus, flac"),
        ({"format": ["wav"]}, "format must be one of"),
        ({"sample_rate": 11025}, "sample_rate of wav must be one of 8000, 16000, 22050, 24000, 44100, 48000"),
        ({"sample_rate": "24000"}, "sample_rate must be one of 8000"),
        ({"sample_rate": True}, "sample_rate must be"),
        ({"sample_rate": 24000.5}, "sample_rate must be"),
        ({"format": "opus", "sample_rate": 44100}, "sample_rate of opus must be one of 8000, 16000, 24000, 48000"),
        ({"format": "ulaw", "sample_rate": 24000}, "sample_rate of ulaw must be one of 8000"),
        ({"request_id": 7}, "request_id must be a string of up to 128 printable characters"),
        ({"request_id": "x" * 129}, "request_id must be"),
        ({"request_id": "a\nb"}, "request_id must be"),
        ({"request_id": "\ud800"}, "request_id must be"),
        ({"request_timestamp": "1700000000"}, "request_timestamp must be a number"),
        ({"request_timestamp": True}, "request_timestamp must be"),
        ({"timestamps": "yes"}, "timestamps must be true or false"),
        ({"timestamps": True}, "timestamps need transport sse"),
    ],
    ids=str,
)
def test_a_bad_value_is_refused_with_a_sentence_that_names_the_field(fields: dict[str, Any], named: str) -> None:
    with pytest.raises(BadRequest) as caught:
        parse({"text": "Hi.", **fields})
    assert named in caught.value.message


def test_every_wrong_field_is_named_at_once() -> None:
    with pytest.raises(BadRequest) as caught:
        parse({"speed": "fast", "format": "ogg"})
    assert [sentence.split()[0] for sentence in caught.value.message.split("; ")] == ["speed", "format", "text"]
    assert "text is missing" in caught.value.message


@pytest.mark.parametrize(
    ("body", "named"),
    [
        (b"", "not JSON"),
        (b"hello", "not JSON (line 1, column 1)"),
        (b'{"text": "Hi."', "not JSON"),
        (b"[]", "not a JSON object"),
        (b'"text"', "not a JSON object"),
        (b"null", "not a JSON object"),
        (b'{"text": "caf\xe9"}', "not UTF-8 (byte 13)"),
        ('{"text": "Hi."}'.encode("utf-16"), "not UTF-8"),
        (b'{"text": "Hi.", "speed": NaN}', "NaN"),
        (b'{"text": "Hi.", "unheard_of": NaN}', "NaN"),
        (b'{"text": "Hi.", "speed": -Infinity}', "NaN or Infinity"),
        (b'{"text": "Hi.", "speed": 1e999}', "speed must be"),
        (b'{"text": "Hi.", "request_timestamp": 1e999}', "request_timestamp must be"),
        (b'{"text": "Hi.", "speed": ' + b"1" * 5000 + b"}", "number that is not allowed"),
        (b'{"text":' * 100_000, "nested too deeply"),
        (b"[" * 100_000, "nested too deeply"),
    ],
    ids=lambda value: str(value[:30]),
)
def test_a_body_that_is_no_json_object_in_utf8_is_a_bad_request(body: bytes, named: str) -> None:
    error = refusal(body)
    assert isinstance(error, BadRequest)
    assert named in error.message


def test_of_two_fields_with_one_name_the_last_holds() -> None:
    assert parse_invocation(b'{"text": "a", "text": "b"}', LIMITS, NOW_S).text == "b"


def test_half_a_surrogate_pair_is_dropped_and_a_whole_one_kept() -> None:
    assert parse_invocation(rb'{"text": "a\ud83c b \ud83c\udf27"}', LIMITS, NOW_S).text == "a b \N{CLOUD WITH RAIN}"


def test_a_text_past_the_limit_is_too_long() -> None:
    with pytest.raises(TextTooLong, match="at most 40 characters"):
        parse({"text": "x" * 41})


def test_a_request_older_than_the_limit_is_stale() -> None:
    with pytest.raises(RequestStale, match="more than 56 s ago"):
        parse({"text": "Hi.", "request_timestamp": NOW_S - 56.1})


@pytest.mark.parametrize("text", ["...", "\N{CLOUD WITH RAIN}", "?!"])
def test_a_text_without_a_speakable_character_is_refused_as_such(text: str) -> None:
    with pytest.raises(NothingToSpeak):
        parse({"text": text})


@pytest.mark.parametrize(
    ("fields", "request_id"),
    [
        ({"request_id": "r-1"}, "r-1"),
        ({"text": "Hi.", "speed": 9, "request_id": "r-2"}, "r-2"),
        ({"text": "x" * 41, "request_id": "r-3"}, "r-3"),
        ({"text": "...", "request_id": "r-4"}, "r-4"),
        ({"text": "Hi.", "timestamps": True, "request_id": "r-5"}, "r-5"),
        ({"text": 5}, "unknown"),
        ({"text": "Hi.", "request_id": "a\nb"}, "unknown"),
    ],
)
def test_a_refusal_carries_the_request_id_of_the_body(fields: dict[str, Any], request_id: str) -> None:
    assert refusal(json.dumps(fields).encode()).request_id == request_id


def test_no_message_repeats_what_the_client_sent_or_shows_python() -> None:
    for name in SpeechRequest.model_fields:
        for value in ("s3cret", ["s3cret"], {"s3cret": None}, None, -math.pi):
            try:
                parse({"text": "Hi.", name: value})
            except SpeechError as error:
                said = error.message.lower()
                assert "s3cret" not in said
                assert not any(python in said for python in ("none", "class", "<", "pydantic", "['", "3.14"))


def test_each_format_is_accepted_at_each_of_its_rates_and_at_its_default() -> None:
    for audio_format in FORMATS:
        assert set(FORMATS[audio_format].sample_rates) <= set(SAMPLE_RATES)
        for sample_rate in SAMPLE_RATES:
            fields = {"text": "Hi.", "format": audio_format, "sample_rate": sample_rate}
            if sample_rate in FORMATS[audio_format].sample_rates:
                assert parse(fields).sample_rate == sample_rate
            else:
                with pytest.raises(BadRequest):
                    parse(fields)
        assert parse({"text": "Hi.", "format": audio_format}).sample_rate == (8000 if audio_format == "ulaw" else 24000)


def test_fields_from_elsewhere_are_checked_alike() -> None:
    assert build_request({"text": "Hi.", "voice": "am_adam"}, LIMITS, NOW_S).voice == "am_adam"
    with pytest.raises(BadRequest):
        build_request({"text": "Hi.", "speed": "1"}, LIMITS, NOW_S)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(), lambda inner: st.lists(inner, max_size=3)
)
FIELDS = st.dictionaries(st.sampled_from([*SpeechRequest.model_fields, "other"]), JSON)


@given(st.binary() | st.text().map(str.encode) | FIELDS.map(lambda fields: json.dumps(fields).encode()))
def test_any_body_gives_a_request_or_a_speech_error(body: bytes) -> None:
    with suppress(SpeechError):
        request = parse_invocation(body, LIMITS, NOW_S)
        assert request.text.strip()
        assert 0.25 <= request.speed <= 4.0
