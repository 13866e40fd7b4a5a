"""Control frames: what parses, what is refused and why, what a client reads."""

import json
import math
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serve_app.errors import BadRequest, QueueSaturated
from serve_app.protocol.framing import is_control
from serve_app.protocol.messages import (
    Cancel,
    ClientMessage,
    Close,
    ErrorFrame,
    Ping,
    Pong,
    Say,
    ServerFrame,
    SynthesisCancelled,
    SynthesisComplete,
    SynthesisStart,
    TextDelta,
    TextEnd,
    Words,
    dump_frame,
    error_frame,
    parse_message,
)


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        ('{"text": "Hi."}', Say(text="Hi.", sample_rate=24000)),
        (
            '{"text": "Hi.", "request_id": "r", "speed": 2}',
            Say(text="Hi.", request_id="r", speed=2.0, sample_rate=24000),
        ),
        ('{"type": "text_delta", "text": " wor"}', TextDelta(type="text_delta", text=" wor", sample_rate=24000)),
        ('{"type": "text_end"}', TextEnd(type="text_end")),
        ('{"type": "close", "text": "ignored"}', Close(type="close")),
        ('{"type": "cancel"}', Cancel(type="cancel")),
        ('{"type": "cancel", "request_id": "r"}', Cancel(type="cancel", request_id="r")),
        ('{"type": "ping"}', Ping(type="ping")),
    ],
)
def test_a_message_parses_from_a_text_and_from_a_binary_frame(raw: str, message: ClientMessage) -> None:
    assert parse_message(raw) == message
    assert parse_message(raw.encode()) == message


def test_audio_is_raw_pcm_unless_asked_otherwise() -> None:
    for raw in ('{"text": "Hi."', '{"type": "text_delta", "text": "Hi."'):
        plain, wav = parse_message(raw + "}"), parse_message(raw + ', "format": "wav"}')
        assert isinstance(plain, Say | TextDelta)
        assert isinstance(wav, Say | TextDelta)
        assert (plain.format, wav.format) == ("pcm", "wav")


@pytest.mark.parametrize(
    ("raw", "named"),
    [
        (b"\xde\xad\xbe\xef", "not UTF-8"),
        ("not json", "not JSON"),
        ("[]", "not a JSON object"),
        ("{}", "text is missing"),
        ('{"text": 5}', "text must be a string"),
        ('{"type": "shout"}', "type must be one of text_delta, text_end, close, cancel, ping"),
        ('{"type": null, "text": "Hi."}', "type must be one of"),
        ('{"type": ["close"]}', "type must be one of"),
        ('{"type": "text_delta"}', "text is missing"),
        ('{"type": "text_delta", "text": "a", "format": "ogg"}', "format must be one of wav"),
        ('{"type": "text_delta", "text": "a", "format": "opus", "sample_rate": 44100}', "sample_rate of opus"),
        ('{"type": "cancel", "request_id": 5}', "request_id must be a string"),
        ('{"text": "Hi.", "speed": NaN}', "NaN"),
    ],
)
def test_a_bad_message_is_refused_by_its_cause(raw: str | bytes, named: str) -> None:
    with pytest.raises(BadRequest) as caught:
        parse_message(raw)
    assert named in caught.value.message


def test_a_refusal_carries_the_request_id_of_the_message() -> None:
    for raw in ('{"request_id": "r"}', '{"type": "shout", "request_id": "r"}', '{"text": 1, "request_id": "r"}'):
        with pytest.raises(BadRequest) as caught:
            parse_message(raw)
        assert caught.value.request_id == "r"


@pytest.mark.parametrize(
    ("frame", "fields"),
    [
        (SynthesisStart("r"), {"type": "synthesis_start", "request_id": "r"}),
        (
            SynthesisComplete("r", 1.52549, 0.1),
            {"type": "synthesis_complete", "request_id": "r", "total_duration_s": 1.525, "elapsed_s": 0.1},
        ),
        (
            SynthesisCancelled("r", 0.12345),
            {"type": "synthesis_cancelled", "request_id": "r", "sent_duration_s": 0.123},
        ),
        (
            error_frame(QueueSaturated("too much"), "r"),
            {"type": "error", "request_id": "r", "message": "too much", "code": "queue_saturated"},
        ),
        (
            error_frame(BadRequest("no")),
            {"type": "error", "request_id": "unknown", "message": "no", "code": "bad_request"},
        ),
        (
            Words("r", [{"w": "caf\u00e9", "start_s": 0.0, "end_s": 0.25}]),
            {"type": "words", "request_id": "r", "words": [{"w": "caf\u00e9", "start_s": 0.0, "end_s": 0.25}]},
        ),
        (Pong(), {"type": "pong"}),
    ],
)
def test_a_frame_is_written_as_the_contract_says(frame: ServerFrame, fields: dict[str, object]) -> None:
    assert json.loads(dump_frame(frame)) == fields
    assert ": " not in dump_frame(frame)


def test_a_duration_that_is_no_number_is_not_written() -> None:
    with pytest.raises(ValueError):
        dump_frame(SynthesisComplete("r", math.nan, 0.0))


@given(st.text(st.characters()), st.text(st.characters()))
def test_every_control_frame_is_told_from_audio_by_a_client(request_id: str, message: str) -> None:
    dumped = dump_frame(ErrorFrame(request_id, message, "internal")).encode()
    assert is_control(dumped) == {"type": "error", "request_id": request_id, "message": message, "code": "internal"}


@given(st.binary() | st.text())
def test_any_frame_gives_a_message_or_a_bad_request(raw: bytes | str) -> None:
    with suppress(BadRequest):
        parse_message(raw)
