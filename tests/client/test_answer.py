"""Bodies of answers, under every slicing; no socket."""

import base64
import hashlib
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serve_app.client.answer import open_answer
from serve_app.client.errors import BrokenAnswer, UnexpectedAnswer
from serve_app.client.types import Audio, Chunk, Word
from serve_app.errors import QueueSaturated, SpeechError
from serve_app.protocol.sse import encode_event
from tests.client.hostile import cut, joined
from tests.client.streams import PCM, chunk_event, error_event, events

SSE = "text/event-stream; charset=utf-8"
PCM_24K = "audio/pcm;rate=24000"
WORDS = [{"w": "caf\u00e9", "start_s": 0.0, "end_s": 0.2}, {"w": "\U0001f327", "start_s": 0.2, "end_s": 0.25}]


def read(content_type: str, slices: list[bytes]) -> list[Chunk]:
    answer = open_answer(content_type, "r")
    chunks = [chunk for data in slices for chunk in answer.feed(data)]
    return chunks + list(answer.finish())


def digest(chunks: list[Chunk]) -> str:
    assert all(len(chunk.data) % 2 == 0 for chunk in chunks)
    return hashlib.sha256(joined(chunks)).hexdigest()


@pytest.mark.parametrize("line_end", [b"\n", b"\r\n", b"\r"])
def test_three_audio_events_are_the_same_wherever_the_stream_is_cut(line_end: bytes) -> None:
    stream = events().replace(b"\n", line_end)
    whole = read(SSE, [stream])
    assert len(whole) == 3
    assert digest(whole) == hashlib.sha256(PCM[:30]).hexdigest()
    for border in range(len(stream) + 1):
        assert read(SSE, [stream[:border], stream[border:]]) == whole
    assert read(SSE, [bytes([byte]) for byte in stream]) == whole


def test_pcm_in_pieces_of_odd_length_keeps_every_sample() -> None:
    slices, at = [], 0
    for size in (1, 3, 4063, 2, 1):
        slices.append(PCM[at : at + size])
        at += size
    chunks = read(PCM_24K, slices)
    assert digest(chunks) == hashlib.sha256(PCM).hexdigest()
    assert {chunk.audio for chunk in chunks} == {Audio("pcm", 24000)}


def test_half_a_sample_at_the_end_is_dropped() -> None:
    assert joined(read(PCM_24K, [PCM[:5]])) == PCM[:4]


@given(st.lists(st.binary(max_size=9), min_size=1, max_size=5), st.lists(st.integers(0, 5000), max_size=9))
def test_chunks_of_any_length_in_any_slices_give_the_same_samples(slices: list[bytes], borders: list[int]) -> None:
    audio = b"".join(slices)
    whole_samples = audio[: len(audio) - len(audio) % 2]
    chunks = read(SSE, cut(events(slices), borders))
    assert joined(chunks) == whole_samples
    assert digest(chunks) == hashlib.sha256(whole_samples).hexdigest()


@given(st.binary(min_size=2, max_size=300), st.lists(st.integers(0, 300), max_size=9))
def test_a_binary_answer_in_any_slices_gives_the_same_samples(audio: bytes, borders: list[int]) -> None:
    whole_samples = audio[: len(audio) - len(audio) % 2]
    assert digest(read(PCM_24K, cut(audio, borders))) == hashlib.sha256(whole_samples).hexdigest()


def test_encoded_bytes_pass_as_they_come() -> None:
    assert [chunk.data for chunk in read("audio/mpeg", [PCM[:3], PCM[3:4]])] == [PCM[:3], PCM[3:4]]


def test_words_come_with_the_audio_they_begin_in_and_no_character_is_cut() -> None:
    stream = events(words=WORDS)
    expected = (Word("caf\u00e9", 0.0, 0.2), Word("\U0001f327", 0.2, 0.25))
    raw = stream.replace(rb"\u00e9", "\u00e9".encode()).replace(rb"\ud83c\udf27", "\U0001f327".encode())
    assert raw != stream
    for border in range(len(raw) + 1):
        chunks = read(SSE, [raw[:border], raw[border:]])
        assert [chunk.words for chunk in chunks] == [expected, (), ()]


