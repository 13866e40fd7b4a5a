"""Server-sent events: the encoder's bytes, and the decoder under every slicing."""

import base64
import hashlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serve_app.protocol.sse import SseDecoder, SseError, SseEvent, encode_event

CHUNKS = [bytes(range(256)), b"\x7b\x7d" * 40, "caf\u00e9".encode()]
RECORDED = b"".join(
    encode_event("audio_chunk", {"request_id": "r", "seq": seq, "data": base64.b64encode(chunk).decode()})
    for seq, chunk in enumerate(CHUNKS)
)


def decode(*slices: bytes) -> list[SseEvent]:
    decoder = SseDecoder()
    events = [event for each in slices for event in decoder.feed(each)]
    assert not decoder.close()
    return events


def one_byte_at_a_time(stream: bytes) -> list[bytes]:
    return [stream[at : at + 1] for at in range(len(stream))]


def test_an_event_is_a_name_a_line_of_json_and_a_blank_line() -> None:
    assert (
        encode_event("audio_stream_end", {"total_chunks": 2})
        == b'event: audio_stream_end\ndata: {"total_chunks":2}\n\n'
    )
    assert encode_event(None, {"type": "agent_end"}) == b'data: {"type":"agent_end"}\n\n'


@pytest.mark.parametrize("name", ["two\nlines", "two\rlines"])
def test_a_name_of_two_lines_is_refused(name: str) -> None:
    with pytest.raises(ValueError):
        encode_event(name, {})


@pytest.mark.parametrize("line_end", [b"\n", b"\r", b"\r\n"])
def test_a_recorded_stream_gives_the_same_events_wherever_it_is_cut(line_end: bytes) -> None:
    stream = RECORDED.replace(b"\n", line_end)
    whole = decode(stream)
    audio = b"".join(base64.b64decode(event.json()["data"]) for event in whole)
    assert hashlib.sha256(audio).digest() == hashlib.sha256(b"".join(CHUNKS)).digest()
    assert [event.event for event in whole] == ["audio_chunk"] * 3
    for cut in range(len(stream) + 1):
        assert decode(stream[:cut], stream[cut:]) == whole
        assert decode(stream[:cut], b"", stream[cut:]) == whole
    assert decode(*one_byte_at_a_time(stream)) == whole


def test_a_character_cut_in_two_arrives_whole() -> None:
    text = "caf\u00e9 \U0001f327 na\u00efve."
    stream = f"data: {text}\n\n".encode()
    for cut in range(len(stream) + 1):
        assert [event.data for event in decode(stream[:cut], stream[cut:])] == [text]


def test_an_event_is_out_with_the_first_byte_of_its_blank_line() -> None:
    decoder = SseDecoder()
    assert decoder.feed(b"data: x\r\n\r") == [SseEvent("message", "x")]
    assert decoder.feed(b"\ndata: y\r\n\r\n") == [SseEvent("message", "y")]


@pytest.mark.parametrize(
    ("stream", "events"),
    [
        (b"data: a\ndata: b\n\n", [SseEvent("message", "a\nb")]),
        (b"data\n\n", [SseEvent("message", "")]),
        (b"data\ndata\n\n", [SseEvent("message", "\n")]),
        (b"data:x\n\n", [SseEvent("message", "x")]),
        (b"data:  x\n\n", [SseEvent("message", " x")]),
        (b": a comment\n\ndata: x\n: another\n\n", [SseEvent("message", "x")]),
        (b"event: e\n\ndata: x\n\n", [SseEvent("message", "x")]),
        (b"event: e\ndata: x\n\ndata: y\n\n", [SseEvent("e", "x"), SseEvent("message", "y")]),
        (b"id: 7\ndata: x\n\ndata: y\n\n", [SseEvent("message", "x", "7"), SseEvent("message", "y", "7")]),
        (b"id: 7\nid: a\0b\ndata: x\n\n", [SseEvent("message", "x", "7")]),
        (b"id: 7\nid\ndata: x\n\n", [SseEvent("message", "x", "")]),
        (b"\xef\xbb\xbfdata: x\n\n", [SseEvent("message", "x")]),
        (b"\xef\xbb\xbf\xef\xbb\xbfdata: x\n\n", []),
        (b"other: y\ndata: x\n\n", [SseEvent("message", "x")]),
        (b"\n\n\ndata: x\n\n\n", [SseEvent("message", "x")]),
        ("data: a\u2028b\x0b\x0c\x85\n\n".encode(), [SseEvent("message", "a\u2028b\x0b\x0c\x85")]),
        (b"data: \xff\n\n", [SseEvent("message", "\ufffd")]),
    ],
)
def test_the_rules_of_the_standard(stream: bytes, events: list[SseEvent]) -> None:
    assert decode(stream) == events
    assert decode(*one_byte_at_a_time(stream)) == events


