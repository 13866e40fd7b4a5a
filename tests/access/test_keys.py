import re
from contextlib import suppress
from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serve_app.access.keys import BadKeys, dump_key, new_key, parse_keys, presented_key

A_DIGEST = sha256(b"a key").hexdigest()


def test_a_key_that_was_made_is_found_under_its_name_and_no_other_key_is():
    keys = {name: new_key() for name in ("alice", "bob")}
    ring = parse_keys("# of the team\n\n" + "\n".join(dump_key(name, key) for name, key in keys.items()))
    for name, key in keys.items():
        found = ring.find(key)
        assert found is not None
        assert found.name == name
        assert ring.find(key[:-1]) is ring.find(f"{key} ") is ring.find(key.upper()) is None


def test_one_name_has_two_keys_while_it_changes_from_one_to_the_other():
    before, after = new_key(), new_key()
    ring = parse_keys(f"{dump_key('alice', before)}\n{dump_key('alice', after)}\n")
    assert ring.find(before) != ring.find(after)
    assert ring.find(before) not in parse_keys(dump_key("alice", after))
    assert ring.find(after) in parse_keys(dump_key("alice", after))


def test_a_line_of_the_file_does_not_hold_the_key():
    key = new_key()
    assert key not in dump_key("alice", key)
    assert re.fullmatch(r"alice sha256:[0-9a-f]{64}", dump_key("alice", key))


def test_keys_are_long_and_differ_and_are_tokens_of_a_header():
    keys = {new_key() for _ in range(100)}
    assert len(keys) == 100
    for key in keys:
        assert re.fullmatch(r"kokoro_[A-Za-z0-9_-]{43}", key)  # 256 bits


@pytest.mark.parametrize("name", ["", "-x", "a b", "x" * 65, "ärger", "a\nb"])
def test_a_name_that_would_not_fit_in_a_line_is_refused(name):
    with pytest.raises(BadKeys, match="name"):
        dump_key(name, "key")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no key"),
        ("# nobody any more\n", "no key"),
        ("alice", "line 1"),
        (f"alice sha256:{A_DIGEST}\nbob {A_DIGEST}", "line 2"),
        (f"alice sha256:{A_DIGEST[:-1]}", "line 1"),
        (f"alice sha256:{A_DIGEST}0", "line 1"),
        (f"al ice sha256:{A_DIGEST}", "line 1"),
        (f"alice sha256:{A_DIGEST}\n\nbob sha256:{A_DIGEST}", "line 3 repeats"),
    ],
)
def test_a_file_that_is_out_of_order_is_refused_by_its_line(text, said):
    with pytest.raises(BadKeys, match=said):
        parse_keys(text)


def test_a_key_that_was_put_in_the_file_by_mistake_is_not_repeated_in_the_message():
    key = new_key()
    with pytest.raises(BadKeys) as refused:
        parse_keys(f"alice {key}\n")
    assert key not in str(refused.value)


@given(st.text())
def test_any_text_is_a_file_of_keys_or_refused(text):
    with suppress(BadKeys):
        assert len(parse_keys(text)) > 0


@given(st.text())
def test_anything_can_be_presented(presented):
    assert parse_keys(f"alice sha256:{A_DIGEST}").find(presented) is None or presented == "a key"


@pytest.mark.parametrize(
    ("authorization", "subprotocols", "key"),
    [
        (None, [], None),
        ("Bearer k", [], "k"),
        ("bearer  k ", [], "k"),
        ("Bearer", [], None),
        ("Bearer ", [], None),
        ("Basic k", [], None),
        ("k", [], None),
        (None, ["speech", "bearer.k"], "k"),
        (None, ["bearer.k.l"], "k.l"),
        (None, ["speech"], None),
        ("Bearer header", ["bearer.subprotocol"], "header"),
        ("Basic k", ["bearer.k"], "k"),
    ],
)
def test_a_key_is_in_the_header_or_else_in_a_subprotocol(authorization, subprotocols, key):
    assert presented_key(authorization, subprotocols) == key
