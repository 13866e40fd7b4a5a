from itertools import groupby

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serve_app.audio.seams import SeamJoiner
from tests.audio.signals import RATE, silence, voice_like

FULL_STOP, CUT = False, True


def segment(lead_s=0.35, tail_s=0.5, speech_s=0.6, seed=0):
    """As the model makes them: near-silence at both edges, speech between."""
    return np.concatenate((silence(lead_s, 1e-4), voice_like(speech_s, seed), silence(tail_s, 1e-4)))


def speak(segments):
    """The joined utterance, where its seams are, and how far each segment's start moved."""
    joiner, parts, moved = SeamJoiner(), [], []
    for samples, continues in segments:
        joined = joiner.join(samples, continues=continues)
        parts.append(joined.samples)
        moved.append(joined.trimmed_start_samples)
    borders = np.cumsum([len(part) for part in parts])[:-1]
    return np.concatenate([*parts, joiner.finish()]), borders, moved


def silent_runs_s(utterance):
    """Seconds of each run of silence, in frames of 5 ms below -45 dB of the loudest."""
    frames = utterance[: len(utterance) // 120 * 120].reshape(-1, 120)
    levels = np.sqrt((frames**2).mean(axis=1))
    silent = levels < levels.max() * 10 ** (-45 / 20)
    return [0.005 * len(list(run)) for is_silent, run in groupby(silent) if is_silent]


def gaps_s(utterance):
    """The runs between speech: without the utterance's own start and end."""
    return silent_runs_s(utterance)[1:-1]


def test_an_utterance_of_one_segment_stays_as_the_model_made_it():
    samples = segment(tail_s=0.9)
    utterance, _, moved = speak([(samples, FULL_STOP)])
    np.testing.assert_array_equal(utterance, samples)
    assert moved == [0]


@pytest.mark.parametrize("tail_s", [0.3, 0.5, 0.72, 1.03])
@pytest.mark.parametrize("lead_s", [0.16, 0.25, 0.41])
def test_after_a_full_stop_the_gap_is_a_pause(lead_s, tail_s):
    utterance, _, _ = speak([(segment(lead_s, tail_s), FULL_STOP)] * 4)
    assert len(gaps_s(utterance)) == 3
    assert all(0.15 <= gap <= 0.6 for gap in gaps_s(utterance))


def test_hasty_speech_still_pauses_after_a_full_stop():
    utterance, _, _ = speak([(segment(0.02, 0.03), FULL_STOP)] * 3)
    assert all(0.15 <= gap <= 0.6 for gap in gaps_s(utterance))


@pytest.mark.parametrize("tail_s", [0.0, 0.3, 0.72, 1.03])
@pytest.mark.parametrize("lead_s", [0.0, 0.25, 0.41])
def test_a_cut_between_two_words_leaves_no_dead_air(lead_s, tail_s):
    utterance, _, _ = speak([(segment(0.3, tail_s), CUT), (segment(lead_s, tail_s), CUT), (segment(lead_s), FULL_STOP)])
    assert all(gap <= 0.1 for gap in gaps_s(utterance))


def test_the_first_start_and_the_last_end_stay_untouched():
    first, last = segment(0.4, 0.5, seed=1), segment(0.4, 0.8, seed=2)
    utterance, _, _ = speak([(first, FULL_STOP), (segment(), CUT), (last, FULL_STOP)])
    np.testing.assert_array_equal(utterance[: round(1.0 * RATE)], first[: round(1.0 * RATE)])
    np.testing.assert_array_equal(utterance[-round(1.3 * RATE) :], last[-round(1.3 * RATE) :])


def test_only_silence_is_held_back():
    joined = SeamJoiner().join(segment(0.3, 0.7, 0.6), continues=FULL_STOP)
    assert len(joined.samples) >= round((0.3 + 0.6 + 0.15) * RATE)


def test_speech_lies_where_the_shift_says():
    """Word times are the model's, moved by this."""
    segments = [(segment(0.3, 0.6, seed=k), k == 1) for k in range(4)]
    utterance, borders, moved = speak(segments)
    for start, shift, (samples, _) in zip((0, *borders), moved, segments, strict=True):
        middle = round(0.6 * RATE)
        at = start - shift + middle
        np.testing.assert_array_equal(utterance[at : at + 1_000], samples[middle : middle + 1_000])


def test_put_in_silence_shifts_the_other_way():
    _, _, moved = speak([(segment(0.3, 0.0), FULL_STOP), (segment(0.02), FULL_STOP)])
    assert moved[1] == pytest.approx(-0.18 * RATE, abs=240)


def paused(*steps):
    """The utterance of segments and pauses in seconds, and how far each segment's start moved."""
    joiner, parts, moved = SeamJoiner(), [], []
    for step in steps:
        if isinstance(step, float):
            parts.append(joiner.pause(round(step * RATE)))
        else:
            joined = joiner.join(step, continues=False)
            parts.append(joined.samples)
            moved.append(joined.trimmed_start_samples)
    return np.concatenate([*parts, joiner.finish()]), moved


@pytest.mark.parametrize("lead_s", [0.0, 0.03, 0.35])
@pytest.mark.parametrize("tail_s", [0.0, 0.1, 0.5, 1.5])
@pytest.mark.parametrize("pauses_s", [(0.3,), (1.0,), (10.0,), (0.1, 0.2), (0.02, 0.0, 1.0)])
def test_a_pause_is_as_long_as_asked_for_from_speech_to_speech(lead_s, tail_s, pauses_s):
    before, after = segment(0.35, tail_s, seed=1), segment(lead_s, 0.5, seed=2)
    utterance, (_, moved) = paused(before, *pauses_s, after)
    speech_ends = len(before) - round(tail_s * RATE)
    middle = round((lead_s + 0.3) * RATE)
    at = speech_ends + round(sum(pauses_s) * RATE) + round(0.3 * RATE)
    np.testing.assert_array_equal(utterance[at : at + 1_000], after[middle : middle + 1_000])
    assert gaps_s(utterance) == [pytest.approx(sum(pauses_s), abs=0.011)]
    assert (
        len(utterance) - len(after) + moved == speech_ends + round(sum(pauses_s) * RATE) - round(lead_s * RATE) + moved
    )


def test_a_pause_at_the_start_lasts_until_the_first_speech_and_one_at_the_end_from_the_last_on():
    samples = segment(0.35, 0.5)
    utterance, (moved,) = paused(1.0, samples, 0.7)
    assert silent_runs_s(utterance) == [pytest.approx(1.0, abs=0.006), pytest.approx(0.7, abs=0.006)]
    assert len(utterance) == round((1.0 + 0.6 + 0.7) * RATE)
    assert moved == round((0.35 - 0.04) * RATE)


@pytest.mark.parametrize("pause_s", [0.0, 0.01, 0.2])
def test_a_pause_shorter_than_what_has_left_is_as_short_as_can_be(pause_s):
    utterance, _ = paused(segment(), pause_s, segment())
    assert gaps_s(utterance) == [pytest.approx(0.24, abs=0.006)]


def test_most_of_a_pause_is_there_before_the_next_segment_is():
    joiner = SeamJoiner()
    joiner.join(segment(), continues=FULL_STOP)
    assert len(joiner.pause(2 * RATE)) == round((2 - 0.2 - 0.04) * RATE)
    assert len(joiner.pause(RATE)) == RATE


def test_a_pause_holds_for_one_seam_only():
    utterance, _ = paused(segment(), 2.0, segment(), segment())
    pause, seam = gaps_s(utterance)
    assert pause == pytest.approx(2.0, abs=0.006)
    assert 0.15 <= seam <= 0.6


@pytest.mark.parametrize("tail_s", [0.0, 0.004, 0.1])
def test_a_pause_begins_and_ends_without_a_click(tail_s):
    first, last = segment(0.1, tail_s), segment(0.0)
    first[-10:] += 0.5
    last[:10] += 0.5
    joiner = SeamJoiner()
    parts = [joiner.join(first, continues=FULL_STOP).samples, joiner.pause(RATE), joiner.join(last, False).samples]
    for before, after in zip(parts, parts[1:], strict=False):
        assert abs(float(before[-1]) - float(after[0])) < 0.02


@pytest.mark.parametrize("silent", [silence(0.4), silence(0.0)], ids=len)
def test_a_silent_segment_does_not_change_a_pause_before_or_after_it(silent):
    for steps in ((segment(), 1.0, silent, segment()), (segment(), silent, 1.0, segment())):
        assert gaps_s(paused(*steps)[0]) == [pytest.approx(1.0, abs=0.006)]
    start, _ = silent_runs_s(paused(1.0, silent, segment())[0])
    assert start == pytest.approx(1.0, abs=0.006)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from([0.0, 0.004, 0.1, 0.4]), st.sampled_from([0.0, 0.004, 0.1, 0.7]), st.booleans()),
        min_size=2,
        max_size=5,
    )
)
def test_no_seam_clicks_even_where_the_model_left_no_silence(edges):
    joiner, previous = SeamJoiner(), None
    for lead_s, tail_s, continues in edges:
        samples = segment(lead_s, tail_s, 0.1)
        samples[:10] += 0.5
        samples[-10:] += 0.5
        joined = joiner.join(samples, continues=continues).samples
        if previous is not None:
            assert abs(float(joined[0]) - previous) < 0.02
        previous = float(joined[-1])


