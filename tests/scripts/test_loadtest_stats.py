"""The load test's pure parts: what a listener hears, what is counted, when sessions begin, what is said."""

import asyncio
import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scripts.capacity.ladder import Rung, q_max
from scripts.capacity.queue import closed_load
from scripts.loadtest.arrivals import answers_of, closed_loop, open_loop, tide
from scripts.loadtest.ladder import NEVER_S, climb, next_concurrency, rung_of
from scripts.loadtest.report import failure_table, heard_table, ratio_table, tables
from scripts.loadtest.speech import as_one_text, as_sentences, as_tokens, script, tokens
from scripts.loadtest.stats import Answer, Outcome, audio_per_s, judged, playback, round_ratios, summary
from scripts.plan_capacity import ONE_LOCK

WHOLE = Answer(
    server="ours",
    route="invocations",
    round=0,
    sessions=2,
    session=0,
    number=0,
    request_id="load-0-invocations-0-0-0",
    outcome=Outcome.COMPLETE,
    reason="",
    sentences=1,
    characters=20,
    late_s=0.001,
    began_s=1.0,
    connect_s=0.01,
    ttfa_s=0.2,
    last_audio_s=3.0,
    ended_s=3.1,
    audio_s=6.0,
    gaps=0,
    silent_s=0.0,
    longest_gap_s=0.0,
    retry_after_s=None,
)


def unheard(outcome=Outcome.REFUSED, reason="status 503", **changes):
    silence = {"ttfa_s": None, "last_audio_s": None, "audio_s": 0.0, "ended_s": 0.4}
    return replace(WHOLE, outcome=outcome, reason=reason, **silence, **changes)


@pytest.mark.parametrize(
    ("arrivals", "gaps", "silent_s", "longest_s"),
    [
        ([(3.0, 1.0)], 0, 0.0, 0.0),
        ([(3.0, 1.0), (3.1, 1.0), (4.9, 1.0)], 0, 0.0, 0.0),  # before it ran dry
        ([(3.0, 1.0), (4.0, 1.0)], 0, 0.0, 0.0),  # at that very moment
        ([(3.0, 1.0), (4.5, 1.0), (7.0, 1.0)], 2, 2.0, 1.5),
        ([(3.0, 1.0), (4.5, 1.0), (5.6, 1.0)], 2, 0.6, 0.5),  # a gap puts off what comes after it
        ([(3.0, 1.0), (4.5, 1.0), (5.5, 1.0)], 1, 0.5, 0.5),
        ([(3.0, 1.0), (4.004, 1.0)], 0, 0.004, 0.004),  # too short to hear
        ([(0.0, 1.0), (2.0, 1.0)], 1, 1.0, 1.0),
    ],
)
def test_a_gap_is_heard_when_audio_comes_after_what_was_there_is_played(arrivals, gaps, silent_s, longest_s):
    heard = playback(arrivals)
    assert heard.gaps == gaps
    assert (heard.silent_s, heard.longest_gap_s) == pytest.approx((silent_s, longest_s))


def test_where_nothing_came_nothing_is_played():
    assert playback([]).ends_s == -math.inf


@given(st.lists(st.tuples(st.floats(0, 5), st.floats(0.01, 5)), min_size=1))
def test_playback_lasts_from_the_first_byte_through_all_audio_and_all_silence(steps):
    at_s, arrivals = 0.0, []
    for pause_s, duration_s in steps:
        at_s += pause_s
        arrivals.append((at_s, duration_s))
    heard = playback(arrivals)
    audio_s = sum(duration_s for _, duration_s in arrivals)
    assert heard.ends_s == pytest.approx(arrivals[0][0] + audio_s + heard.silent_s)
    assert playback([(arrivals[0][0], duration_s) for _, duration_s in arrivals]).silent_s == 0.0


@pytest.mark.parametrize(
    ("failure", "busy", "audio_s", "outcome", "reason"),
    [
        ("", False, 1.5, Outcome.COMPLETE, ""),
        ("", False, 0.0, Outcome.FAILED, "complete without audio"),
        ("", False, 0.3, Outcome.CUT, "complete with too little audio"),
        ("status 503", True, 0.0, Outcome.REFUSED, "status 503"),
        ("status 500", False, 0.0, Outcome.FAILED, "status 500"),
        ("the connection broke", False, 0.3, Outcome.CUT, "the connection broke"),
        ("queue_saturated", True, 0.3, Outcome.CUT, "queue_saturated"),  # of its second sentence
    ],
)
def test_an_answer_ends_in_one_of_four_ways(failure, busy, audio_s, outcome, reason):
    assert judged(failure, busy=busy, audio_s=audio_s, characters=20) == (outcome, reason)


