"""What the comparison of the two modes counts."""

import math

import pytest

from scripts.compare_modes import Answer, gaps_s, median_of, table


def answer(mode, first_audio_s, error=""):
    return Answer(0, 0, mode, 0.1, first_audio_s, first_audio_s, 0.0, 1.0, 10, error)


@pytest.mark.parametrize(
    ("arrivals", "silent_s"),
    [
        ([], 0.0),
        ([(3.0, 1.0)], 0.0),
        ([(3.0, 1.0), (3.1, 1.0), (4.9, 1.0)], 0.0),
        ([(3.0, 1.0), (4.5, 1.0), (7.0, 1.0)], 2.0),
    ],
)
def test_a_gap_is_heard_when_audio_comes_after_what_was_there_is_played(arrivals, silent_s):
    assert gaps_s(arrivals) == pytest.approx(silent_s)


def test_failures_are_told_first_and_are_in_no_median():
    answers = [answer("bidi", 0.5), answer("bidi", 99.0, "cut off"), answer("batch", 2.0)]
    lines = table(answers).splitlines()
    assert lines[0] == "answers: 3, of which failed: 1"
    assert "| first_audio_s | 0.500 | 2.000 | 4.00 |" in lines


def test_a_mode_that_only_failed_has_no_figures():
    assert math.isnan(median_of([answer("bidi", 1.0, "cut off")], "bidi", "first_audio_s"))
