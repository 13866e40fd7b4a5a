from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serve_app.engine.schedule import BatchPolicy, Pending, admit, next_turn, plan_batch
from serve_app.engine.types import Segment
from serve_app.errors import QueueSaturated

ONE = BatchPolicy(max_batch=1)


def segment(name: str) -> Segment:
    """`a0` is the first segment of session a."""
    return Segment(name[0], f"request-{name[0]}", int(name[1:]), phoneme_ids=(1,), voice="v")


def enqueue(waiting: list[Pending], names: str, current: int = 0, first_arrival: int = 0) -> None:
    for arrival, name in enumerate(names.split(), start=first_arrival):
        wanted = segment(name)
        waiting.append(Pending(wanted, arrival, next_turn(wanted.session_id, waiting, current)))


def spoken_order(waiting: list[Pending], policy: BatchPolicy = ONE) -> list[str]:
    order = []
    while waiting:
        for pending in plan_batch(waiting, policy):
            waiting.remove(pending)
            order.append(f"{pending.segment.session_id}{pending.segment.index}")
    return order


@pytest.mark.parametrize(
    ("arrivals", "expected"),
    [
        ("a0 a1 a2", "a0 a1 a2"),
        ("a1 a2 a3 b1 b2", "a1 b1 a2 b2 a3"),
        ("a1 a2 a3 b0 b1", "b0 a1 a2 b1 a3"),
        ("a1 b1 a2 c1 b2 c2", "a1 b1 c1 a2 b2 c2"),
        ("a4 b0 c0", "b0 c0 a4"),
    ],
)
def test_first_segments_go_first_then_sessions_take_turns(arrivals: str, expected: str) -> None:
    waiting: list[Pending] = []
    enqueue(waiting, arrivals)
    assert spoken_order(waiting) == expected.split()


def test_a_late_session_does_not_wait_for_what_others_queued_before() -> None:
    waiting: list[Pending] = []
    enqueue(waiting, "a1 a2 a3 a4 a5")
    served = plan_batch(waiting, ONE)[0]
    waiting.remove(served)
    enqueue(waiting, "b1 b2", current=served.turn, first_arrival=5)
    assert spoken_order(waiting) == ["a2", "b1", "a3", "b2", "a4", "a5"]


def test_a_session_that_asks_one_segment_at_a_time_gets_no_more_than_its_turn() -> None:
    waiting: list[Pending] = []
    enqueue(waiting, "a1 a2 a3 b1 b2 b3 c1")
    order, current, arrivals = [], 0, 7
    while waiting:
        served = plan_batch(waiting, ONE)[0]
        waiting.remove(served)
        current = max(current, served.turn)
        order.append(served.segment.session_id)
        if served.segment.session_id == "c" and served.segment.index < 3:
            enqueue(waiting, f"c{served.segment.index + 1}", current=current, first_arrival=arrivals)
            arrivals += 1
    assert order == list("abcabcabc")


def test_a_batch_takes_the_most_urgent_and_no_more_than_allowed() -> None:
    waiting: list[Pending] = []
    enqueue(waiting, "a1 a2 b1 c0")
    batch = plan_batch(waiting, BatchPolicy(max_batch=3))
    assert [f"{p.segment.session_id}{p.segment.index}" for p in batch] == ["c0", "a1", "b1"]
    assert plan_batch([], ONE) == []


def test_only_a_new_utterance_is_refused_past_the_bound() -> None:
    waiting: list[Pending] = []
    enqueue(waiting, "a0 a1")
    admit(segment("b0"), waiting, max_queue=3)
    with pytest.raises(QueueSaturated):
        admit(segment("b0"), waiting, max_queue=2)
    admit(segment("a2"), waiting, max_queue=2)


@given(st.lists(st.sampled_from("abcd"), max_size=24), st.integers(1, 5))
def test_every_segment_is_spoken_once_and_in_order_and_none_overtakes_by_more_than_a_round(
    sessions: list[str], max_batch: int
) -> None:
    counts: Counter[str] = Counter()
    waiting: list[Pending] = []
    for arrival, session in enumerate(sessions):
        counts[session] += 1  # from 1: later segments only, first segments have their own rule
        enqueue(waiting, f"{session}{counts[session]}", first_arrival=arrival)
    total = dict(counts)
    order = spoken_order(waiting, BatchPolicy(max_batch))
    served: Counter[str] = Counter()
    for name in order:
        served[name[0]] += 1
        assert name == f"{name[0]}{served[name[0]]}"
        for other, wanted in total.items():
            assert served[name[0]] <= served[other] + 1 or served[other] == wanted
    assert dict(served) == total
