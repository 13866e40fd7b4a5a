"""The planning over a virtual clock: no test here waits."""

import itertools
import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serve_app.engine.schedule import BUCKET_TOKENS, MARGIN_S, PATIENCE_S, Pending, Policy, Schedule
from serve_app.engine.types import MAX_PHONEMES, Segment
from serve_app.errors import QueueSaturated

ONE = Policy(max_batch=1, max_queue=1000, max_wait_s=math.inf)


def segment(name: str, slack_s: float = 0.0, tokens: int = 30, speed: float = 1.0) -> Segment:
    """`a0` is the first segment of session a."""
    return Segment(name[0], f"request-{name[0]}", int(name[1:]), (1,) * tokens, "v", speed, slack_s)


def name_of(pending: Pending) -> str:
    return f"{pending.segment.session_id}{pending.segment.index}"


def filled(policy: Policy, *segments: Segment, now_s: float = 0.0) -> Schedule:
    schedule = Schedule(policy)
    for each in segments:
        schedule.submit(each, now_s)
    return schedule


def timed(policy: Policy, pass_s: float) -> Schedule:
    """A schedule that knows how long a pass over one segment of 30 tokens takes; idle at 0 s."""
    schedule = Schedule(policy)
    for start_s in (-3.0, -2.0, -1.0):
        schedule.submit(segment("z1"), start_s)
        schedule.begin(start_s)
        schedule.end(start_s + pass_s)
    return schedule


def batches(schedule: Schedule, now_s: float = 0.0, pass_s: float = 0.0) -> list[list[str]]:
    """Speak all that waits."""
    spoken = []
    while batch := schedule.begin(now_s):
        spoken.append([name_of(pending) for pending in batch])
        now_s += pass_s
        schedule.end(now_s)
    return spoken


def order(schedule: Schedule, now_s: float = 0.0, pass_s: float = 0.0) -> list[str]:
    return [name for batch in batches(schedule, now_s, pass_s) for name in batch]


def test_silence_goes_first_in_order_of_arrival_then_who_runs_dry_first() -> None:
    waiting = (segment("a3", 25.0), segment("b1", 7.0), segment("c0"), segment("d2", 3.0), segment("e0"))
    assert order(filled(ONE, *waiting)) == ["c0", "e0", "d2", "b1", "a3"]


def test_silence_waits_where_it_would_make_another_listener_hear_a_gap() -> None:
    for slack_s, expected in ((1.0 + MARGIN_S, ["b0", "a1"]), (0.9 + MARGIN_S, ["a1", "b0"])):
        schedule = timed(ONE, pass_s=0.5)
        schedule.submit(segment("a1", slack_s), 0.0)
        schedule.submit(segment("b0"), 0.0)
        assert order(schedule) == expected


def test_the_work_for_all_the_others_counts_not_only_the_next_one() -> None:
    for others, first in ((3, "n0"), (4, "a1")):
        schedule = timed(ONE, pass_s=0.5)
        for name in "abcd"[:others]:
            schedule.submit(segment(f"{name}1", slack_s=2.0 + MARGIN_S), 0.0)
        schedule.submit(segment("n0"), 0.0)
        assert order(schedule)[0] == first


def test_the_patience_of_one_in_silence_ends() -> None:
    schedule = timed(ONE, pass_s=0.5)
    for index in range(12):  # more than can be in time
        schedule.submit(segment(f"{'abcdefghijkl'[index]}1", slack_s=0.4 * (index + 1)), 0.0)
    schedule.submit(segment("z0"), 0.0)
    assert order(schedule, pass_s=0.5).index("z0") == sum(0.4 * (index + 1) <= PATIENCE_S for index in range(12))


def test_what_waits_behind_the_first_segment_of_a_silent_session_is_not_due_yet() -> None:
    schedule = filled(ONE, segment("a0"), segment("a1", slack_s=1.5), segment("b1", slack_s=1.55))
    assert order(schedule, pass_s=0.1) == ["a0", "b1", "a1"]  # a1 is due 1.5 s after a0 is there, at 1.6 s


