import pytest
from hypothesis import given
from hypothesis import strategies as st

from serve_app.access.allowance import UNBOUNDED, Allowance
from serve_app.errors import RateLimited


def wait_s(allowance: Allowance, now_s: float) -> int:
    """What it asks for; 0: a text is let in."""
    try:
        allowance.check(now_s)
    except RateLimited as refused:
        return refused.retry_after_s or 0
    return 0


@pytest.mark.parametrize(
    ("spent", "after_s", "waits_s"),
    [
        (0, 0, 0),
        (599, 0, 0),  # one is left
        (600, 0, 1),  # all of a minute
        (600, 1, 0),
        (1200, 0, 61),  # a text that was longer than what was left is waited for afterwards
        (1200, 60, 1),
        (1200, 61, 0),
        (50_000, 0, 4941),
    ],
)
def test_600_characters_a_minute(spent, after_s, waits_s):
    allowance = Allowance(600)
    allowance.spend(spent, 1000.0)
    assert wait_s(allowance, 1000.0 + after_s) == waits_s


def test_what_was_not_used_for_an_hour_is_a_minutes_worth_all_the_same():
    allowance = Allowance(600)
    allowance.spend(1, 0.0)
    allowance.spend(600, 3600.0)
    assert wait_s(allowance, 3600.0) == 1


def test_without_a_bound_nothing_is_ever_waited_for():
    for now_s in range(10):
        UNBOUNDED.check(now_s)
        UNBOUNDED.spend(10**9, now_s)
    UNBOUNDED.check(0.0)


@given(st.integers(1, 100_000), st.lists(st.tuples(st.integers(0, 50_000), st.floats(0, 120)), max_size=30))
def test_the_wait_that_is_asked_for_is_enough_and_a_second_less_is_not(per_minute, texts):
    allowance, now_s = Allowance(per_minute), 0.0
    for characters, later_s in texts:
        now_s += later_s
        if asked_s := wait_s(allowance, now_s):
            assert wait_s(allowance, now_s + asked_s) == 0
            assert asked_s == 1 or wait_s(allowance, now_s + asked_s - 1.001) > 0
        else:
            allowance.spend(characters, now_s)


@given(st.integers(1, 10_000), st.lists(st.tuples(st.integers(1, 5_000), st.floats(0, 60)), min_size=1, max_size=50))
def test_in_the_long_run_no_more_is_let_in_than_the_rate_a_minutes_worth_and_the_last_text(per_minute, texts):
    allowance, now_s, let_in = Allowance(per_minute), 0.0, 0
    for characters, later_s in texts:
        now_s += later_s
        if not wait_s(allowance, now_s):
            allowance.spend(characters, now_s)
            let_in += characters
            assert let_in <= per_minute * (1 + now_s / 60) + characters + 1e-6 * let_in
