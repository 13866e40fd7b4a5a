import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from scripts.codec_table import (
    CLIPS,
    WHISPER_RATE,
    Measured,
    decoded,
    edits,
    plot,
    summaries,
    table,
    words_of,
    write_parquet,
)
from serve_app.audio.encoders import open_encoder
from serve_app.formats import FORMATS
from tests.audio.signals import voice_like

ROWS = [
    Measured("mp3", 0, 6_000, 8_000, 1.0, 0.3, 10, 0),
    Measured("mp3", 1, 18_000, 24_000, 3.0, 0.1, 10, 1),
    Measured("pcm", 0, 48_000, 64_000, 1.0, 0.2, 10, 0),
    Measured("pcm", 1, 144_000, 192_000, 3.0, 0.4, 10, 0),
]
words = st.lists(st.sampled_from("abcd"), max_size=8)


def test_there_are_24_clips_all_different_and_of_plain_words():
    assert len(set(CLIPS)) == 24
    assert all(words_of(clip) == [word.strip(".,?").lower() for word in clip.split()] for clip in CLIPS)


@pytest.mark.parametrize(
    ("reference", "heard", "count"),
    [
        ("a b c", "a b c", 0),
        ("a b c", "", 3),
        ("", "a b", 2),
        ("a b c", "a c", 1),
        ("a b c", "a x c", 1),
        ("a b c", "a b b c", 1),
        ("a b c d", "b c d e", 2),
    ],
)
def test_edits_are_insertions_deletions_and_replacements(reference, heard, count):
    assert edits(reference.split(), heard.split()) == count


@given(words, words, words)
def test_edits_are_a_distance(a, b, c):
    assert edits(a, b) == edits(b, a)
    assert (edits(a, b) == 0) == (a == b)
    assert abs(len(a) - len(b)) <= edits(a, b) <= max(len(a), len(b))
    assert edits(a, c) <= edits(a, b) + edits(b, c)


def test_case_and_punctuation_are_no_words():
    assert words_of(" The train's late, isn't it?  Yes - very.") == [
        "the",
        "train's",
        "late",
        "isn't",
        "it",
        "yes",
        "very",
    ]


@pytest.mark.parametrize("format", FORMATS)
def test_every_format_is_decoded_to_what_whisper_takes(format):
    encoder = open_encoder(format)
    samples = decoded(encoder.encode(voice_like(2)) + encoder.finish(), format)
    assert samples.dtype == np.float32
    assert len(samples) == pytest.approx(2 * WHISPER_RATE, abs=0.12 * WHISPER_RATE)
    assert 0.1 < np.abs(samples).max() < 1


def test_a_summary_adds_up_the_clips_of_a_format():
    pcm, mp3 = summaries(ROWS)
    assert (pcm.format, mp3.format) == ("pcm", "mp3")
    assert (pcm.kbit_per_s, pcm.base64_kbit_per_s) == (384, 512)
    assert (mp3.answer_bytes, mp3.base64_bytes, mp3.kbit_per_s) == (24_000, 32_000, 48)
    assert mp3.first_byte_ms == pytest.approx(200)
    assert (pcm.word_error_rate, mp3.word_error_rate) == (0, 0.05)


def test_the_table_has_a_row_a_format():
    assert table(summaries(ROWS)).splitlines()[2:] == [
        "| pcm | 192000 | 256000 | 384.0 | 512.0 | 300 | 0.0% |",
        "| mp3 | 24000 | 32000 | 48.0 | 64.0 | 200 | 5.0% |",
    ]


def test_parquet_holds_every_measurement(tmp_path):
    write_parquet(ROWS, tmp_path / "codecs.parquet")
    rows = parquet.read_table(tmp_path / "codecs.parquet").to_pylist()
    assert [Measured(**row) for row in rows] == ROWS


def test_the_plot_is_a_png(tmp_path):
    plot(summaries(ROWS), tmp_path / "codecs.png")
    assert (tmp_path / "codecs.png").read_bytes().startswith(b"\x89PNG")
