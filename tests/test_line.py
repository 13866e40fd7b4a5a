import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serve_app.line import Line


def fitted(*measured: tuple[float, float]) -> Line:
    line = Line()
    for x, y in measured:
        line.record(x, y)
    return line


def test_before_any_measurement_all_is_0() -> None:
    assert Line().at(100, 3) == 0


def test_what_is_fixed_and_what_goes_by_x_are_told_apart() -> None:
    line = fitted((20, 0.056), (40, 0.066), (80, 0.086), (30, 0.061))
    assert line.at(20) == pytest.approx(0.056)
    assert line.at(320, 2) == pytest.approx(2 * 0.046 + 320 * 0.0005)


def test_where_all_x_are_alike_all_is_fixed() -> None:
    assert fitted((50, 0.2), (50, 0.2)).at(250, 5) == pytest.approx(1.0)


def test_where_everything_goes_by_x_nothing_is_fixed() -> None:
    line = fitted((20, 0.2), (40, 0.4), (60, 0.6))
    assert line.at(100, 1) == pytest.approx(line.at(100, 7)) == pytest.approx(1.0)


def test_the_latest_measurements_decide() -> None:
    assert fitted(*[(50, 9.0)] * 100, *[(50, 1.0)] * 100).at(50) == pytest.approx(1.0, rel=0.2)


@given(st.integers(0, 1000), st.floats(0.001, 1), st.floats(0.0001, 0.01))
def test_the_line_stays_near_the_truth_whatever_the_noise(seed: int, fixed: float, slope: float) -> None:
    rng = random.Random(seed)
    measured = [(x, (fixed + slope * x) * rng.uniform(0.9, 1.1)) for x in (rng.uniform(10, 200) for _ in range(60))]
    assert fitted(*measured).at(1000, 10) == pytest.approx(10 * fixed + 1000 * slope, rel=0.15)


@given(st.lists(st.tuples(st.floats(1, 500), st.floats(1e-4, 100)), max_size=20))
def test_more_is_never_less(measured: list[tuple[float, float]]) -> None:
    line = fitted(*measured)
    assert 0 <= line.at(50) <= line.at(100) + 1e-9
    assert line.at(100) <= line.at(100, 2) + 1e-9
