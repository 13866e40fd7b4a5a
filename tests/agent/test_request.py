"""The payload of an invocation."""

import pytest

from agent.request import parse_request
from serve_app.errors import BadRequest


def test_a_prompt_is_enough():
    request = parse_request({"prompt": "Hi"})
    assert (request.mode, request.voice, request.format, request.sample_rate_hz) == ("bidi", "af_heart", "pcm16", 24000)
    assert request.request_id != parse_request({"prompt": "Hi"}).request_id


@pytest.mark.parametrize(
    ("payload", "word"),
    [
        (["Hi"], "object"),
        ("Hi", "object"),
        (None, "object"),
        ({}, "prompt is missing"),
        ({"prompt": " \n\t"}, "blank"),
        ({"prompt": 5}, "prompt"),
        ({"prompt": "x" * 50_001}, "50000"),
        ({"prompt": "Hi", "mode": "duplex"}, "bidi or batch"),
        ({"prompt": "Hi", "speed": "1"}, "speed"),
        ({"prompt": "Hi", "speed": 9}, "0.25 to 4.0"),
        ({"prompt": "Hi", "speed": float("nan")}, "speed"),
        ({"prompt": "Hi", "format": "flac"}, "pcm16, mp3, ulaw"),
        ({"prompt": "Hi", "sample_rate": 12345}, "sample_rate of pcm16"),
        ({"prompt": "Hi", "format": "ulaw", "sample_rate": 24000}, "sample_rate of ulaw"),
        ({"prompt": "Hi", "heard_s": -1}, "heard_s"),
        ({"prompt": "Hi", "timestamps": 1}, "timestamps"),
    ],
)
def test_a_bad_payload_is_refused_with_a_sentence_that_names_the_field(payload, word):
    with pytest.raises(BadRequest, match=word):
        parse_request(payload)


def test_a_refusal_carries_the_request_id():
    with pytest.raises(BadRequest) as refused:
        parse_request({"prompt": "", "request_id": "r-1"})
    assert refused.value.request_id == "r-1"


@pytest.mark.parametrize(
    ("fields", "rate", "bytes_per_second"),
    [({}, 24000, 48000), ({"sample_rate": 8000}, 8000, 16000), ({"format": "ulaw"}, 8000, 8000),
     ({"format": "mp3"}, 24000, 6000)],
)  # fmt: skip
def test_the_rate_of_the_audio_is_known(fields, rate, bytes_per_second):
    request = parse_request({"prompt": "Hi", **fields})
    assert (request.sample_rate_hz, request.bytes_per_second) == (rate, bytes_per_second)