@pytest.mark.parametrize("samples", [silence(0.4), silence(0.003), silence(0.0)], ids=len)
def test_a_silent_segment_neither_fails_nor_stretches_the_pause(samples):
    for before, after in ((FULL_STOP, FULL_STOP), (CUT, FULL_STOP), (FULL_STOP, CUT)):
        utterance, _, _ = speak([(segment(), before), (samples, after), (segment(), FULL_STOP)])
        assert all(0.15 <= gap <= 0.6 for gap in gaps_s(utterance))
    utterance, _, _ = speak([(segment(), CUT), (samples, CUT), (segment(), FULL_STOP)])
    assert all(gap <= 0.3 for gap in gaps_s(utterance))
    only, _, _ = speak([(samples, FULL_STOP)])
    np.testing.assert_array_equal(only, samples)


def test_a_silent_last_segment_is_not_lost():
    utterance, _, _ = speak([(segment(), FULL_STOP), (silence(0.4), FULL_STOP)])
    np.testing.assert_array_equal(utterance, np.concatenate((segment(), silence(0.4))))


@pytest.mark.parametrize("tail", [0.0, 0.02, 0.7])
def test_parts_of_one_sentence_follow_each_other_as_they_were_cut(tail):
    """Within their silence, of whatever length it is; but for the fades nothing is added nor taken."""
    one, other = segment(0.3, tail), segment(tail, 0.7)
    joiner = SeamJoiner()
    first = joiner.join(one, continues=False, unfinished=True)
    second = joiner.join(other, continues=False, begun=True)
    assert (first.trimmed_start_samples, second.trimmed_start_samples) == (0, 0)
    joined = np.concatenate([first.samples, second.samples, joiner.finish()])
    expected = np.concatenate([one, other])
    assert np.array_equal(first.samples, one)
    assert len(joined) == len(expected)
    changed = np.flatnonzero(joined != expected)
    assert np.all((changed >= len(one)) & (changed < len(one) + RATE // 200))


def test_a_seam_that_turns_out_to_be_a_cut_is_no_pause():
    joiner = SeamJoiner()
    parts = [joiner.join(segment(0.4, 0.9), continues=False).samples]
    parts += [joiner.join(segment(0.4, 0.9), continues=False, resumes=True).samples for _ in range(2)]
    gaps = gaps_s(np.concatenate([*parts, joiner.finish()]))
    assert len(gaps) == 2
    assert max(gaps) <= 0.3
