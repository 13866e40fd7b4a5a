import base64
import json

import pytest

from agent import events
from serve_app.client.agent_events import (
    AgentAnswer,
    AgentEnd,
    AgentStart,
    AudioData,
    AudioEnd,
    AudioStart,
    TextDelta,
)
from serve_app.client.errors import BrokenAnswer, UnexpectedAnswer
from serve_app.errors import QueueSaturated, SpeechError
from serve_app.protocol.sse import encode_event


def event(type: str, **fields) -> bytes:
    return f"data: {json.dumps({'type': type, 'request_id': 'r', **fields}, ensure_ascii=False)}\n\n".encode()


def audio(seq: int, data: bytes = b"\x01\x02") -> bytes:
    return event("audio_chunk", seq=seq, data=base64.b64encode(data).decode())


START = event("audio_stream_start", format="pcm16", voice="af_heart", sample_rate=24000)
STREAM = b"".join(
    [
        event("agent_start", mode="bidi"),
        event("text_delta", seq=0, text="Café 🌧."),
        START,
        audio(0),
        event("audio_words", seq=0, words=[]),
        audio(1, b"\x03\x04"),
        event("audio_stream_end", total_chunks=2, duration_s=0.1),
        event("agent_end"),
    ]
)


def test_every_event_of_the_agent_is_read_as_the_agent_writes_it():
    sent = [
        events.AgentStart("r", "bidi"),
        events.TextDelta("r", 0, "Hi."),
        events.AudioStreamStart("r", "pcm16", "af_heart", 24000),
        events.AudioChunk("r", 0, base64.b64encode(b"\0\1").decode()),
        events.AudioStreamEnd("r", 1, 0.1),
        events.AgentEnd("r"),
    ]
    answer = AgentAnswer()
    heard = [one for event in sent for one in answer.feed(encode_event(None, event.dump()))]
    answer.finish()
    assert [one.type for one in heard] == [one.type for one in sent]
    with pytest.raises(SpeechError, match="no room"):
        list(AgentAnswer().feed(encode_event(None, events.Failed("r", "no room").dump())))


@pytest.mark.parametrize("size", [1, 2, 7, 64, len(STREAM)])
def test_events_are_the_same_however_the_stream_is_cut(size):
    answer = AgentAnswer()
    heard = [one for at in range(0, len(STREAM), size) for one in answer.feed(STREAM[at : at + size])]
    answer.finish()
    kinds = [AgentStart, TextDelta, AudioStart, AudioData, AudioData, AudioEnd, AgentEnd]
    assert [type(one) for one in heard] == kinds
    assert heard[1].text == "Café 🌧."
    assert heard[3].data + heard[4].data == b"\x01\x02\x03\x04"


def test_an_error_event_is_raised_after_what_came_before_it():
    heard = AgentAnswer().feed(event("text_delta", seq=0, text="a") + event("error", message="too much"))
    assert next(heard).text == "a"
    with pytest.raises(SpeechError, match="too much") as raised:
        next(heard)
    assert (raised.value.code, raised.value.request_id) == ("internal", "r")


def test_an_error_keeps_its_code():
    with pytest.raises(QueueSaturated):
        list(AgentAnswer().feed(event("error", message="later", code="queue_saturated")))


@pytest.mark.parametrize("cut", [0, 40, STREAM.index(b'"agent_end"')])
def test_a_stream_without_its_end_is_no_answer(cut):
    answer = AgentAnswer()
    list(answer.feed(STREAM[:cut]))
    with pytest.raises(BrokenAnswer, match="agent_end"):
        answer.finish()


@pytest.mark.parametrize(
    "stream", [START + audio(1), START + audio(0) + event("audio_stream_end", total_chunks=2, duration_s=1)]
)
def test_a_missing_chunk_is_noticed(stream):
    with pytest.raises(BrokenAnswer, match="missing"):
        list(AgentAnswer().feed(stream))


@pytest.mark.parametrize(
    "stream",
    [
        b"data: not JSON\n\n",
        b"data: [1]\n\n",
        event("text_delta"),
        event("audio_chunk", seq=0, data="?"),
        event("agent_start"),
    ],
)
def test_what_is_no_event_of_the_contract_is_refused(stream):
    with pytest.raises(UnexpectedAnswer):
        list(AgentAnswer().feed(stream))


def test_events_of_a_newer_agent_are_left_out():
    answer = AgentAnswer()
    assert list(answer.feed(event("tool_use", name="x") + b"data: {}\n\n" + event("agent_end", usage=1)))
    answer.finish()
