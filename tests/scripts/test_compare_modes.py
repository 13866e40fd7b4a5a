"""What the comparison of the two modes counts."""

import math

from scripts.compare_modes import Answer, median_of, table


def answer(mode, first_audio_s, error=""):
    return Answer(0, 0, mode, 0.1, first_audio_s, first_audio_s, 0.0, 1.0, 10, error)


def test_failures_are_told_first_and_are_in_no_median():
    answers = [answer("bidi", 0.5), answer("bidi", 99.0, "cut off"), answer("batch", 2.0)]
    lines = table(answers).splitlines()
    assert lines[0] == "answers: 3, of which failed: 1"
    assert "| first_audio_s | 0.500 | 2.000 | 4.00 |" in lines


def test_a_mode_that_only_failed_has_no_figures():
    assert math.isnan(median_of([answer("bidi", 1.0, "cut off")], "bidi", "first_audio_s"))
