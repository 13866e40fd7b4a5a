import numpy as np
import pytest
import soxr

from serve_app.audio.resample import Resampler
from tests.audio.signals import RATE, cut, voice_like

OTHER_RATES = (8_000, 16_000, 22_050, 44_100, 48_000)


def resampled(pieces, rate):
    resampler = Resampler(RATE, rate)
    return np.concatenate([*(resampler.resample(piece) for piece in pieces), resampler.finish()])


@pytest.mark.parametrize("rate", OTHER_RATES)
@pytest.mark.parametrize("pieces", [1, 3, 20, 997])
def test_pieces_give_what_a_one_shot_conversion_gives(rate, pieces):
    samples = voice_like(1.3)
    whole = soxr.resample(samples, RATE, rate, quality="HQ")
    streamed = resampled(cut(samples, pieces), rate)
    assert abs(len(streamed) - round(len(samples) * rate / RATE)) <= 1
    np.testing.assert_allclose(streamed, whole, atol=1e-6)


@pytest.mark.parametrize("rate", OTHER_RATES)
def test_a_tone_keeps_its_pitch_level_and_place(rate):
    t = np.arange(RATE) / RATE
    expected = 0.5 * np.sin(2 * np.pi * 440 * np.arange(rate) / rate)
    streamed = resampled(cut((0.5 * np.sin(2 * np.pi * 440 * t)).astype(np.float32), 7), rate)
    inner = slice(rate // 10, -rate // 10)
    np.testing.assert_allclose(streamed[inner], expected[inner], atol=2e-3)


def test_the_models_own_rate_passes_through_uncopied():
    samples = voice_like(0.1)
    resampler = Resampler(RATE, RATE)
    assert resampler.resample(samples) is samples
    assert len(resampler.finish()) == 0


@pytest.mark.parametrize("rate", OTHER_RATES)
def test_an_utterance_shorter_than_the_filter_is_not_lost(rate):
    streamed = resampled([voice_like(0.005)], rate)
    assert abs(len(streamed) - round(120 * rate / RATE)) <= 1
    assert np.abs(streamed).max() > 0.01


def test_nothing_in_is_nothing_out():
    assert len(resampled([], 16_000)) == 0
    assert len(resampled([np.zeros(0, np.float32)], 16_000)) == 0


def test_one_broken_sample_does_not_spread():
    samples = voice_like(0.5)
    samples[6_000] = np.nan
    assert np.isfinite(resampled([samples], 16_000)).all()