def test_who_has_been_dry_for_longer_goes_before_who_has_just_come() -> None:
    schedule = filled(ONE, segment("a1", slack_s=0.5))
    schedule.submit(segment("b0"), now_s=0.8)
    assert order(schedule, now_s=0.8) == ["a1", "b0"]


def test_a_segment_is_due_no_earlier_than_the_one_before_it_in_its_utterance() -> None:
    schedule = filled(ONE, segment("a1", slack_s=3.0), segment("a2", slack_s=1.0), segment("b1", slack_s=2.0))
    assert order(schedule) == ["b1", "a1", "a2"]


def test_who_was_served_late_hears_it_from_then_on_and_what_follows_is_due_later() -> None:
    schedule = filled(ONE, segment("a0"), segment("a1", slack_s=2.0))
    schedule.begin(now_s=5.0)
    schedule.submit(segment("b0"), now_s=5.5)
    schedule.end(now_s=6.0)  # a1 is due at 8 s, not at 2
    schedule.submit(segment("c1", slack_s=1.9), now_s=6.0)
    assert order(schedule, now_s=6.0) == ["b0", "c1", "a1"]


def test_who_was_served_in_time_hears_it_after_what_came_before() -> None:
    schedule = filled(ONE, segment("a1", slack_s=1.0), segment("a2", slack_s=3.0))
    schedule.begin(now_s=0.0)
    schedule.end(now_s=0.5)
    schedule.submit(segment("b1", slack_s=2.6), now_s=0.5)
    assert order(schedule, now_s=0.5) == ["a2", "b1"]


def test_a_batch_has_the_most_urgent_segment_and_others_of_its_length() -> None:
    schedule = filled(
        Policy(3, 1000, math.inf),
        segment("a1", slack_s=1.0, tokens=200),
        segment("b0", tokens=40),
        segment("c1", slack_s=2.0, tokens=60),
        segment("d1", slack_s=3.0, tokens=33),
        segment("e1", slack_s=4.0, tokens=50),
        segment("f1", slack_s=5.0, tokens=250),
    )
    assert batches(schedule) == [["b0", "c1", "d1"], ["a1", "f1"], ["e1"]]


def test_slow_speech_is_as_long_as_it_takes_to_hear() -> None:
    schedule = filled(Policy(2, 1000, math.inf), segment("a0", tokens=30, speed=0.25), segment("b0", tokens=120))
    assert batches(schedule) == [["a0", "b0"]]


def test_no_batch_takes_a_segment_before_an_earlier_one_of_its_session() -> None:
    schedule = filled(
        Policy(4, 1000, math.inf),
        segment("a0", tokens=40),
        segment("b1", 1.0, tokens=200),
        segment("b2", 2.0, tokens=40),
    )
    assert batches(schedule) == [["a0"], ["b1"], ["b2"]]


def test_a_segment_that_is_withdrawn_frees_its_place_at_once() -> None:
    schedule = Schedule(Policy(1, 1, math.inf))
    waiting = schedule.submit(segment("a0"), 0.0)
    assert schedule.withdraw(waiting)
    assert not schedule.withdraw(waiting)
    schedule.submit(segment("b0"), 0.0)
    assert order(schedule) == ["b0"]


def test_a_segment_in_the_running_pass_cannot_be_withdrawn() -> None:
    schedule = filled(ONE, segment("a0"))
    [running] = schedule.begin(0.0)
    assert not schedule.withdraw(running)


def test_an_idle_engine_has_nothing_to_plan() -> None:
    assert Schedule(ONE).begin(0.0) == Schedule(Policy(4, 1000, math.inf)).begin(0.0) == []


def test_only_a_new_utterance_is_refused_by_the_number_that_waits() -> None:
    schedule = filled(Policy(1, 2, math.inf), segment("a0"), segment("b0"))
    with pytest.raises(QueueSaturated):
        schedule.submit(segment("c0"), 0.0)
    schedule.submit(segment("b1"), 0.0)
    assert len(schedule) == 3


