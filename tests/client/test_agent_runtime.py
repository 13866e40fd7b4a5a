"""The client against InvokeAgentRuntime on loopback, through boto3."""

import base64
from contextlib import closing
from threading import Event

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serve_app.client.agent_events import AgentEnd, AgentStart, AudioData, AudioStart, TextDelta
from serve_app.client.agent_runtime import AgentRuntimeClient, runtime_session_id
from serve_app.client.errors import BrokenAnswer, UnexpectedAnswer, Unreachable
from serve_app.errors import BadRequest
from tests.client.data_plane import REGION, DataPlane, data_plane

ARN = "arn:aws:bedrock-agentcore:us-east-1:123456789012:runtime/voice_agent-abcdefghij"
HANG_S = 10.0


def short(plane: DataPlane) -> None:
    plane.start()
    plane.event("agent_start", mode="bidi")
    plane.event("agent_end")
    plane.end()


def test_without_a_session_there_is_one_that_agentcore_takes_and_every_turn_has_it():
    with data_plane(short) as server, closing(AgentRuntimeClient(ARN, runtime=server.client())) as agent:
        for _ in range(2):
            assert [type(event) for event in agent.invoke("Hello")] == [AgentStart, AgentEnd]
        header = "X-Amzn-Bedrock-AgentCore-Runtime-Session-Id"
        assert {headers[header] for _, headers, _ in server.requests} == {agent.session_id}
        assert len(agent.session_id) >= 33
    with data_plane(short) as server:
        assert AgentRuntimeClient(ARN, runtime=server.client()).session_id != agent.session_id


def test_a_short_name_becomes_a_stable_id_and_two_names_differ():
    assert runtime_session_id("user-42") == runtime_session_id("user-42") != runtime_session_id("user-43")
    assert len(runtime_session_id("user-42")) >= 33


@pytest.mark.parametrize("name", ["6f0c1d9e-1f0b-4a55-9d8e-3b7a2c4d5e6f", "a" * 33, "a" * 256])
def test_an_id_that_agentcore_takes_is_not_changed(name):
    assert runtime_session_id(name) == name


@given(st.text(max_size=300))
def test_any_name_becomes_an_id_of_a_length_and_letters_that_agentcore_takes(name):
    made = runtime_session_id(name)
    assert 33 <= len(made) <= 256
    assert made.isascii()
    assert made.replace("-", "").replace("_", "").isalnum()


def test_the_request_is_what_the_contract_says():
    with data_plane(short) as server:
        list(AgentRuntimeClient(ARN, runtime=server.client()).invoke("Hello", mode="batch", voice="af_sky"))
        ((path, headers, payload),) = server.requests
    assert payload == {"prompt": "Hello", "mode": "batch", "voice": "af_sky"}
    assert (headers["Content-Type"], headers["Accept"]) == ("application/json", "text/event-stream")
    assert path.endswith("/invocations?qualifier=DEFAULT")


def test_each_event_is_there_before_the_next_one_is_written():
    heard = [Event() for _ in range(3)]

    def answer(plane: DataPlane) -> None:
        plane.start()
        plane.event("text_delta", text="One.")
        assert heard[0].wait(HANG_S)
        plane.event("audio_stream_start", format="pcm16", voice="af_heart", sample_rate=24000)
        assert heard[1].wait(HANG_S)
        plane.event("audio_chunk", seq=0, data=base64.b64encode(b"\0\1").decode())
        assert heard[2].wait(HANG_S)
        plane.event("agent_end")
        plane.end()

    with data_plane(answer) as server:
        events = AgentRuntimeClient(ARN, runtime=server.client()).invoke("Hello")
        for kind, event in zip((TextDelta, AudioStart, AudioData), heard, strict=True):
            assert isinstance(next(events), kind)
            event.set()
        assert [type(event) for event in events] == [AgentEnd]


def test_an_event_cut_in_two_pieces_is_one_event():
    def answer(plane: DataPlane) -> None:
        plane.start()
        for piece in (b'data: {"type": "text_delta", "request_id": "r", "te', b'xt": "caf\xc3', b'\xa9"}\n', b"\n"):
            plane.piece(piece)
        plane.event("agent_end")
        plane.end()

    with data_plane(answer) as server:
        text, _ = AgentRuntimeClient(ARN, runtime=server.client()).invoke("Hello")
    assert text.text == "café"


def test_closing_the_answer_hangs_up():
    def answer(plane: DataPlane) -> None:
        plane.start()
        while True:
            plane.event("text_delta", text="and so on ")

    with data_plane(answer) as server:
        events = AgentRuntimeClient(ARN, runtime=server.client()).invoke("Hello")
        next(events)
        events.close()
        assert server.hung_up.wait(HANG_S)


def test_a_connection_that_breaks_is_no_answer():
    def answer(plane: DataPlane) -> None:
        plane.start()
        plane.event("text_delta", text="One.")
        plane.close_connection = True  # without the last chunk

    with data_plane(answer) as server, pytest.raises(BrokenAnswer):
        list(AgentRuntimeClient(ARN, runtime=server.client()).invoke("Hello"))


def test_a_refusal_of_the_agent_is_raised_with_its_code():
    content = b'{"error": "prompt is blank", "code": "bad_request", "request_id": "r"}'
    with data_plane(lambda plane: plane.whole(content)) as server, pytest.raises(BadRequest, match="prompt is blank"):
        list(AgentRuntimeClient(ARN, runtime=server.client()).invoke(" "))


def test_a_refusal_of_agentcore_is_told_with_its_reason_and_nothing_is_asked_twice():
    def answer(plane: DataPlane) -> None:
        kind = "ThrottlingException"
        plane.whole(b'{"message": "too many sessions"}', status=429, X_Amzn_ErrorType=kind)

    with data_plane(answer) as server:
        with pytest.raises(UnexpectedAnswer, match=r"ThrottlingException.*too many sessions"):
            list(AgentRuntimeClient(ARN, runtime=server.client()).invoke("Hello"))
        assert len(server.requests) == 1


def test_where_nobody_listens_it_says_so():
    with data_plane(short) as server:
        client = server.client()
    with pytest.raises(Unreachable):
        list(AgentRuntimeClient(ARN, runtime=client).invoke("Hello"))


def test_the_region_may_be_named_instead_of_a_client(monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    with data_plane(short) as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL_BEDROCK_AGENTCORE", server.url)
        assert list(AgentRuntimeClient(ARN, region=REGION).invoke("Hello"))
