"""A conversation's messages, kept such that every provider takes them: no blank text, roles in turn, tool calls whole.

Messages are Strands' (Bedrock Converse's): `{"role": "user" | "assistant", "content": [{"text": ...}, ...]}`.
"""

from typing import Any

Message = dict[str, Any]


def clean(messages: list[Message]) -> None:
    """Take out what a provider refuses: blank text, and messages that hold nothing else; two messages of the same role
    in a row become one.
    """
    kept: list[Message] = []
    for message in messages:
        content = [block for block in message["content"] if not _is_blank(block)]
        if not content:
            continue
        if kept and kept[-1]["role"] == message["role"]:
            kept[-1] = {**kept[-1], "content": [*kept[-1]["content"], *content]}
        else:
            kept.append({**message, "content": content})
    messages[:] = kept


def take_last_turn(messages: list[Message]) -> list[Message]:
    """Remove the last turn, from its prompt on, and return it."""
    begin = _last_prompt(messages)
    turn = messages[begin:]
    del messages[begin:]
    return turn


def heard_part(turn: list[Message], heard: str) -> list[Message]:
    """Of a turn, what was heard of its answer, and the tool calls that were answered: a tool may have done something.
    Nothing where nothing was heard.
    """
    if not turn or not heard.strip():
        return []
    return [turn[0], *_answered_calls(turn[1:]), {"role": "assistant", "content": [{"text": heard}]}]


def _answered_calls(messages: list[Message]) -> list[Message]:
    kept: list[Message] = []
    for call, result in zip(messages, messages[1:], strict=False):
        uses = [block for block in call["content"] if "toolUse" in block]
        if uses and any("toolResult" in block for block in result["content"]):
            kept += [{**call, "content": uses}, result]
    return kept


def _last_prompt(messages: list[Message]) -> int:
    """Where the last turn begins: a user's message that is no tool's result."""
    for at in range(len(messages) - 1, -1, -1):
        if messages[at]["role"] == "user" and not any("toolResult" in block for block in messages[at]["content"]):
            return at
    return len(messages)


def _is_blank(block: dict[str, Any]) -> bool:
    return "text" in block and not (block["text"] or "").strip()