def test_who_would_wait_too_long_is_refused_and_told_when_not() -> None:
    schedule = timed(Policy(1, 1000, max_wait_s=2.0), pass_s=0.5)
    for name in "abcde":  # the fifth waits 2 s, which is not too long
        schedule.submit(segment(f"{name}0"), 0.0)
    with pytest.raises(QueueSaturated, match="would begin in 3 s. Try again in 1 s") as refused:
        schedule.submit(segment("f0"), 0.0)
    assert refused.value.retry_after_s == 1


def test_what_is_due_later_makes_nobody_wait() -> None:
    schedule = timed(Policy(1, 1000, max_wait_s=2.0), pass_s=0.5)
    for index in range(1, 50):
        schedule.submit(segment(f"a{index}", slack_s=10.0 * index), 0.0)
    schedule.submit(segment("b0"), 0.0)
    assert order(schedule)[0] == "b0"


def test_who_still_hears_something_may_wait_as_much_longer() -> None:
    schedule = timed(Policy(1, 1000, max_wait_s=2.0), pass_s=0.5)
    for name in "abcdefgh":
        schedule.submit(segment(f"{name}1"), 0.0)
    with pytest.raises(QueueSaturated):
        schedule.submit(segment("m0", slack_s=1.0), 0.0)
    schedule.submit(segment("m0", slack_s=2.5), 0.0)


def test_the_running_pass_counts_for_what_is_left_of_it() -> None:
    schedule = timed(Policy(1, 1000, max_wait_s=0.2), pass_s=0.5)
    schedule.submit(segment("a0"), 0.0)
    schedule.begin(0.0)
    with pytest.raises(QueueSaturated):
        schedule.submit(segment("b0"), 0.1)
    schedule.submit(segment("b0"), 0.4)


def test_an_engine_that_takes_batches_is_not_taken_for_slow_because_it_was_idle() -> None:
    schedule = Schedule(Policy(16, 1000, max_wait_s=1.0))
    for start_s, tokens in enumerate((30, 20, 25, 30, 10), start=-9):
        schedule.submit(segment("z1", tokens=tokens), start_s)
        schedule.begin(start_s)
        schedule.end(start_s + 0.046 + tokens / 3000)
    for number in range(60):  # one by one that were 3.4 s
        schedule.submit(Segment(f"s{number}", "r", 0, (1,) * 30, "v"), 0.0)
    assert len(schedule) == 60


segments = st.lists(
    st.tuples(
        st.sampled_from("abcdef"),
        st.floats(0, 20),  # when it comes
        st.floats(0, 5),  # its slack
        st.integers(1, MAX_PHONEMES),
    ),
    max_size=40,
)


def play(
    arrivals: list[tuple[str, float, float, int]], max_batch: int, pass_s: float
) -> list[tuple[float, list[Pending]]]:
    """When each batch began, with its segments. Indices from 1: first segments may be refused."""
    schedule, count = Schedule(Policy(max_batch, 1000, math.inf)), defaultdict[str, int](int)
    ahead = sorted(arrivals, key=lambda arrival: arrival[1])
    now_s, spoken = 0.0, []
    while ahead or len(schedule):
        if not len(schedule):
            now_s = max(now_s, ahead[0][1])
        while ahead and ahead[0][1] <= now_s:
            session, at_s, slack_s, tokens = ahead.pop(0)
            count[session] += 1
            schedule.submit(segment(f"{session}{count[session]}", slack_s, tokens), at_s)
        batch = schedule.begin(now_s)
        assert 1 <= len(batch) <= max_batch
        spoken.append((now_s, batch))
        now_s += pass_s
        schedule.end(now_s)
    return spoken


@given(segments, st.integers(1, 5), st.floats(0.01, 2))
def test_every_segment_is_spoken_once_and_each_session_in_order(
    arrivals: list[tuple[str, float, float, int]], max_batch: int, pass_s: float
) -> None:
    spoken = [pending.segment for _, batch in play(arrivals, max_batch, pass_s) for pending in batch]
    assert len(spoken) == len(arrivals)
    by_session = defaultdict[str, list[int]](list)
    for each in spoken:
        by_session[each.session_id].append(each.index)
    assert all(indices == list(range(1, len(indices) + 1)) for indices in by_session.values())