def test_failures_are_counted_and_are_in_no_percentile():
    slow = unheard(Outcome.CUT, "the connection broke")
    found = summary([WHOLE, replace(slow, ttfa_s=99.0, audio_s=1.0), unheard(), unheard(retry_after_s=2.0)])
    assert (found.answers, found.errors) == (4, 3)
    assert found.outcomes == {Outcome.COMPLETE: 1, Outcome.CUT: 1, Outcome.REFUSED: 2}
    assert found.reasons[Outcome.REFUSED, "status 503"] == 2
    assert (found.slowest_refusal_s, found.without_retry_after) == (0.4, 1)
    assert found.ttfa_s == pytest.approx((0.2, 0.2, 0.2))


def test_where_all_failed_there_are_no_percentiles():
    found = summary([unheard(), unheard()])
    assert found.ttfa_s is None
    assert found.audio_per_s == 0.0
    with pytest.raises(ValueError):
        summary([])


def test_audio_per_second_is_over_the_time_from_first_text_to_last_audio_of_each_round():
    answers = [WHOLE, replace(WHOLE, began_s=2.0, last_audio_s=4.0), replace(WHOLE, round=1, began_s=50.0)]
    assert audio_per_s(answers) == pytest.approx(3 * 6.0 / (5.0 + 3.0))


def test_ratios_are_taken_round_by_round():
    theirs = [replace(WHOLE, server="plain", ttfa_s=0.6), replace(WHOLE, server="plain", round=1, ttfa_s=0.8)]
    ours = [WHOLE, replace(WHOLE, round=1, ttfa_s=0.4), replace(WHOLE, round=2)]
    assert round_ratios(ours, theirs) == pytest.approx([3.0, 2.0])
    assert round_ratios(ours, [unheard(server="plain")]) == []


def test_failures_are_told_before_any_percentile():
    told = tables([WHOLE, unheard(retry_after_s=1.0), replace(WHOLE, server="plain", ttfa_s=0.6)], "ours")
    lines = told.splitlines()
    assert lines[0].startswith("| server | route | answers | failed | refused | cut |")
    assert "| ours | invocations | 2 | 0 | 1 | 0 | 0.400 | 0 |" in lines
    assert "- ours, invocations: 1 refused: status 503" in lines
    assert told.index("refused: status 503") < told.index("TTFA")
    assert "| plain | invocations | 3.00 | 3.00 | 3.00 | 3.00 to 3.00 | 1.00 |" in lines


def test_a_server_that_only_failed_has_no_figures_and_no_ratio():
    by_group = {("ours", "openai"): [WHOLE], ("plain", "openai"): [unheard()], ("plain", "invocations"): [WHOLE]}
    summaries = {group: summary(answers) for group, answers in by_group.items()}
    assert "| plain | openai | 1 | 0 | 1 | 0 | 0.400 | 1 |" in failure_table(summaries)
    assert "| plain | openai | – | – | – |" in heard_table(summaries)
    assert ratio_table(by_group, "ours").splitlines()[2:] == ["| plain | openai | – | – | – | – | 0.00 |"]


@given(st.floats(0.1, 50), st.integers(1, 50), st.text(max_size=5))
def test_open_arrivals_are_in_order_and_the_seed_decides_them(rate_per_s, answers, seed):
    sessions = open_loop(rate_per_s, answers, seed)
    assert answers_of(sessions) == len(sessions) == answers
    assert [one.starts_s for one in sessions] == sorted(one.starts_s for one in sessions)
    assert sessions == open_loop(rate_per_s, answers, seed) != open_loop(rate_per_s, answers, f"{seed}!")


def test_open_arrivals_have_the_rate_and_the_spread_of_poissons():
    starts_s = [one.starts_s for one in open_loop(4.0, 4000, "rate")]
    gaps_s = [after - before for before, after in zip(starts_s, starts_s[1:], strict=False)]
    mean_s = sum(gaps_s) / len(gaps_s)
    assert mean_s == pytest.approx(0.25, rel=0.05)
    assert sum(gap_s > mean_s for gap_s in gaps_s) / len(gaps_s) == pytest.approx(math.exp(-1), abs=0.03)


def test_a_tide_is_low_at_its_ends_and_high_in_its_middle():
    sessions = tide(1.0, 9.0, period_s=100.0, lasts_s=10_000.0, answers=2, seed="0")
    assert {one.answers for one in sessions} == {2}
    assert [one.starts_s for one in sessions] == sorted(one.starts_s for one in sessions)
    at_s = [one.starts_s % 100 for one in sessions]
    assert sum(one_s < 10 for one_s in at_s) / 1000 == pytest.approx(1.26, abs=0.2)
    assert sum(45 <= one_s < 55 for one_s in at_s) / 1000 == pytest.approx(8.93, abs=0.5)


