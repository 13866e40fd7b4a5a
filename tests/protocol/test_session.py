"""The conversation: what each message does, and what holds under every sequence of them."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serve_app.access.allowance import Allowance
from serve_app.errors import EngineUnavailable, IdleTimeout, Internal, NothingToSpeak, Unauthorized
from serve_app.protocol.messages import (
    ErrorFrame,
    Pong,
    ServerFrame,
    SynthesisCancelled,
    SynthesisComplete,
    SynthesisStart,
    dump_frame,
)
from serve_app.protocol.session import (
    TRANSITIONS,
    Abort,
    Action,
    Begin,
    Close,
    More,
    Send,
    Session,
    SessionLimits,
    State,
)

EPOCH_S = 1_700_000_000.0
LIMITS = SessionLimits(
    max_message_bytes=1_000_000,
    max_text_chars=200,
    max_request_age_s=56.0,
    inbox_messages=3,
    inbox_bytes=100,
    session_idle_timeout_s=600.0,
)


def session(**limits: Any) -> Session:
    return Session("s-1", replace(LIMITS, **limits), 0.0)


def tell(talk: Session, now_s: float = 0.0, **fields: Any) -> list[Action]:
    return talk.receive(json.dumps(fields), now_s, EPOCH_S)


def say(talk: Session, text: str, request_id: str = "r", **fields: Any) -> list[Action]:
    return tell(talk, text=text, request_id=request_id, **fields)


def delta(talk: Session, text: str, **fields: Any) -> list[Action]:
    return tell(talk, type="text_delta", text=text, **fields)


def frames(actions: list[Action]) -> list[ServerFrame]:
    return [action.frame for action in actions if isinstance(action, Send)]


def code_of(actions: list[Action]) -> tuple[str, str]:
    (frame,) = frames(actions)
    assert isinstance(frame, ErrorFrame)
    return frame.request_id, frame.code


def begun(actions: list[Action]) -> Begin:
    (begin,) = (action for action in actions if isinstance(action, Begin))
    return begin


# One message after the other.


def test_a_text_begins_at_once_with_all_its_sentences() -> None:
    start, begin = say(session(), "One is here. Two is there.", voice="bf_emma", speed=1.5, timestamps=True)
    assert start == Send(SynthesisStart("r"))
    assert isinstance(begin, Begin)
    assert (begin.sentences, begin.final) == (("One is here.", "Two is there."), True)
    request = begin.request
    assert (request.voice, request.speed, request.timestamps, request.format) == ("bf_emma", 1.5, True, "pcm")


def test_completion_tells_the_audio_and_the_time_since_the_start() -> None:
    talk = session()
    tell(talk, now_s=10.0, text="Hello.", request_id="r")
    assert talk.completed(1.525, 12.5) == [Send(SynthesisComplete("r", 1.525, 2.5))]


def test_elapsed_time_does_not_count_the_wait_in_the_inbox() -> None:
    talk = session()
    say(talk, "First.", "a")
    tell(talk, now_s=1.0, text="Second.", request_id="b")
    talk.completed(1.0, 5.0)
    assert talk.completed(1.0, 7.0) == [Send(SynthesisComplete("b", 1.0, 2.0))]


def test_what_begins_knows_how_long_it_waited_for_its_turn() -> None:
    talk = session()
    assert begun(tell(talk, now_s=1.0, text="First.", request_id="a")).waited_s == 0.0
    tell(talk, now_s=2.0, text="Second.", request_id="b")
    assert begun(talk.completed(1.0, 5.0)).waited_s == 3.0
    talk.completed(1.0, 6.0)
    assert tell(talk, now_s=7.0, type="text_delta", text="It is still being wr") == []
    assert begun(tell(talk, now_s=9.0, type="text_delta", text="itten. And more")).waited_s == 2.0


def test_messages_wait_in_order_while_one_is_in_hand() -> None:
    talk = session()
    say(talk, "First.", "a")
    assert say(talk, "Second.", "b") == []
    assert say(talk, "Third.", "c") == []
    actions = talk.completed(1.0, 1.0)
    assert frames(actions) == [SynthesisComplete("a", 1.0, 1.0), SynthesisStart("b")]
    assert begun(actions).sentences == ("Second.",)
    assert begun(talk.completed(1.0, 2.0)).sentences == ("Third.",)
    assert talk.completed(1.0, 3.0) == [Send(SynthesisComplete("c", 1.0, 1.0))]


def test_text_without_a_speakable_character_completes_with_no_audio() -> None:
    assert say(session(), "...") == [Send(SynthesisStart("r")), Send(SynthesisComplete("r", 0.0, 0.0))]


def test_text_that_turns_out_to_have_no_sound_completes_with_no_audio() -> None:
    talk = session()
    say(talk, "Hello.")
    assert talk.failed(NothingToSpeak("nothing"), 1.0) == [Send(SynthesisComplete("r", 0.0, 1.0))]


def test_silent_messages_in_the_inbox_do_not_hold_up_the_next() -> None:
    talk = session()
    say(talk, "First.", "a")
    say(talk, "...", "b")
    say(talk, "Third.", "c")
    actions = talk.completed(1.0, 1.0)
    assert [type(frame) for frame in frames(actions)] == [
        SynthesisComplete,
        SynthesisStart,
        SynthesisComplete,
        SynthesisStart,
    ]
    assert begun(actions).request.request_id == "c"


def test_a_failure_is_told_and_the_next_message_begins() -> None:
    talk = session()
    say(talk, "First.", "a")
    say(talk, "Second.", "b")
    actions = talk.failed(Internal("it broke"), 1.0)
    assert frames(actions) == [ErrorFrame("a", "it broke", "internal"), SynthesisStart("b")]
    assert begun(actions).request.request_id == "b"


def test_an_error_that_ends_the_session_is_told_to_all_that_waits() -> None:
    talk = session()
    say(talk, "First.", "a")
    say(talk, "Second.", "b")
    actions = talk.failed(IdleTimeout("gone"), 1.0)
    assert frames(actions) == [ErrorFrame("a", "gone", "idle_timeout"), ErrorFrame("b", "gone", "idle_timeout")]
    assert actions[-1] == Close(1001, "idle_timeout")


def test_duplicate_request_ids_are_two_messages() -> None:
    talk = session()
    say(talk, "First.")
    say(talk, "Second.")
    assert begun(talk.completed(1.0, 1.0)).sentences == ("Second.",)


@pytest.mark.parametrize("report", ["completed", "failed"])
def test_a_report_without_an_utterance_in_hand_is_a_defect(report: str) -> None:
    with pytest.raises(RuntimeError):
        session().completed(1.0, 1.0) if report == "completed" else session().failed(Internal("x"), 1.0)


# Refusals.


def test_bad_frames_name_their_cause_and_the_session_lives_on() -> None:
    talk = session()
    told = [talk.receive(raw, 0.0, EPOCH_S) for raw in (b"\xde\xad\xbe\xef", "not json", '{"type": "shout"}')]
    messages = [frame.message for actions in told for frame in frames(actions) if isinstance(frame, ErrorFrame)]
    assert ["UTF-8" in messages[0], "JSON" in messages[1], "type" in messages[2]] == [True] * 3
    assert {code_of(actions) for actions in told} == {("unknown", "bad_request")}
    assert begun(talk.receive(b'{"text": "Valid."}', 0.0, EPOCH_S)).sentences == ("Valid.",)


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"text": " "}, "bad_request"),
        ({"text": "x" * 201}, "text_too_long"),
        ({"text": "Hi.", "request_timestamp": EPOCH_S - 57}, "request_stale"),
        ({"text": "Hi.", "speed": "1"}, "bad_request"),
        ({"voice": "af_heart"}, "bad_request"),
    ],
)
def test_a_refused_text_is_one_error_with_its_id(fields: dict[str, Any], code: str) -> None:
    talk = session()
    assert code_of(tell(talk, request_id="r", **fields)) == ("r", code)
    assert begun(say(talk, "Next.")).sentences == ("Next.",)


def test_past_the_bound_on_messages_one_is_refused_and_not_kept() -> None:
    talk = session()
    for request_id in "abcd":
        say(talk, "Hi.", request_id)
    assert code_of(say(talk, "Hi.", "e")) == ("e", "queue_saturated")
    spoken = []
    for _ in range(4):
        spoken += [
            frame.request_id for frame in frames(talk.completed(1.0, 1.0)) if isinstance(frame, SynthesisComplete)
        ]
    assert spoken == ["a", "b", "c", "d"]
    assert talk.idle_deadline_s is not None


def test_past_the_bound_on_bytes_one_is_refused_and_a_smaller_one_still_fits() -> None:
    talk = session()
    say(talk, "x" * 150, "a")
    assert say(talk, "\u00e9" * 40, "b") == []
    assert code_of(say(talk, "x" * 21, "c")) == ("c", "queue_saturated")
    assert say(talk, "x" * 20, "d") == []


# Ping, close, idle, shutdown, disconnect.


def test_ping_is_answered_at_once_in_every_state() -> None:
    talk = session()
    for prepare in (
        lambda: [],
        lambda: say(talk, "Hi."),
        lambda: delta(talk, "More"),
        lambda: tell(talk, type="cancel"),
        lambda: delta(talk, "x" * 201),
        lambda: tell(talk, type="close"),
    ):
        prepare()
        assert tell(talk, type="ping") == [Send(Pong())]


def test_close_finishes_what_is_queued_first() -> None:
    talk = session()
    say(talk, "First.", "a")
    say(talk, "Second.", "b")
    assert tell(talk, type="close") == []
    assert Close(1000, "closed") not in talk.completed(1.0, 1.0)
    assert talk.completed(1.0, 2.0) == [Send(SynthesisComplete("b", 1.0, 1.0)), Close(1000, "closed")]


def test_close_with_nothing_queued_closes_at_once() -> None:
    assert tell(session(), type="close") == [Close(1000, "closed")]


def test_close_ends_the_text_that_is_being_fed() -> None:
    talk = session()
    delta(talk, "One is here. Two", request_id="r")
    assert tell(talk, type="close") == [More(("Two",), final=True)]
    assert talk.completed(1.0, 1.0)[-1] == Close(1000, "closed")


def test_messages_after_close_are_ignored_but_cancel_is_heard() -> None:
    talk = session()
    say(talk, "First.", "a")
    tell(talk, type="close")
    for ignored in ('{"text": "Hi."}', "junk", '{"type": "text_end"}', '{"type": "close"}'):
        assert talk.receive(ignored, 0.0, EPOCH_S) == []
    assert delta(talk, "Hi.") == []
    assert tell(talk, type="cancel") == [Abort()]
    assert talk.aborted(0.5, 1.0) == [Send(SynthesisCancelled("a", 0.5)), Close(1000, "closed")]


def test_after_the_end_nothing_comes_out() -> None:
    talk = session()
    tell(talk, type="close")
    assert say(talk, "Hi.") == tell(talk, type="ping") == talk.shutdown(1.0) == talk.tick(9999.0) == []
    assert talk.completed(1.0, 1.0) == talk.failed(Internal("x"), 1.0) == talk.aborted(0.0, 1.0) == []
    assert talk.idle_deadline_s is None


def test_a_silent_session_ends_after_the_idle_timeout() -> None:
    talk = session()
    assert talk.idle_deadline_s == 600.0
    assert talk.tick(599.9) == []
    error, close = talk.tick(600.0)
    assert code_of([error]) == ("unknown", "idle_timeout")
    assert close == Close(1001, "idle_timeout")


def test_text_a_ping_and_the_end_of_an_utterance_put_the_idle_timeout_off() -> None:
    talk = session()
    tell(talk, now_s=200.0, text="Hi.")
    assert talk.idle_deadline_s is None
    assert talk.tick(5000.0) == []
    talk.completed(1.0, 5000.0)
    assert talk.idle_deadline_s == 5600.0
    delta(talk, "Being writ", now_s=5100.0)
    assert talk.idle_deadline_s == 5700.0
    tell(talk, now_s=5200.0, type="ping")
    assert talk.idle_deadline_s == 5800.0


def test_a_client_that_says_nothing_of_sense_is_idle() -> None:
    talk = session()
    for number in range(1, 60):
        tell(talk, now_s=10.0 * number, type="cancel")
        say(talk, " ", now_s=10.0 * number)
        talk.receive("junk", 10.0 * number, EPOCH_S)
    assert talk.idle_deadline_s == 600.0
    assert code_of(talk.tick(600.0)[:1]) == ("unknown", "idle_timeout")


@pytest.mark.parametrize("text", ["unfinished", "One is here. Two is there. And"])
def test_a_client_that_stops_writing_in_the_middle_is_idle_too(text: str) -> None:
    talk = session()
    delta(talk, text, request_id="r")
    actions = talk.tick(600.0)
    if actions == [Abort()]:
        actions = talk.aborted(0.5, 601.0)
    assert code_of(actions[:1]) == ("r", "idle_timeout")
    assert actions[1:] == [Close(1001, "idle_timeout")]


def test_shutdown_finishes_the_message_in_hand_and_refuses_the_rest() -> None:
    talk = session()
    say(talk, "First.", "a")
    say(talk, "Second.", "b")
    assert code_of(talk.shutdown(1.0)) == ("b", "engine_unavailable")
    assert code_of(say(talk, "Third.", "c")) == ("c", "engine_unavailable")
    assert talk.completed(1.0, 2.0) == [Send(SynthesisComplete("a", 1.0, 2.0)), Close(1001, "shutdown")]


def test_shutdown_lets_the_text_in_hand_be_written_to_its_end() -> None:
    talk = session()
    delta(talk, "One is here. Two", request_id="r")
    assert talk.shutdown(1.0) == []
    assert delta(talk, " is there.") == []
    assert tell(talk, type="text_end") == [More(("Two is there.",), final=True)]
    assert talk.completed(1.0, 2.0)[-1] == Close(1001, "shutdown")


def test_shutdown_refuses_a_text_that_has_not_begun() -> None:
    talk = session()
    delta(talk, "unfinished", request_id="r")
    actions = talk.shutdown(1.0)
    assert code_of(actions[:1]) == ("r", "engine_unavailable")
    assert actions[1:] == [Close(1001, "shutdown")]


EXPELLED = Unauthorized("taken back")


def test_a_client_that_is_expelled_hears_why_for_each_of_its_messages() -> None:
    talk = session()
    say(talk, "First.", "a")
    say(talk, "Second.", "b")
    stop, *refused = talk.expel(EXPELLED, 1.0)
    assert stop == Abort()
    assert code_of(refused) == ("b", "unauthorized")
    ended = talk.aborted(0.5, 2.0)
    assert code_of(ended[:1]) == ("a", "unauthorized")
    assert ended[1:] == [Close(1008, "unauthorized")]
    assert say(talk, "Third.", "c") == talk.expel(EXPELLED, 3.0) == []


def test_a_client_that_is_expelled_while_it_is_silent_hears_why_too() -> None:
    actions = session().expel(EXPELLED, 1.0)
    assert code_of(actions[:1]) == ("unknown", "unauthorized")
    assert actions[1:] == [Close(1008, "unauthorized")]


@pytest.mark.parametrize("text", ["unfinished", "One is here. Two"])
def test_a_text_that_is_being_written_when_its_client_is_expelled_ends_as_well(text: str) -> None:
    talk = session()
    delta(talk, text, request_id="r")
    actions = talk.expel(EXPELLED, 1.0)
    if actions == [Abort()]:
        actions = talk.aborted(0.5, 2.0)
    assert code_of(actions[:1]) == ("r", "unauthorized")
    assert actions[1:] == [Close(1008, "unauthorized")]


def test_a_text_is_let_in_as_long_as_anything_of_the_allowance_is_left() -> None:
    talk = Session("s-1", LIMITS, 0.0, Allowance(60))
    begun(say(talk, "A text that is longer than a minute's worth of characters. " * 2, "a"))
    talk.completed(1.0, 1.0)
    assert code_of(tell(talk, 57.9, text="Hi.", request_id="b")) == ("b", "rate_limited")
    begun(tell(talk, 58.1, text="Hi.", request_id="b"))


def test_a_text_that_is_being_written_spends_as_it_comes_and_is_never_broken_off() -> None:
    allowance = Allowance(60)
    talk, other = Session("s-1", LIMITS, 0.0, allowance), Session("s-2", LIMITS, 0.0, allowance)
    for word in ("One is here. ", "And ", "forty ", "are ", "there. ", "All of this is more than it may have. "):
        assert not any(isinstance(frame, ErrorFrame) for frame in frames(delta(talk, word, request_id="r")))
    assert code_of(say(other, "Hi.", "b")) == ("b", "rate_limited")
    assert isinstance(tell(talk, type="text_end")[0], More)
    assert code_of(delta(talk, "Next.", request_id="c")) == ("c", "rate_limited")
    assert delta(talk, " More.", request_id="c") == tell(talk, type="text_end") == []


def test_a_text_that_is_refused_for_another_reason_spends_nothing() -> None:
    allowance = Allowance(60)
    talk = Session("s-1", LIMITS, 0.0, allowance)
    say(talk, "x" * 201)
    say(talk, "Old.", request_timestamp=0)
    allowance.spend(59, 0.0)
    allowance.check(0.0)


def test_a_disconnect_stops_what_is_in_hand_and_forgets_the_rest() -> None:
    talk = session()
    say(talk, "First.", "a")
    say(talk, "Second.", "b")
    assert talk.disconnected() == [Abort()]
    assert talk.aborted(0.1, 1.0) == []
    assert talk.disconnected() == []


# Text that is still being written.


def test_a_fed_text_starts_with_its_first_sentence() -> None:
    talk = session()
    assert delta(talk, "One", request_id="r", voice="bf_emma") == []
    assert delta(talk, " is here.", voice="am_adam") == []
    start, begin = delta(talk, " Two is")
    assert start == Send(SynthesisStart("r"))
    assert isinstance(begin, Begin)
    assert (begin.sentences, begin.final, begin.request.voice) == (("One is here.",), False, "bf_emma")
    assert delta(talk, " there. And") == [More(("Two is there.",), final=False)]
    assert tell(talk, type="text_end") == [More(("And",), final=True)]
    assert talk.completed(2.0, 3.0) == [Send(SynthesisComplete("r", 2.0, 3.0))]


def test_a_fed_text_of_one_sentence_begins_at_its_end() -> None:
    talk = session()
    delta(talk, "Only one", request_id="r")
    begin = begun(tell(talk, type="text_end"))
    assert (begin.sentences, begin.final) == (("Only one",), True)


def test_the_end_is_told_even_if_no_sentence_comes_with_it() -> None:
    talk = session()
    delta(talk, "One is here. ...", request_id="r")
    delta(talk, " \n")
    assert tell(talk, type="text_end") in ([More((), final=True)], [More(("...",), final=True)])


@pytest.mark.parametrize("deltas", [[""], ["...", " ", "\n"], ["\U0001f327"]])
def test_a_fed_text_without_a_speakable_character_completes_with_no_audio(deltas: list[str]) -> None:
    talk = session()
    for text in deltas:
        assert delta(talk, text, request_id="r") == []
    assert tell(talk, type="text_end") == [Send(SynthesisStart("r")), Send(SynthesisComplete("r", 0.0, 0.0))]


def test_a_character_cut_into_two_deltas_is_whole_in_the_sentence() -> None:
    talk = session()
    for text in ("caf\u00e9 \ud840", "\udc0b is\ud83c", " here."):
        delta(talk, text)
    assert begun(tell(talk, type="text_end")).sentences == ("caf\u00e9 \U0002000b is here.",)


def test_a_fed_text_waits_its_turn_and_then_comes_as_far_as_it_is_written() -> None:
    talk = session()
    say(talk, "First.", "a")
    assert delta(talk, "One is here. Two is there. And", request_id="b") == []
    begin = begun(talk.completed(1.0, 1.0))
    assert (begin.sentences, begin.final) == (("One is here.", "Two is there."), False)
    assert tell(talk, type="text_end") == [More(("And",), final=True)]


def test_a_text_behind_a_fed_one_waits_for_it() -> None:
    talk = session()
    delta(talk, "One", request_id="a")
    tell(talk, type="text_end")
    assert say(talk, "Second.", "b") == []
    assert begun(talk.completed(1.0, 1.0)).request.request_id == "b"


def test_a_text_in_the_middle_of_a_fed_one_is_refused_and_feeding_goes_on() -> None:
    talk = session()
    delta(talk, "One", request_id="a")
    assert code_of(say(talk, "Second.", "b")) == ("b", "bad_request")
    delta(talk, " is here.")
    assert begun(tell(talk, type="text_end")).sentences == ("One is here.",)


def test_text_end_without_a_delta_is_refused() -> None:
    assert code_of(tell(session(), type="text_end")) == ("unknown", "bad_request")


def test_deltas_are_not_counted_as_messages_but_a_run_is() -> None:
    talk = session()
    say(talk, "First.", "a")
    for _ in range(50):
        assert delta(talk, "a ", request_id="b") == []
    tell(talk, type="text_end")
    say(talk, "Third.", "c")
    say(talk, "Fourth.", "d")
    assert code_of(delta(talk, "Fifth.", request_id="e")) == ("e", "queue_saturated")
    assert delta(talk, "Still the fifth.") == []
    assert tell(talk, type="text_end") == []
    assert code_of(delta(talk, "Sixth.", request_id="f")) == ("f", "queue_saturated")


def test_a_stale_first_delta_is_one_error_for_the_run() -> None:
    talk = session()
    stale = {"request_id": "r", "request_timestamp": EPOCH_S - 57}
    assert code_of(delta(talk, "One", **stale)) == ("r", "request_stale")
    assert delta(talk, " is here.", **stale) == []
    assert tell(talk, type="text_end") == []


def test_a_fed_text_past_the_length_limit_stops_in_hand_with_one_error() -> None:
    talk = session()
    delta(talk, "One is here. Two", request_id="r")
    assert delta(talk, "x" * 200) == [Abort()]
    assert delta(talk, "x" * 200) == []
    actions = talk.aborted(0.5, 1.0)
    assert code_of(actions) == ("r", "text_too_long")
    assert tell(talk, type="text_end") == []
    assert begun(say(talk, "Next.", "s")).sentences == ("Next.",)


def test_a_fed_text_past_the_length_limit_that_waits_leaves_nothing_behind() -> None:
    talk = session(inbox_bytes=10_000)
    say(talk, "First.", "a")
    delta(talk, "One is here. Two is there.", request_id="b")
    assert code_of(delta(talk, "x" * 200)) == ("b", "text_too_long")
    assert tell(talk, type="text_end") == []
    assert talk.completed(1.0, 1.0) == [Send(SynthesisComplete("a", 1.0, 1.0))]


def test_a_fed_text_past_the_bound_of_the_inbox_is_one_error() -> None:
    talk = session()
    say(talk, "First.", "a")
    told = [frame for _ in range(20) for frame in frames(delta(talk, "One is here. ", request_id="b"))]
    assert [(frame.request_id, frame.code) for frame in told if isinstance(frame, ErrorFrame)] == [
        ("b", "queue_saturated")
    ]


def test_a_fed_text_that_is_spoken_as_it_comes_never_reaches_the_bound_of_the_inbox() -> None:
    talk = session()
    for _ in range(15):
        assert frames(delta(talk, "One is here. ", request_id="b")) in ([], [SynthesisStart("b")])


def test_the_rest_of_a_failed_run_is_swallowed_up_to_its_end() -> None:
    talk = session()
    delta(talk, "One is here. Two", request_id="r")
    assert code_of(talk.failed(Internal("it broke"), 1.0)) == ("r", "internal")
    assert delta(talk, " is there. Three") == []
    assert delta(talk, "x" * 201, request_id="r") == []
    assert tell(talk, type="text_end") == []
    assert code_of(tell(talk, type="text_end")) == ("unknown", "bad_request")


def test_a_delta_with_another_id_after_a_failed_run_is_a_new_one() -> None:
    talk = session()
    delta(talk, "x" * 201, request_id="r")
    delta(talk, "New one", request_id="s")
    assert begun(tell(talk, type="text_end")).request.request_id == "s"


def test_a_text_after_a_failed_run_is_spoken() -> None:
    talk = session()
    delta(talk, "x" * 201, request_id="r")
    assert begun(say(talk, "Next.", "s")).sentences == ("Next.",)
    assert tell(talk, type="text_end") == []


# Barge-in.


def test_cancel_drops_the_queue_and_stops_what_is_spoken() -> None:
    talk = session()
    for request_id in "abc":
        say(talk, "Hi.", request_id)
    assert tell(talk, type="cancel") == [
        Send(SynthesisCancelled("b", 0.0)),
        Send(SynthesisCancelled("c", 0.0)),
        Abort(),
    ]
    assert talk.aborted(0.25, 1.0) == [Send(SynthesisCancelled("a", 0.25))]
    assert begun(say(talk, "Next.", "d")).sentences == ("Next.",)


def test_cancel_with_an_id_drops_only_that_one() -> None:
    talk = session()
    for request_id in "abc":
        say(talk, "Hi.", request_id)
    assert tell(talk, type="cancel", request_id="b") == [Send(SynthesisCancelled("b", 0.0))]
    assert tell(talk, type="cancel", request_id="a") == [Abort()]
    actions = talk.aborted(0.25, 1.0)
    assert frames(actions) == [SynthesisCancelled("a", 0.25), SynthesisStart("c")]


@pytest.mark.parametrize(("fields", "request_id"), [({}, "unknown"), ({"request_id": "late"}, "late")])
def test_a_cancel_that_hits_nothing_is_answered_once(fields: dict[str, str], request_id: str) -> None:
    assert tell(session(), type="cancel", **fields) == [Send(SynthesisCancelled(request_id, 0.0))]


def test_a_second_cancel_is_answered_by_the_same_end() -> None:
    talk = session()
    say(talk, "Hi.")
    assert tell(talk, type="cancel") == [Abort()]
    assert tell(talk, type="cancel") == []
    assert frames(talk.aborted(0.1, 1.0)) == [SynthesisCancelled("r", 0.1)]


def test_what_was_cancelled_ends_as_cancelled_even_if_it_was_just_complete() -> None:
    talk = session()
    say(talk, "Hi.")
    tell(talk, type="cancel")
    assert talk.completed(1.5, 1.0) == [Send(SynthesisCancelled("r", 1.5))]
    assert talk.aborted(1.5, 1.0) == []


def test_the_next_text_waits_until_the_cancelled_one_has_stopped() -> None:
    talk = session()
    say(talk, "Hi.", "a")
    tell(talk, type="cancel")
    assert say(talk, "Next.", "b") == []
    assert begun(talk.aborted(0.1, 1.0)).request.request_id == "b"


@pytest.mark.parametrize("text", ["unfinished", "One is here. Two"])
def test_cancel_while_feeding_ends_the_run_and_forgives_its_late_end(text: str) -> None:
    talk = session()
    delta(talk, text, request_id="r")
    actions = tell(talk, type="cancel")
    if actions == [Abort()]:
        actions = talk.aborted(0.0, 1.0)
    assert actions == [Send(SynthesisCancelled("r", 0.0))]
    assert tell(talk, type="text_end") == []
    assert code_of(tell(talk, type="text_end")) == ("unknown", "bad_request")


def test_a_delta_after_a_cancelled_run_begins_a_new_one() -> None:
    talk = session()
    delta(talk, "unfinished", request_id="r")
    tell(talk, type="cancel")
    delta(talk, "New", request_id="s")
    assert begun(tell(talk, type="text_end")).sentences == ("New",)


def test_cancel_of_another_leaves_the_feeding_alone() -> None:
    talk = session()
    say(talk, "Hi.", "a")
    delta(talk, "One", request_id="b")
    assert tell(talk, type="cancel", request_id="a") == [Abort()]
    talk.aborted(0.0, 1.0)
    delta(talk, " is here.")
    assert begun(tell(talk, type="text_end")).sentences == ("One is here.",)


def test_cancel_frees_a_run_that_had_failed() -> None:
    talk = session()
    delta(talk, "x" * 201, request_id="r")
    assert frames(tell(talk, type="cancel")) == [SynthesisCancelled("unknown", 0.0)]
    delta(talk, "New")
    assert begun(tell(talk, type="text_end")).sentences == ("New",)


# The table, and every sequence.


def test_only_two_messages_have_no_place_and_a_closed_session_hears_none() -> None:
    kinds = {kind for _, kind in TRANSITIONS}
    gaps = {(state, kind.__name__) for state in State for kind in kinds if (state, kind) not in TRANSITIONS}
    closed = {(State.CLOSED, kind.__name__) for kind in kinds}
    assert gaps - closed == {(State.OPEN, "TextEnd"), (State.FEEDING, "Say")}
    assert closed <= gaps


class Runner:
    """Applies actions as the real one does, and refuses what it could not apply."""

    def __init__(self, talk: Session) -> None:
        self.talk = talk
        self.current: Begin | None = None
        self.spoken: list[str] = []
        self.final = self.aborting = self.closed = False
        self.heard: list[ServerFrame] = []
        self.finished: dict[str, str] = {}

    def apply(self, actions: list[Action]) -> None:
        for action in actions:
            assert not self.closed
            match action:
                case Send(frame=frame):
                    json.loads(dump_frame(frame))
                    self.heard.append(frame)
                case Begin():
                    assert self.current is None
                    assert action.sentences
                    self.current, self.final, self.aborting = action, action.final, False
                    self.spoken = list(action.sentences)
                case More(sentences=sentences, final=final):
                    assert self.current is not None
                    assert not self.final
                    assert not self.aborting
                    assert sentences or final
                    self.spoken += sentences
                    self.final = final
                case Abort():
                    assert self.current is not None
                    assert not self.aborting
                    self.aborting = True
                case Close():
                    assert self.current is None
                    self.closed = True

    def report(self, how: str, now_s: float) -> None:
        if self.current is None:
            return
        if how == "completed" and not (self.final or self.aborting):
            return
        current, self.current = self.current, None
        if how == "failed":
            self.apply(self.talk.failed(EngineUnavailable("x"), now_s))
        elif self.aborting and how != "completed":
            self.apply(self.talk.aborted(0.5, now_s))
        elif self.final:
            self.finished[current.request.request_id] = "".join(self.spoken)
            self.apply(self.talk.completed(1.0, now_s))
        else:
            self.current = current

    def ends(self) -> list[str]:
        return [
            frame.request_id
            for frame in self.heard
            if isinstance(frame, SynthesisComplete | SynthesisCancelled | ErrorFrame)
        ]

    def starts(self) -> list[str]:
        return [frame.request_id for frame in self.heard if isinstance(frame, SynthesisStart)]


OPS = st.sampled_from(
    [
        *("say", "say", "delta", "delta", "delta", "end", "end"),
        *("long say", "long delta", "silent", "stale", "ill-typed"),
        *("cancel all", "cancel one", "cancel none", "ping", "junk"),
        *("completed", "completed", "completed", "aborted", "aborted", "failed"),
    ]
)
LAST = st.sampled_from(["close", "shutdown", "expelled", "idle", "nothing"])


@settings(deadline=None)  # a busy machine is no defect
@given(st.lists(OPS, max_size=40), LAST, st.data())
def test_every_message_of_every_conversation_ends_exactly_once_and_in_order(
    ops: list[str], last: str, data: st.DataObject
) -> None:
    talk = session()
    runner = Runner(talk)
    sent: list[str] = []  # texts and runs, in order
    texts: dict[str, str] = {}
    missed: list[str] = []
    run: str | None = None  # the run of deltas that the client is writing
    now_s = 0.0

    def new(text: str) -> str:
        sent.append(f"r{len(sent)}")
        texts[sent[-1]] = text
        return sent[-1]

    def live() -> list[str]:
        return [request_id for request_id in sent if request_id not in runner.ends()]

    for op in ops:
        now_s += 1.0
        match op:
            case "say" | "long say" | "silent" | "stale" | "ill-typed":
                text = {"long say": "Word " * 41, "silent": "..."}.get(op, "One is here. Two is there.")
                odd: dict[str, Any] = {"stale": {"request_timestamp": 0}, "ill-typed": {"speed": "1"}}.get(op, {})
                runner.apply(tell(talk, now_s, text=text, request_id=new(text), **odd))
            case "delta" | "long delta":
                text = "Three is" if op == "delta" else " gone. And on" * 12
                if run is None:
                    run = new("")
                texts[run] += text
                runner.apply(tell(talk, now_s, type="text_delta", text=text, request_id=run))
            case "end":
                if run is not None:
                    runner.apply(tell(talk, now_s, type="text_end"))
                run = None
            case "cancel all":
                before = len(runner.heard)
                hits = live()
                runner.apply(tell(talk, now_s, type="cancel"))
                missed += [] if hits or len(runner.heard) == before else ["unknown"]
                run = None
            case "cancel one" if live():
                hit = data.draw(st.sampled_from(live()))
                runner.apply(tell(talk, now_s, type="cancel", request_id=hit))
                run = None if run == hit else run
            case "cancel none":
                missed.append("never")
                runner.apply(tell(talk, now_s, type="cancel", request_id="never"))
            case "ping":
                runner.apply(tell(talk, now_s, type="ping"))
                assert runner.heard[-1] == Pong()
            case "junk":
                missed.append("unknown")
                runner.apply(talk.receive(data.draw(st.binary(max_size=8)), now_s, EPOCH_S))
            case _:
                runner.report(op, now_s)
        waiting = [each for each in live() if each not in runner.starts()]
        assert len(waiting) <= LIMITS.inbox_messages
        assert sum(len(texts[each]) for each in waiting) <= LIMITS.inbox_bytes

    match last:
        case "close":
            runner.apply(tell(talk, now_s, type="close"))
        case "shutdown":
            runner.apply(talk.shutdown(now_s))
        case "expelled":
            missed += [] if live() else ["unknown"]
            runner.apply(talk.expel(Unauthorized("x"), now_s))
        case "idle" if talk.idle_deadline_s is not None:
            missed += [] if live() else ["unknown"]
            runner.apply(talk.tick(talk.idle_deadline_s))
        case _:
            pass
    if run is not None and not runner.closed:
        runner.apply(tell(talk, now_s, type="text_end"))
    for _ in range(2 * len(sent)):
        runner.report("aborted" if runner.aborting else "completed", now_s)

    assert runner.current is None
    assert runner.closed or last in ("idle", "nothing")
    assert sorted(each for each in runner.ends() if each in sent) == sorted(sent)
    assert sorted(each for each in runner.ends() if each not in sent) == sorted(missed)
    assert runner.starts() == [each for each in sent if each in runner.starts()]
    for request_id, spoken in runner.finished.items():
        assert spoken.replace(" ", "") == texts[request_id].replace(" ", "")


FIELD_NAMES = st.sampled_from(["type", "text", "request_id", "voice", "speed", "request_timestamp", "x"])
FIELD_VALUES = st.sampled_from(["text_delta", "text_end", "cancel", "ping", "close", "One is here. T", "r"]) | st.none()
MESSAGES = st.dictionaries(FIELD_NAMES, FIELD_VALUES | st.floats() | st.text(max_size=5), max_size=4).map(json.dumps)
TYPED = st.builds(
    lambda kind, text: json.dumps({"type": kind, "text": text}),
    st.sampled_from(["text_delta", "text_end", "cancel", "ping"]),
    st.text(max_size=30) | st.just("One is here. Two is there. "),
)


@given(st.lists(st.binary(max_size=10) | st.text(max_size=10) | MESSAGES | TYPED | st.booleans(), max_size=30))
def test_no_frame_of_any_client_raises(received: list[bytes | str | bool]) -> None:
    talk = session(inbox_messages=1, max_text_chars=60)
    runner = Runner(talk)
    for each in received:
        if isinstance(each, bool):
            runner.report("completed" if each else "aborted", 0.0)
        else:
            runner.apply(talk.receive(each, 0.0, EPOCH_S) if not runner.closed else [])
