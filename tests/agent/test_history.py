"""A conversation's messages: what providers refuse is taken out, what was not heard is not remembered."""

from hypothesis import given
from hypothesis import strategies as st

from agent.history import clean, heard_part, take_last_turn


def user(*texts):
    return {"role": "user", "content": [{"text": text} for text in texts]}


def assistant(*texts):
    return {"role": "assistant", "content": [{"text": text} for text in texts]}


CALL = {"role": "assistant", "content": [{"text": "Let me look."}, {"toolUse": {"name": "clock", "toolUseId": "1"}}]}
RESULT = {"role": "user", "content": [{"toolResult": {"toolUseId": "1", "status": "success", "content": []}}]}


def test_blank_text_and_empty_messages_are_taken_out_and_roles_alternate():
    messages = [user("Hi"), assistant(""), user(" \n"), user("What time is it?")]
    clean(messages)
    assert messages == [user("Hi", "What time is it?")]


def test_a_message_keeps_its_tool_call_when_its_text_is_blank():
    call = {"role": "assistant", "content": [{"text": " "}, CALL["content"][1]]}
    messages = [user("Hi"), call, RESULT]
    clean(messages)
    assert messages == [user("Hi"), {"role": "assistant", "content": [CALL["content"][1]]}, RESULT]


texts = st.sampled_from(["", " ", "\n\t", "a", "Hello.", "\u00a0"])
anything = st.lists(
    st.builds(lambda role, content: {"role": role, "content": [{"text": text} for text in content]},
              st.sampled_from(["user", "assistant"]), st.lists(texts, max_size=3)),
    max_size=8,
)  # fmt: skip


@given(anything)
def test_no_history_holds_blank_text_or_two_messages_of_a_role_in_a_row(messages):
    before = [block["text"] for message in messages for block in message["content"] if block["text"].strip()]
    clean(messages)
    assert [block["text"] for message in messages for block in message["content"]] == before
    roles = [message["role"] for message in messages]
    assert all(one != other for one, other in zip(roles, roles[1:], strict=False))


def test_a_turn_is_cut_to_what_was_heard():
    messages = [user("Hi"), assistant("Hello."), user("Tell me."), assistant("One. Two. Three.")]
    turn = take_last_turn(messages)
    assert messages == [user("Hi"), assistant("Hello.")]
    assert turn == [user("Tell me."), assistant("One. Two. Three.")]
    assert heard_part(turn, "One.") == [user("Tell me."), assistant("One.")]


def test_a_turn_that_was_left_before_its_answer_gets_the_part_that_was_heard():
    assert heard_part([user("Tell me.")], "One.") == [user("Tell me."), assistant("One.")]


def test_a_turn_of_which_nothing_was_heard_is_forgotten():
    assert heard_part([user("Tell me."), assistant("One.")], " ") == []


def test_tool_calls_that_were_answered_are_remembered_and_others_are_not():
    turn = take_last_turn([assistant("Hello."), user("Time?"), CALL, RESULT, CALL])
    call = {"role": "assistant", "content": [CALL["content"][1]]}
    assert heard_part(turn, "Let me look. It is") == [user("Time?"), call, RESULT, assistant("Let me look. It is")]


def test_a_history_without_a_prompt_has_no_turn():
    messages = [assistant("Hello.")]
    assert take_last_turn(messages) == []
    assert messages == [assistant("Hello.")]
    assert heard_part([], "Hello.") == []