def test_the_reconnection_time_is_kept_if_it_is_a_number() -> None:
    decoder = SseDecoder()
    decoder.feed(b"retry: 1500\nretry: soon\nretry: \xd9\xa3\nretry: " + b"1" * 5000 + b"\n\n")
    assert decoder.retry_ms == 1500


@pytest.mark.parametrize("tail", [b"d", b"data: x", b"data: x\n", b"event: e\n", "data: \u00e9".encode()[:-1]])
def test_a_stream_that_ends_inside_an_event_says_so(tail: bytes) -> None:
    decoder = SseDecoder()
    assert len(decoder.feed(RECORDED + tail)) == 3
    assert decoder.close()


@pytest.mark.parametrize("tail", [b"", b": keep-alive\n", b"\n"])
def test_a_stream_that_ends_between_events_is_whole(tail: bytes) -> None:
    decoder = SseDecoder()
    decoder.feed(RECORDED + tail)
    assert not decoder.close()


def test_data_that_is_not_json_is_reported_without_repeating_it() -> None:
    for data in ("{oops", "[1]", "[" * 100_000):
        (event,) = decode(f"event: audio_chunk\ndata: {data}\n\n".encode())
        with pytest.raises(SseError, match="audio_chunk") as caught:
            event.json()
        assert "oops" not in str(caught.value)


@pytest.mark.parametrize("stream", [b"x" * 101, b"data: " + b"x" * 95, b"data: x\n" * 30])
def test_an_event_past_the_bound_is_refused(stream: bytes) -> None:
    with pytest.raises(SseError, match="100 bytes"):
        SseDecoder(max_event_bytes=100).feed(stream)


def test_small_events_and_comments_never_reach_the_bound() -> None:
    decoder = SseDecoder(max_event_bytes=100)
    assert len(decoder.feed(b": still here\ndata: x\n\n" * 50 + b": still here\n" * 50)) == 50


JSON = st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists, max_leaves=5)


@given(
    st.lists(st.tuples(st.sampled_from(["a", "b", None]), st.dictionaries(st.text(), JSON, max_size=3)), max_size=4),
    st.sampled_from(["\n", "\r", "\r\n"]),
    st.lists(st.integers(0, 400), max_size=8),
)
def test_what_is_encoded_is_decoded_in_any_slices(
    sent: list[tuple[str | None, dict[str, Any]]], line_end: str, cuts: list[int]
) -> None:
    stream = b"".join(encode_event(name, data) for name, data in sent).replace(b"\n", line_end.encode())
    borders = [0, *sorted(cuts), len(stream)]
    events = decode(*(stream[start:end] for start, end in zip(borders, borders[1:], strict=False)))
    assert [(event.event, event.json()) for event in events] == [(name or "message", data) for name, data in sent]


@given(st.lists(st.binary(max_size=30)))
def test_any_bytes_give_the_same_events_in_any_slices(slices: list[bytes]) -> None:
    sliced, whole = SseDecoder(), SseDecoder()
    events = [event for each in slices for event in sliced.feed(each)]
    assert whole.feed(b"".join(slices)) == events
    assert whole.close() == sliced.close()


def test_encoded_data_is_plain_ascii() -> None:
    assert json.dumps({"w": "caf\u00e9"}, separators=(",", ":")).encode() in encode_event("words", {"w": "caf\u00e9"})