def test_words_without_audio_after_them_are_not_lost() -> None:
    start, end = events(()).split(b"\n\n", 1)
    words = encode_event("audio_words", {"request_id": "r", "seq": 0, "words": WORDS[:1]})
    (chunk,) = read(SSE, [start + b"\n\n" + words + end])
    assert (chunk.data, chunk.words) == (b"", (Word("caf\u00e9", 0.0, 0.2),))


def test_the_audio_before_an_error_comes_first_even_in_one_slice() -> None:
    stream = events().partition(b"event: audio_stream_end")[0] + error_event()
    answer = open_answer(SSE, "r")
    chunks: list[Chunk] = []
    with pytest.raises(QueueSaturated, match="too much is waiting") as caught:
        chunks.extend(answer.feed(stream))
    assert joined(chunks) == PCM[:30]
    assert caught.value.request_id == "r"


def test_an_error_with_a_code_of_a_newer_server_keeps_it() -> None:
    with pytest.raises(SpeechError) as caught:
        read(SSE, [error_event("brand_new")])
    assert caught.value.code == "brand_new"


def test_an_error_without_a_code_is_internal() -> None:
    with pytest.raises(SpeechError, match="it broke") as caught:
        read(SSE, [encode_event("error", {"request_id": "r", "message": "it broke"})])
    assert caught.value.code == "internal"


@pytest.mark.parametrize(
    ("stream", "failure", "why"),
    [
        (b"", BrokenAnswer, "without audio_stream_end"),
        (events().partition(b"event: audio_stream_end")[0], BrokenAnswer, "without audio_stream_end"),
        (events()[:-1], BrokenAnswer, "without audio_stream_end"),
        (events().replace(chunk_event(1, PCM[9:20]), b""), BrokenAnswer, "chunk 1 "),
        (events().replace(chunk_event(2, PCM[20:30]), b""), BrokenAnswer, "chunks missing"),
        (chunk_event(0, PCM), UnexpectedAnswer, "without audio_stream_start"),
        (events(audio_format="midi"), UnexpectedAnswer, "midi"),
        (events().replace(base64.b64encode(PCM[9:20]), b"%%%"), UnexpectedAnswer, "chunk 1 .* base64"),
        (events().replace(b'"seq":0', b'"seq":"first"'), UnexpectedAnswer, "AudioChunk"),
        (events().replace(b'data: {"request_id":"r","seq":1', b"data: oops"), UnexpectedAnswer, "not JSON"),
        (b"data: " + b"x" * (17 * 1024 * 1024), UnexpectedAnswer, "larger than"),
    ],
)
def test_a_stream_that_breaks_a_rule_is_reported(stream: bytes, failure: type[SpeechError], why: str) -> None:
    with pytest.raises(failure, match=why):
        read(SSE, [stream])


def test_events_of_a_newer_server_and_comments_are_passed_over() -> None:
    start, rest = events().split(b"\n\n", 1)
    stream = start + b"\n\n: still here\n\nevent: audio_mood\ndata: happy\n\n" + rest + error_event()
    assert joined(read(SSE, [stream])) == PCM[:30]


@pytest.mark.parametrize(
    ("content_type", "audio"),
    [
        ("audio/pcm;rate=8000", Audio("pcm", 8000)),
        ("audio/pcm; rate=48000; channels=1", Audio("pcm", 48000)),
        ("audio/pcm", Audio("pcm", 24000)),
        ("Audio/WAV", Audio("wav", None)),
        ("audio/mpeg", Audio("mp3", None)),
        ("audio/mp4", Audio("aac", None)),
        ("audio/ogg", Audio("opus", None)),
        ("audio/flac", Audio("flac", None)),
        ("audio/basic", Audio("ulaw", None)),
    ],
)
def test_the_content_type_says_what_the_bytes_are(content_type: str, audio: Audio) -> None:
    assert read(content_type, [PCM])[0].audio == audio


@pytest.mark.parametrize("content_type", ["", "text/html", "application/json", "audio/midi"])
def test_an_answer_that_is_no_audio_is_refused(content_type: str) -> None:
    with pytest.raises(UnexpectedAnswer, match=re.escape(repr(content_type))):
        open_answer(content_type, "r")


def test_a_binary_answer_without_audio_is_no_answer() -> None:
    with pytest.raises(BrokenAnswer, match="without audio"):
        read(PCM_24K, [])
