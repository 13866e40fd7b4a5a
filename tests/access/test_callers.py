import pytest

from serve_app.access.callers import ANYBODY, Callers
from serve_app.access.keys import dump_key, new_key, parse_keys
from serve_app.errors import RateLimited, TooManySessions, Unauthorized


def test_a_key_in_force_is_let_in_and_others_are_told_why_not():
    key = new_key()
    callers = Callers(parse_keys(dump_key("alice", key)))
    assert (callers.admit(key).name, callers.admit(key).ids) == ("alice", {"key": "alice"})
    with pytest.raises(Unauthorized, match="asks for an API key"):
        callers.admit(None)
    with pytest.raises(Unauthorized) as refused:
        callers.admit("kokoro_guessed")
    assert "guessed" not in refused.value.message


def test_two_keys_of_one_name_share_what_they_may_have_and_it_outlives_a_change_of_the_file():
    old, new, bobs = new_key(), new_key(), new_key()
    both = f"{dump_key('alice', old)}\n{dump_key('alice', new)}\n{dump_key('bob', bobs)}"
    callers = Callers(parse_keys(both), characters_per_minute=100)
    callers.admit(old).allowance.spend(100, 0.0)
    callers.keys = parse_keys(f"{dump_key('alice', new)}\n{dump_key('bob', bobs)}")
    with pytest.raises(RateLimited):
        callers.admit(new).allowance.check(0.0)
    callers.admit(bobs).allowance.check(0.0)


def test_sessions_of_one_key_are_bounded_and_those_of_anybody_are_not():
    key = new_key()
    caller = Callers(parse_keys(dump_key("alice", key)), max_sessions=2).admit(key)
    caller.check_sessions(1)
    with pytest.raises(TooManySessions, match="open: 2"):
        caller.check_sessions(2)
    ANYBODY.check_sessions(10_000)
    assert ANYBODY.ids == {}


def test_requests_of_one_key_are_bounded_and_those_of_anybody_are_not():
    key = new_key()
    caller = Callers(parse_keys(dump_key("alice", key)), max_requests=2).admit(key)
    caller.check_requests(1)
    with pytest.raises(RateLimited, match="in hand: 2") as refused:
        caller.check_requests(2)
    assert refused.value.retry_after_s == 1
    ANYBODY.check_requests(10_000)
