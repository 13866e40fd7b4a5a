import pytest

from serve_app.server.listener import Listener, Pace


def test_audio_plays_from_when_it_was_handed_on_piece_after_piece() -> None:
    listener = Listener("s")
    assert listener.left_s(100.0) == 0
    listener.hear(2.0, 100.0)
    listener.hear(1.0, 101.0)
    assert listener.left_s(101.0) == pytest.approx(2.0)
    assert listener.left_s(104.0) == 0


def test_after_a_silence_it_plays_from_then_on() -> None:
    listener = Listener("s")
    listener.hear(1.0, 100.0)
    listener.hear(1.0, 110.0)
    assert listener.left_s(110.5) == pytest.approx(0.5)


def test_who_interrupts_hears_nothing_more() -> None:
    listener = Listener("s")
    listener.hear(60.0, 100.0)
    listener.interrupt()
    assert listener.left_s(100.0) == 0


@pytest.mark.parametrize("tokens", [15, 40, 80])
@pytest.mark.parametrize("speed", [0.5, 1.0, 2.0])
def test_the_pace_is_what_was_spoken_lately_whatever_the_speed(tokens: int, speed: float) -> None:
    pace = Pace()
    for number in range(100):
        length = 10 + number % 90
        pace.record(length, 1.0, 0.5 + 0.1 * length)
    assert pace.expected_s(tokens, speed) == pytest.approx(0.5 + 0.1 * tokens / speed, rel=0.15)


def test_before_anything_was_spoken_a_sentence_lasts_as_published() -> None:
    assert Pace().expected_s(33, 1.0) == pytest.approx(2.0, abs=0.5)
