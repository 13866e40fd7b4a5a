"""A stack that is locked, overloaded, wedged and left in the middle, in the mode of Ray Serve that is not our own."""

import json
from contextlib import ExitStack

import httpx
import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus

from serve_app.access.keys import new_key
from tests.otlp import paths
from tests.running.conversation import HANG_S, conversation
from tests.running.fragile_app import WEDGE
from tests.running.locked import KEY, bearer

LONG = "A sentence of many tones that last for a while. " * 200


def post(stack, text, key=KEY):
    return httpx.post(f"{stack.http}/invocations", json={"text": text}, headers=bearer(key), timeout=HANG_S)


def session_of(stack, key=KEY):
    return conversation(stack, additional_headers=bearer(key))


def status_of(stack, key):
    """What answers a request to open a session: 101 is yes."""
    try:
        with session_of(stack, key):
            return 101
    except InvalidStatus as refused:
        return refused.response.status_code


def test_messages_are_spoken_in_order_in_this_mode_too(fragile_stack):
    with session_of(fragile_stack) as session:
        session.send(b"\x00\xff\xfe\x01")
        assert session.until("error")[0]["code"] == "bad_request"
        for number in range(20):
            session.say(f"Message number {number}.", request_id=f"m{number}")
        for number in range(20):
            complete, audio = session.until("synthesis_complete")
            assert complete["request_id"] == f"m{number}"
            assert complete["total_duration_s"] == pytest.approx(len(audio) / 48_000, abs=0.001)


def test_an_utterance_is_one_trace_through_the_replicas(fragile_stack, spans):
    with session_of(fragile_stack) as session:
        session.say("Once more.")
        assert session.spoken()
        session.say("Followed.", request_id="followed")
        assert session.spoken()

    def trace(seen):
        (root,) = [span for span in seen if span.attributes.get("request_id") == "followed"] or [None]
        return [span for span in seen if root is not None and span.trace_id == root.trace_id]

    found = trace(spans.wait_for(lambda seen: len(trace(seen)) == 8))
    assert paths(found) == [
        "utterance",
        "utterance > first audio",
        "utterance > segment",
        "utterance > segment > synthesize",
        "utterance > segment > synthesize > pass",
        "utterance > segment > synthesize > queue",
        "utterance > sentence",
        "utterance > sentence > phonemize",
    ]
    assert {span.service for span in found} == {"kokoro-gateway", "kokoro-chunker", "kokoro-engine"}


def test_an_open_session_takes_nothing_from_the_next_one(fragile_stack):
    with session_of(fragile_stack) as idle, session_of(fragile_stack) as busy:
        busy.say("Hello.")
        assert busy.spoken()
        idle.say("Hello.")
        assert idle.spoken()


def test_surplus_sessions_are_refused_and_those_let_in_are_whole(fragile_stack):
    with ExitStack() as opened:
        sessions = [opened.enter_context(session_of(fragile_stack)) for _ in range(4)]
        for _ in range(8):
            with pytest.raises(InvalidStatus) as refused:
                opened.enter_context(session_of(fragile_stack))
            response = refused.value.response
            assert response.status_code == 503
            assert int(response.headers["Retry-After"]) >= 1
            assert json.loads(response.body)["code"] == "queue_saturated"
        for session in sessions:
            session.say("Hello.")
        assert len({session.spoken() for session in sessions}) == 1
        for session in sessions:
            session.send({"type": "close"})
    fragile_stack.line('"event": "session"', '"closed"')
    assert post(fragile_stack, "Hello.").status_code == 200


def test_clients_that_leave_in_the_middle_leave_no_error_behind(fragile_stack):
    for number in range(10):
        with session_of(fragile_stack) as session:
            session.say(LONG, request_id=f"left{number}")
            session.until("synthesis_start")
            assert isinstance(session.receive(), bytes)
        assert fragile_stack.utterance(f"left{number}")["outcome"] == "disconnected"
    noise = [
        line for line in fragile_stack.lines if " ERROR " in line or "GeneratorExit" in line or "Traceback" in line
    ]
    assert noise == []


def test_keys_are_given_and_taken_back_while_it_runs_and_nobody_else_notices(fragile_stack, keys):
    before, after = new_key(), new_key()
    assert {status_of(fragile_stack, before), post(fragile_stack, "Hello.", before).status_code} == {401}

    with session_of(fragile_stack) as other:
        keys.write(alice=before)
        fragile_stack.line("2 keys are in force")
        with session_of(fragile_stack, before) as taken_back:
            taken_back.say("Hello.")
            assert taken_back.spoken()
            keys.write(alice=after)
            assert taken_back.until("error")[0]["code"] == "unauthorized"
            with pytest.raises(ConnectionClosed) as ended:
                taken_back.receive()
            assert ended.value.rcvd.code == 1008
        assert (status_of(fragile_stack, before), status_of(fragile_stack, after)) == (401, 101)
        other.say("Hello.")
        assert other.spoken()
    assert fragile_stack.line('"event": "denied"', '"unknown"')
    assert not any(key in line for line in fragile_stack.lines for key in (KEY, before, after))


def test_a_wedged_engine_is_noticed_and_replaced(fragile_stack):
    """Last in the file: the replica that it hangs is another one afterwards."""
    with session_of(fragile_stack) as session:
        session.say(WEDGE)
        session.until("synthesis_start")
        statuses = {200}
        while 503 not in statuses:
            statuses.add(httpx.get(f"{fragile_stack.http}/ping", timeout=2.0).status_code)
        error, _ = session.until("error")
        assert error["code"] == "engine_unavailable"
    fragile_stack.wait_until_ready(HANG_S)
    assert post(fragile_stack, "Hello.").status_code == 200