@given(segments, st.integers(1, 5), st.floats(0.01, 2))
def test_no_segment_shares_a_batch_with_one_of_more_than_twice_its_length(
    arrivals: list[tuple[str, float, float, int]], max_batch: int, pass_s: float
) -> None:
    for _, batch in play(arrivals, max_batch, pass_s):
        assert len({pending.bucket for pending in batch}) == 1
        lengths = [pending.tokens for pending in batch]
        assert max(lengths) <= max(2 * min(lengths), BUCKET_TOKENS[0])


@given(segments, st.floats(0.01, 2))
def test_nobody_starves_whoever_comes_after_a_deadline_goes_later(
    arrivals: list[tuple[str, float, float, int]], pass_s: float
) -> None:
    spoken = [(start_s, batch[0]) for start_s, batch in play(arrivals, 1, pass_s)]
    came_s = dict(enumerate(sorted(arrival[1] for arrival in arrivals)))
    for (_, earlier), (_, later) in itertools.combinations(spoken, 2):
        assert came_s[earlier.arrival] <= later.deadline_s + PATIENCE_S * later.silent


@given(st.lists(st.floats(0.01, 30), min_size=1, max_size=30), st.floats(0.1, 2))
def test_deadlines_are_kept_wherever_any_order_could_keep_them(slacks_s: list[float], pass_s: float) -> None:
    feasible = all(slack_s >= (place + 1) * pass_s for place, slack_s in enumerate(sorted(slacks_s)))
    schedule = Schedule(ONE)
    for number, slack_s in enumerate(slacks_s):
        schedule.submit(Segment(f"s{number}", "r", 1, (1,), "v", slack_s=slack_s), 0.0)
    late_s, now_s = [], 0.0
    while batch := schedule.begin(now_s):
        now_s += pass_s
        schedule.end(now_s)
        late_s.append(now_s - batch[0].deadline_s)
    assert (max(late_s) <= 1e-9) == feasible or math.isclose(max(late_s), 0, abs_tol=1e-9)


@given(st.lists(st.tuples(st.floats(0, 10), st.integers(5, 200)), min_size=3, max_size=40), st.integers(1, 4))
def test_who_comes_back_when_told_is_let_in_or_a_pass_later_if_nobody_else_came(
    queue: list[tuple[float, int]], max_batch: int
) -> None:
    def pass_s(batch: Iterable[Pending]) -> float:
        return 0.05 + 0.01 * sum(pending.tokens for pending in batch)

    def speak(schedule: Schedule, now_s: float) -> float:
        taken_s = pass_s(schedule.begin(now_s))
        schedule.end(now_s + taken_s)
        return now_s + taken_s

    schedule = Schedule(Policy(max_batch, 1000, max_wait_s=1.0))
    for start_s, tokens in ((-90.0, 30), (-80.0, 30), (-70.0, 100), (-60.0, 10)):
        schedule.submit(segment("z1", tokens=tokens), start_s)
        speak(schedule, start_s)
    for number, (slack_s, tokens) in enumerate(queue):
        schedule.submit(Segment(f"s{number}", "r", 1, (1,) * tokens, "v", slack_s=slack_s), 0.0)
    back_s = told_to_come_back_in_s(schedule, 0.0)
    if back_s is not None:
        now_s, a_pass_s = (
            0.0,
            pass_s(Pending(segment("z1", tokens=200), 0, 0.0, silent=False) for _ in range(max_batch)),
        )
        while len(schedule) and now_s < back_s:
            now_s = speak(schedule, now_s)
        again_s = told_to_come_back_in_s(schedule, max(back_s, now_s))
        # Something long that was not due has just begun; and whole seconds are told, rounded up.
        assert again_s is None or again_s <= math.ceil(a_pass_s) + 1


def told_to_come_back_in_s(schedule: Schedule, now_s: float) -> float | None:
    try:
        schedule.submit(segment("n0"), now_s)
    except QueueSaturated as refusal:
        return refusal.retry_after_s
    return None


def test_a_part_costs_what_is_spoken_of_it_and_a_fifth_of_the_rest():
    part = replace(segment("a0", tokens=130, speed=2.0), part=(30, 60))
    assert Pending(part, 0, 0.0, silent=True).tokens == pytest.approx((30 + 0.2 * 100) / 2)
