"""Audio frames: sizes, sample borders, and no frame that any client could take for a control frame."""

import json
from collections.abc import Callable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from serve_app.protocol.framing import audio_frames, is_control

OBJECTS = [
    b"{}",
    b"{ }",
    b' {"type":"close"}\n',
    b'{"type":"close"}',
    b'{"type":"close"} ',
    b'{"a":{"b":[{}]}}',
    b'{"a":"}{","b":{}}',
    b'{"a":NaN}',
    b'{"a":' + b"1" * 5000 + b"}",
    b'{"a":"\xff\xfe"}',
    b"\xef\xbb\xbf{}",
    b"\r\n{}\t ",
]
TOO_DEEP = b'{"a":' + b"[" * 50_000 + b"]" * 50_000 + b"}"
ENCODINGS = ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le", "utf-32-be"]

DECODERS: dict[str, Callable[[bytes], object]] = {
    "our client": is_control,
    "python, which guesses UTF-16 and UTF-32": json.loads,
    "a browser": lambda frame: json.loads(frame.decode("utf-8-sig", "replace")),
    "one that lets control characters pass": lambda frame: json.loads(frame, strict=False),
}


def taken_for_control(frame: bytes) -> list[str]:
    """The decoders that read a JSON object in a frame."""
    fooled = []
    for name, decode in DECODERS.items():
        try:
            if isinstance(decode(frame), dict):
                fooled.append(name)
        except (ValueError, RecursionError):
            continue
    return fooled


def assert_safe(data: bytes, sample_bytes: int = 2, max_bytes: int = 32768) -> list[bytes]:
    frames = list(audio_frames(data, sample_bytes, max_bytes))
    assert not any(taken_for_control(frame) for frame in frames)
    assert all(0 < len(frame) <= max_bytes for frame in frames)
    assert all(len(frame) % sample_bytes == 0 for frame in frames[:-1])
    assert sum(map(len, frames)) == len(data)
    return frames


def test_plain_audio_is_cut_at_the_largest_whole_number_of_samples() -> None:
    data = bytes(range(256)) * 400
    frames = assert_safe(data, max_bytes=32767)
    assert [len(frame) for frame in frames] == [32766, 32766, 32766, 4102]
    assert b"".join(frames) == data


def test_no_audio_is_no_frame() -> None:
    assert list(audio_frames(b"")) == []


@pytest.mark.parametrize("sample_bytes", [1, 2, 4])
@pytest.mark.parametrize("data", OBJECTS, ids=lambda data: str(data[:24]))
def test_audio_that_spells_an_object_is_cut_inside_it(data: bytes, sample_bytes: int) -> None:
    frames = assert_safe(data, sample_bytes)
    if data.strip(b" \t\r\n\xef\xbb\xbf") not in (b"{}", b"{ }"):
        assert b"".join(frames) == data
        assert len(frames) == 2


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("text", ["{}", '{"type":"close"}', ' {"a": "\N{CLOUD WITH RAIN}"} '])
def test_an_object_in_any_encoding_of_json_is_not_emitted(text: str, encoding: str) -> None:
    for sample_bytes in (1, 2, 4):
        assert_safe(text.encode(encoding), sample_bytes)


def test_an_object_nested_too_deeply_for_us_to_parse_is_cut_too() -> None:
    frames = list(audio_frames(TOO_DEEP, max_bytes=len(TOO_DEEP)))
    assert b"".join(frames) == TOO_DEEP
    assert not any(frame.startswith(b"{") and frame.endswith(b"}") for frame in frames)


def test_one_sample_that_is_an_empty_object_loses_its_lowest_bit_only() -> None:
    (frame,) = audio_frames(b"  {}\n\n")
    assert frame == b"  z}\n\n"
    assert abs(int.from_bytes(b"{}", "little") - int.from_bytes(b"z}", "little")) == 1


def test_bytes_without_sample_borders_are_never_changed() -> None:
    assert list(audio_frames(b" {} ", sample_bytes=1)) == [b" {", b"} "]


def test_an_empty_object_among_other_samples_is_left_as_it_is() -> None:
    data = b"\x01\x02{}\x03\x04"
    assert b"".join(audio_frames(data)) == data


def test_bytes_of_a_codec_may_end_inside_a_sample() -> None:
    assert [len(frame) for frame in audio_frames(b"\x01" * 7, max_bytes=4)] == [4, 3]


NEAR_JSON = st.lists(
    st.sampled_from(
        [b"{", b"}", b"{}", b" ", b"\n", b'"', b'"a"', b":", b",", b"[", b"]", b"1", b"\0", b"\\", b"\xff"]
    ),
    max_size=12,
).map(b"".join)
SPELT = st.dictionaries(
    st.text(max_size=4), st.recursive(st.integers() | st.text(max_size=4), st.lists), max_size=3
).flatmap(
    lambda value: (
        st.sampled_from(ENCODINGS).map(lambda encoding: json.dumps(value, ensure_ascii=False).encode(encoding))
        if json.dumps(value, ensure_ascii=False).isascii()
        else st.just(json.dumps(value).encode())
    )
)
PADDING = st.text(" \t\r\n", max_size=4).map(str.encode)
ADVERSARIAL = NEAR_JSON | st.builds(lambda left, inner, right: left + inner + right, PADDING, SPELT, PADDING)


@given(ADVERSARIAL | st.binary(max_size=300), st.sampled_from([1, 2, 4]), st.sampled_from([4, 8, 32768]))
@example(b"{}", 2, 4)
@example(b'{"":{}}', 2, 8)
@example(b"{}", 1, 8)
def test_no_frame_of_any_audio_is_an_object(data: bytes, sample_bytes: int, max_bytes: int) -> None:
    frames = assert_safe(data, sample_bytes, max_bytes)
    joined = b"".join(frames)
    assert joined.replace(b"z", b"{") == data.replace(b"z", b"{")
    assert joined == data or sample_bytes > 1


@given(st.binary(max_size=2000))
def test_audio_that_holds_no_brace_passes_unchanged(data: bytes) -> None:
    data = data.replace(b"{", b"[")
    assert b"".join(audio_frames(data)) == data


@pytest.mark.parametrize("chunk", [b"", b"{", b"{]", b"[]", b'"{}"', b"{}{}", b"\x7b\x01", b'{"a":"\xff"}', TOO_DEEP])
def test_a_client_takes_anything_but_a_whole_object_for_audio(chunk: bytes) -> None:
    assert is_control(chunk) is None


def test_a_client_takes_a_whole_object_for_control() -> None:
    assert is_control(b' {"type": "pong"}\n') == {"type": "pong"}
