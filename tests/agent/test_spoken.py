"""What was heard: playback simulated from the first audio on, words by their times."""

import pytest

from agent.spoken import Spoken
from serve_app.client.types import Word


def two_sentences() -> Spoken:
    """Two seconds each; the listener got all of it at second 10."""
    spoken = Spoken()
    first = spoken.began("Hello there, friend.")
    first.words += [Word("Hello", 0.1, 0.5), Word("there", 0.6, 1.0), Word("friend", 1.2, 1.8)]
    spoken.handed(first, 2.0, 10.0)
    first.whole = True
    second = spoken.began("Good bye now.")
    spoken.handed(second, 2.0, 10.0)
    second.whole = True
    return spoken


@pytest.mark.parametrize(("now_s", "played_s"), [(10.0, 0.0), (11.5, 1.5), (14.0, 4.0), (99.0, 4.0)])
def test_playback_begins_with_the_first_audio_and_ends_with_the_last(now_s, played_s):
    assert two_sentences().played_s(now_s) == pytest.approx(played_s)


def test_a_listener_who_ran_dry_goes_on_when_more_audio_comes():
    spoken = Spoken()
    one = spoken.began("One two.")
    spoken.handed(one, 1.0, 0.0)
    spoken.handed(one, 1.0, 5.0)
    assert spoken.played_s(5.5) == pytest.approx(1.5)


@pytest.mark.parametrize(
    ("played_s", "text"),
    [
        (0.0, ""),
        (0.05, ""),
        (0.7, "Hello there"),
        (1.5, "Hello there, friend"),
        (1.97, "Hello there, friend."),
        (3.0, "Hello there, friend. Good"),
        (4.0, "Hello there, friend. Good bye now."),
    ],
)
def test_text_is_cut_at_the_last_word_that_had_begun(played_s, text):
    assert two_sentences().text(played_s) == text


def test_an_aside_is_heard_and_not_remembered():
    spoken = Spoken()
    aside = spoken.began("")
    spoken.handed(aside, 1.0, 0.0)
    aside.whole = True
    answer = spoken.began("It is noon.")
    spoken.handed(answer, 1.0, 0.0)
    answer.whole = True
    assert spoken.text(1.0) == ""
    assert spoken.text(2.0) == "It is noon."


def test_nothing_was_heard_of_an_answer_without_audio():
    assert Spoken().text(Spoken().played_s(5.0)) == ""
