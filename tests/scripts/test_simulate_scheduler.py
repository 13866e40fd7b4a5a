"""Virtual time, so that figures may be asserted: the same seed gives the same ones on every machine."""

import pytest

from scripts import simulate_scheduler
from scripts.capacity.queue import ServiceCurve
from scripts.plan_capacity import ONE_LOCK
from scripts.scheduling.load import Answer, Sentence, poisson
from scripts.scheduling.orders import ByDeadline, InOrderOfArrival
from scripts.scheduling.simulation import Conversations, simulate
from scripts.simulate_scheduler import Row, carries, compare

HOUR_S = 3600.0
BATCHES = ServiceCurve({1: 0.056, 16: 0.206})


def answer(session: str, asked_s: float, *lasts_s: float) -> Answer:
    return Answer(session, 0, asked_s, tuple(Sentence(round((one - 0.6) / 0.05), one) for one in lasts_s))


def test_what_is_heard_follows_by_hand() -> None:
    answers = [answer("a", 0.0, 2.0, 2.0, 2.0), answer("b", 0.5, 2.0)]
    a, b = simulate(InOrderOfArrival(1), ServiceCurve({1: 1.0}), answers)
    assert (a.ttfa_s, a.gaps_s, b.ttfa_s) == (1.0, [], 3.5)
    a, b = simulate(ByDeadline(1), ServiceCurve({1: 1.0}), answers)
    assert (a.ttfa_s, a.gaps_s, b.ttfa_s) == (1.0, [], 1.5)


def test_a_gap_is_the_silence_between_two_sentences() -> None:
    [heard] = simulate(InOrderOfArrival(1), ServiceCurve({1: 2.0}), [answer("a", 0.0, 1.0, 3.0, 1.0)])
    assert (heard.ttfa_s, heard.gaps_s) == (2.0, [1.0])


def test_at_80_percent_of_the_published_engine_the_first_audio_comes_four_times_sooner_without_a_gap() -> None:
    rows = compare(ONE_LOCK, 0.8, HOUR_S, seed=0)
    lock, ours = rows["one lock"], rows["by deadline"]
    assert lock.answers == ours.answers > 10_000
    assert 4 * ours.ttfa_s[1] <= lock.ttfa_s[1]
    assert ours.gaps <= lock.gaps == 0
    assert ours.refused == 0


def test_at_90_percent_a_gap_is_a_rarity_and_the_first_audio_comes_ten_times_sooner() -> None:
    rows = compare(ONE_LOCK, 0.9, HOUR_S, seed=0)
    assert 10 * rows["by deadline"].ttfa_s[1] <= rows["one lock"].ttfa_s[1]
    assert rows["by deadline"].gaps <= rows["by deadline"].answers / 5000


def test_past_what_the_engine_can_do_new_answers_are_refused_and_nobody_waits_longer_than_allowed() -> None:
    per_s = 3 / 0.056 / 5
    row = Row.of(simulate(ByDeadline(1), ONE_LOCK, poisson(per_s, 120.0, seed=0)))
    assert 0 < row.refused < row.answers
    assert row.ttfa_s[2] < 40


def test_batches_by_deadline_are_no_worse_than_in_order_of_arrival() -> None:
    rows = compare(BATCHES, 0.8, 300.0, seed=0)
    ours, theirs = rows["batches by deadline"], rows["batches in order of arrival"]
    assert ours.ttfa_s[1] < theirs.ttfa_s[1]
    assert ours.gaps == theirs.gaps == 0


def test_one_card_carries_more_sessions_than_behind_a_lock() -> None:
    lock = carries(lambda: InOrderOfArrival(1), ONE_LOCK, 0.3, 60.0, seed=0)
    ours = carries(lambda: ByDeadline(1), ONE_LOCK, 0.3, 60.0, seed=0)
    assert ours >= 3 * lock > 0


def test_a_session_asks_again_after_it_has_heard_the_answer() -> None:
    talk = Conversations(1, 120.0, pause_s=2.0, seed=0)
    heard = simulate(ByDeadline(1), ONE_LOCK, talk.first, talk)
    assert 3 <= len(heard) <= 12
    assert {round(one.ttfa_s, 6) for one in heard} == {0.056}


def test_the_same_seed_is_the_same_load() -> None:
    assert list(poisson(2.0, 60.0, seed=1)) == list(poisson(2.0, 60.0, seed=1)) != list(poisson(2.0, 60.0, seed=2))


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--hours", "0.02"], ["| one lock |", "| by deadline |"]),
        (["--hours", "0.01", "--service-curve", "1=0.056,16=0.206", "--load", "0.2"], ["| batches by deadline |"]),
    ],
)
def test_the_table_has_a_line_an_order(monkeypatch, capsys, arguments, says) -> None:
    monkeypatch.setattr("sys.argv", ["simulate_scheduler.py", *arguments])
    simulate_scheduler.main()
    out = capsys.readouterr().out
    assert all(line in out for line in says)


def test_the_ladder_has_a_line_an_order(monkeypatch, capsys) -> None:
    monkeypatch.setattr(simulate_scheduler, "LADDER_S", 20.0)
    monkeypatch.setattr("sys.argv", ["simulate_scheduler.py", "--ladder"])
    simulate_scheduler.main()
    assert "| by deadline |" in capsys.readouterr().out
