import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from serve_app.audio.pcm import bounded, duration_s, from_s16le, slices, to_s16le

LOUD = [0.0, 1.0, 1.2, -1.0, -1.3, float("nan"), float("inf"), float("-inf")]
QUANTISED = [0, 32767, 32767, -32767, -32767, 0, 32767, -32767]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_loud_and_broken_samples_are_clipped_without_a_sign_flip(dtype):
    pcm = to_s16le(np.array(LOUD, dtype))
    assert np.frombuffer(pcm, "<i2").tolist() == QUANTISED


def test_samples_are_rounded_to_the_nearest_step_and_little_endian():
    assert to_s16le(np.array([0.5, -0.5, 1 / 32767, 0.4 / 32767], np.float32)) == bytes.fromhex("0040 00c0 0100 0000")


@pytest.mark.parametrize(
    "samples", [np.zeros(4, np.int16), np.zeros((1, 4), np.float32), np.zeros(4, np.complex64)], ids=str
)
def test_anything_but_one_channel_of_floats_is_refused(samples):
    with pytest.raises(ValueError):
        to_s16le(samples)


@given(arrays(np.int16, st.integers(0, 50), elements=st.integers(-32767, 32767)))
def test_pcm_survives_the_way_to_float_and_back(values):
    pcm = values.astype("<i2").tobytes()
    assert to_s16le(from_s16le(pcm)) == pcm


@given(arrays(np.float32, st.integers(0, 50), elements=st.floats(width=32)))
def test_no_float_changes_its_sign_when_quantised(samples):
    quantised = np.frombuffer(to_s16le(samples), "<i2")
    assert np.all(quantised * np.sign(bounded(samples)) >= 0)


def test_an_odd_number_of_bytes_is_no_pcm():
    with pytest.raises(ValueError):
        from_s16le(b"\x00\x01\x02")


def test_the_published_byte_counts_are_the_published_durations():
    assert duration_s(73_200 // 2, 24_000) == 1.525
    assert duration_s(108_000 // 2, 24_000) == 2.25


def test_slices_are_the_samples_in_order_and_the_last_may_be_short():
    parts = list(slices(np.arange(7, dtype=np.float32), 3))
    assert [part.tolist() for part in parts] == [[0, 1, 2], [3, 4, 5], [6]]
    assert list(slices(np.zeros(0, np.float32), 3)) == []
