import pytest

from serve_app.engine.pass_times import PassTimes


def measured(*passes: tuple[float, float]) -> PassTimes:
    times = PassTimes()
    times.record(10, 60.0)
    for tokens, pass_s in passes:
        times.record(tokens, pass_s)
    return times


def test_the_first_pass_says_nothing_about_the_next() -> None:
    assert PassTimes().seconds(3, 100) == measured().seconds(3, 100) == 0
    assert measured((50, 0.2)).seconds(1, 50) == pytest.approx(0.2)


def test_a_batch_shares_what_is_fixed() -> None:
    times = measured((20, 0.056), (40, 0.066), (80, 0.086))
    assert times.seconds(1, 320) == pytest.approx(0.046 + 320 * 0.0005)


def test_one_slow_pass_does_not_turn_the_estimate_but_many_do() -> None:
    times = measured(*[(50, 0.1)] * 30)
    times.record(50, 20.0)
    assert times.seconds(1, 50) < 0.12
    for _ in range(100):
        times.record(50, 1.0)
    assert times.seconds(1, 50) == pytest.approx(1.0, rel=0.1)
