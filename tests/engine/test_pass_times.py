import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serve_app.engine.pass_times import PassTimes


def measured(*passes: tuple[float, float]) -> PassTimes:
    times = PassTimes()
    times.record(10, 60.0)  # the first one, which loads and captures
    for tokens, pass_s in passes:
        times.record(tokens, pass_s)
    return times


def test_nothing_is_expected_before_the_second_pass() -> None:
    assert PassTimes().seconds(3, 100) == 0
    assert measured().seconds(3, 100) == 0


def test_fixed_costs_and_costs_by_length_are_told_apart() -> None:
    times = measured((20, 0.056), (40, 0.066), (80, 0.086), (30, 0.061))
    assert times.seconds(1, 20) == pytest.approx(0.056)
    assert times.seconds(2, 320) == pytest.approx(2 * 0.046 + 320 * 0.0005)


def test_passes_of_one_length_count_as_they_are() -> None:
    assert measured((50, 0.2), (50, 0.2)).seconds(5, 250) == pytest.approx(1.0)


def test_where_everything_goes_by_length_nothing_is_fixed() -> None:
    times = measured((20, 0.2), (40, 0.4), (60, 0.6))
    assert times.seconds(1, 100) == pytest.approx(times.seconds(7, 100)) == pytest.approx(1.0)


def test_one_slow_pass_does_not_turn_the_estimate_but_many_do() -> None:
    times = measured(*[(50, 0.1)] * 30)
    times.record(50, 20.0)
    assert times.seconds(1, 50) < 0.12
    for _ in range(100):
        times.record(50, 1.0)
    assert times.seconds(1, 50) == pytest.approx(1.0, rel=0.1)


@given(st.integers(0, 1000), st.floats(0.001, 1), st.floats(0.0001, 0.01))
def test_estimates_stay_near_the_truth_whatever_the_noise(seed: int, fixed_s: float, token_s: float) -> None:
    rng, times = random.Random(seed), measured()
    for _ in range(60):
        tokens = rng.uniform(10, 200)
        times.record(tokens, (fixed_s + token_s * tokens) * rng.uniform(0.9, 1.1))
    assert times.seconds(10, 1000) == pytest.approx(10 * fixed_s + 1000 * token_s, rel=0.15)


@given(st.lists(st.tuples(st.floats(1, 500), st.floats(1e-4, 100)), max_size=20))
def test_more_work_never_takes_less(passes: list[tuple[float, float]]) -> None:
    times = measured(*passes)
    assert 0 <= times.seconds(1, 50) <= times.seconds(1, 100) + 1e-9
    assert times.seconds(1, 100) <= times.seconds(2, 100) + 1e-9