@given(st.integers(1, 40), st.integers(1, 200))
def test_a_closed_loop_shares_its_answers_out_evenly(sessions, answers):
    each = [one.answers for one in closed_loop(sessions, answers)]
    assert (len(each), sum(each)) == (sessions, answers)
    assert max(each) - min(each) <= 1


def test_texts_are_the_seeds_and_of_several_lengths():
    assert script(4, "a") == script(4, "a") != script(4, "b")
    lengths = [len(sentence) for number in range(50) for sentence in script(4, str(number)).sentences]
    assert min(lengths) < 30 < 90 < max(lengths)
    assert all(sentence[-1] == "." for sentence in script(30, "a").sentences)


@given(st.text())
def test_tokens_joined_are_the_text(text):
    assert "".join(tokens(text)) == text


ANSWER = script(3, "dialogue")


def test_one_text_is_sent_whole_and_at_once():
    dialogue = as_one_text(ANSWER, 10.0, "id")
    assert list(dialogue.messages) == [(0.0, {"text": ANSWER.text, "request_id": "id"})]
    assert dialogue.utterances == 1


def test_a_sentence_is_sent_when_its_last_token_has_been_written():
    dialogue = as_sentences(ANSWER, 10.0, "id")
    assert [message["text"] for _, message in dialogue.messages] == list(ANSWER.sentences)
    assert len({message["request_id"] for _, message in dialogue.messages}) == dialogue.utterances == 3
    assert dialogue.messages[0][0] == pytest.approx(len(tokens(ANSWER.sentences[0])) / 10.0)
    assert dialogue.messages[-1][0] == pytest.approx(as_tokens(ANSWER, 10.0, "id").messages[-1][0])


def test_tokens_are_sent_at_the_models_pace_and_then_ended():
    dialogue = as_tokens(ANSWER, 10.0, "id")
    *deltas, (ends_s, end) = dialogue.messages
    assert "".join(message["text"] for _, message in deltas) == ANSWER.text
    assert [at_s for at_s, _ in deltas] == pytest.approx([(number + 1) / 10.0 for number in range(len(deltas))])
    assert (ends_s, end) == (deltas[-1][0], {"type": "text_end"})


@given(st.integers(0, 200), st.integers(1, 128))
def test_the_ladder_finds_what_a_server_carries_in_few_rungs(carries, most):
    measured = []
    while (concurrency := next_concurrency(measured, 0.3, most)) is not None:
        measured.append(Rung(concurrency, 0.1 if concurrency <= carries else 0.5))
    assert len(measured) <= 2 * most.bit_length() + 1
    if carries:
        assert q_max(measured, 0.3) == min(carries, most)
    else:
        assert measured == [Rung(1, 0.5)]


@pytest.mark.parametrize("flaw", [{"gaps": 1, "silent_s": 0.5}, {"outcome": Outcome.CUT, "reason": "broke"}])
def test_a_gap_or_an_error_breaks_any_promise(flaw):
    rung = rung_of(5, summary([WHOLE, replace(WHOLE, **flaw)]))
    assert rung.p95_ttfa_s == pytest.approx(0.2)
    assert not rung.keeps(9.0)


def test_a_rung_on_which_nothing_was_heard_keeps_no_promise():
    assert rung_of(5, summary([unheard()])) == Rung(5, NEVER_S, 0, 1)


def test_a_server_behind_one_lock_carries_what_its_published_ladder_says():
    async def measure(concurrency):
        times_s = closed_load(ONE_LOCK, concurrency, way_s=0.006, variation=0.03, answers=400, seed=0)
        return summary([replace(WHOLE, ttfa_s=time_s) for time_s in times_s])

    told = []
    climbed = asyncio.run(climb(measure, 0.3, 64, told.append))
    assert [one.rung.concurrency for one in told] == [1, 2, 4, 8, 6, 5]
    assert [one.rung.concurrency for one in climbed] == [1, 2, 4, 5, 6, 8]
    assert q_max([one.rung for one in climbed], 0.3) == 5


def test_a_ladder_without_time_left_keeps_what_it_has():
    async def measure(concurrency):
        return summary([WHOLE]) if concurrency < 4 else None

    climbed = asyncio.run(climb(measure, 0.3, 64, lambda _: None))
    assert [one.rung.concurrency for one in climbed] == [1, 2]
