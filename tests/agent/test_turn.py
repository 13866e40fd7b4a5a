"""Text and audio through one queue, one last event, and a history of what was heard."""

import asyncio
from base64 import b64decode
from contextlib import aclosing

import pytest
from strands import tool

from agent import speaker
from agent.events import AudioChunk, AudioStreamEnd, AudioWords, Failed, TextDelta
from agent.turn import INTERRUPTED
from serve_app.client.errors import Unreachable
from tests.agent.fakes import Clock, FakeSpeech, ScriptedModel, all_of, conversation, turn, types
from tests.asgi import turns_until

pytestmark = pytest.mark.anyio


def text_of(events):
    return "".join(event.text for event in events if isinstance(event, TextDelta))


async def test_audio_of_the_first_sentence_leaves_while_the_model_still_writes():
    more = asyncio.Event()
    model = ScriptedModel(["One is done. ", "Two", more, " follows."])
    async with aclosing(turn(conversation(model), FakeSpeech())) as events, asyncio.timeout(10):
        seen = []
        async for event in events:
            seen.append(event)
            if isinstance(event, AudioChunk) and not more.is_set():
                assert text_of(seen) == "One is done. Two"
                more.set()
    assert types(seen)[0] == "agent_start"
    assert types(seen)[-2:] == ["audio_stream_end", "agent_end"]
    assert text_of(seen) == "One is done. Two follows."


async def test_the_events_are_those_of_the_contract_with_nothing_of_the_framework():
    events = [event.dump() for event in await all_of(turn(conversation(ScriptedModel(["Hi there."])), FakeSpeech()))]
    assert [set(event) for event in events] == [
        {"type", "request_id", "mode"},
        {"type", "request_id", "seq", "text"},
        {"type", "request_id", "format", "voice", "sample_rate"},
        {"type", "request_id", "seq", "data"},
        {"type", "request_id", "seq", "data"},
        {"type", "request_id", "total_chunks", "duration_s"},
        {"type", "request_id"},
    ]
    assert {event["request_id"] for event in events} == {"r"}


async def test_a_last_sentence_without_a_full_stop_is_spoken():
    speech = FakeSpeech()
    await all_of(turn(conversation(ScriptedModel(["One. And", " then"])), speech))
    assert speech.said == ["One.", "And then"]


async def test_batch_makes_one_call_with_the_whole_text():
    speech = FakeSpeech()
    events = await all_of(turn(conversation(ScriptedModel(["One. ", "Two."])), speech, mode="batch"))
    assert speech.said == ["One. Two."]
    assert types(events)[:3] == ["agent_start", "text_delta", "text_delta"]
    assert types(events)[-1] == "agent_end"


async def test_chunks_count_from_0_over_all_sentences_and_their_bytes_are_the_duration():
    events = await all_of(turn(conversation(ScriptedModel(["One. Two. Three."])), FakeSpeech()))
    chunks = [event for event in events if isinstance(event, AudioChunk)]
    assert [chunk.seq for chunk in chunks] == list(range(6))
    end = next(event for event in events if isinstance(event, AudioStreamEnd))
    assert (end.total_chunks, end.duration_s) == (6, 3.0)
    assert sum(len(b64decode(chunk.data)) for chunk in chunks) == 3 * 48_000


async def test_word_times_go_on_from_sentence_to_sentence_for_who_asks():
    script = ["One two. Three."]
    events = await all_of(turn(conversation(ScriptedModel(script)), FakeSpeech(), timestamps=True))
    words = [word for event in events if isinstance(event, AudioWords) for word in event.words]
    assert [(word["w"], word["start_s"]) for word in words] == [("One", 0.0), ("two.", 0.5), ("Three.", 1.0)]
    events = await all_of(turn(conversation(ScriptedModel(script)), FakeSpeech()))
    assert "audio_words" not in types(events)


@pytest.mark.parametrize("mode", ["bidi", "batch"])
async def test_an_answer_without_a_word_has_no_audio_and_ends_well(mode):
    speech = FakeSpeech()
    events = await all_of(turn(conversation(ScriptedModel(["..."])), speech, mode=mode))
    assert types(events) == ["agent_start", "text_delta", "agent_end"]
    assert speech.said == []


@pytest.mark.parametrize("mode", ["bidi", "batch"])
async def test_a_model_that_fails_ends_speech_and_is_one_error(mode):
    speech = FakeSpeech(gate=asyncio.Event())
    model = ScriptedModel(["One. Two", RuntimeError("secret /etc/passwd")])
    talk = conversation(model)
    events = await all_of(turn(talk, speech, mode=mode))
    assert types(events).count("error") == 1
    assert types(events)[-1] == "error"
    assert "audio_stream_end" not in types(events)
    assert "secret" not in events[-1].message
    assert speech.left
    assert talk.messages == []


@pytest.mark.parametrize("mode", ["bidi", "batch"])
async def test_speech_that_fails_ends_the_model_and_is_one_error(mode):
    model = ScriptedModel(["One. Two. ", *([] if mode == "batch" else [asyncio.Event()]), "Three."])
    speech = FakeSpeech(fail_at=0)
    events = await all_of(turn(conversation(model), speech, mode=mode))
    assert types(events)[-1] == "error"
    assert types(events).count("error") == 1
    assert events[-1].message == "speech: no such voice"
    assert model.closed == 1
    assert speech.left


async def test_a_speech_server_that_cannot_be_reached_is_one_error_and_stops_the_model():
    model = ScriptedModel([asyncio.Event()])
    speech = FakeSpeech()
    speech.refuse = Unreachable("no server answers there")
    events = await all_of(turn(conversation(model), speech))
    assert types(events) == ["agent_start", "error"]
    assert events[-1].message == "speech: no server answers there"


async def test_speech_is_connected_while_the_model_still_thinks():
    think = asyncio.Event()
    model, speech = ScriptedModel([think, "Hi."]), FakeSpeech()
    async with aclosing(turn(conversation(model), speech)) as events, asyncio.timeout(10):
        assert (await anext(events)).type == "agent_start"
        await turns_until(lambda: speech.connected)
        think.set()
        assert types([event async for event in events])[-1] == "agent_end"


@tool
def weather() -> str:
    """Tell the weather."""
    return "sunny"


async def test_the_session_stays_open_while_a_tool_runs_and_a_filler_is_spoken():
    model = ScriptedModel(["Let me look", {"name": "weather"}], ["It is sunny."])
    speech = FakeSpeech()
    talk = conversation(model, [weather])
    events = await all_of(turn(talk, speech, filler="One moment."))
    assert speech.said == ["Let me look", "One moment.", "It is sunny."]
    assert text_of(events) == "Let me look One moment. It is sunny."
    assert types(events)[-1] == "agent_end"
    assert len(talk.messages) == 4


async def test_in_batch_the_sentences_around_a_tool_are_apart():
    model = ScriptedModel(["Let me look.", {"name": "weather"}], ["It is sunny."])
    speech = FakeSpeech()
    await all_of(turn(conversation(model, [weather]), speech, mode="batch", filler="One moment."))
    assert speech.said == ["Let me look. It is sunny."]


async def left_after(events, chunks):
    """Read so many chunks and hang up."""
    async with aclosing(events), asyncio.timeout(10):
        async for event in events:
            chunks -= isinstance(event, AudioChunk)
            if not chunks:
                return


async def test_a_caller_who_hangs_up_ends_model_and_speech_and_leaves_what_was_heard():
    clock, speech = Clock(), FakeSpeech()
    model = ScriptedModel(["First things first. Second things later. Th", asyncio.Event(), "ird."], ["Yes."])
    talk = conversation(model)
    events = turn(talk, speech, clock)
    async with aclosing(events), asyncio.timeout(10):
        left = 4
        async for event in events:
            left -= isinstance(event, AudioChunk)
            if not left:
                clock.now_s += 1.5
                break
    assert (model.closed, speech.left) == (1, True)
    assert [message["content"][0]["text"] for message in talk.messages] == [
        "Tell me.",
        "First things first. Second things",
    ]
    await all_of(turn(talk, FakeSpeech()))
    assert [message["role"] for message in model.asked[1]] == ["user", "assistant", "user"]


async def test_a_caller_who_hangs_up_before_the_first_word_was_never_there():
    model = ScriptedModel([asyncio.Event()], ["Yes."])
    talk = conversation(model)
    async with aclosing(turn(talk, FakeSpeech())) as events, asyncio.timeout(10):
        await anext(events)
        await model.waiting.wait()
    assert talk.messages == []
    await all_of(turn(talk, FakeSpeech()))
    assert [message["content"] for message in model.asked[1]] == [[{"text": "Tell me."}]]


async def test_a_new_prompt_ends_the_turn_before_it_with_one_error():
    clock = Clock()
    model = ScriptedModel(["First things first. Se", asyncio.Event()], ["Yes."])
    talk = conversation(model)
    first = turn(talk, FakeSpeech(), clock)
    seen = []
    async with aclosing(first), asyncio.timeout(10):
        async for event in first:
            seen.append(event)
            if types(seen).count("audio_chunk") == 2:
                break
        clock.now_s += 0.5
        events = await all_of(turn(talk, FakeSpeech(), clock, prompt="Stop."))
        assert types(events)[-1] == "agent_end"
        rest = [event async for event in first]
    assert rest == [Failed("r", INTERRUPTED)]
    assert [message["content"][0]["text"] for message in talk.messages] == ["Tell me.", "First things", "Stop.", "Yes."]


async def test_who_was_sent_everything_and_stopped_it_says_how_much_was_heard():
    model = ScriptedModel(["First things first. Second things later."], ["Yes."])
    talk = conversation(model)
    await all_of(turn(talk, FakeSpeech()))
    await all_of(turn(talk, FakeSpeech(), prompt="Stop.", heard_s=1.2))
    assert [message["content"][0]["text"] for message in talk.messages] == [
        "Tell me.",
        "First things first. Second",
        "Stop.",
        "Yes.",
    ]


async def test_a_whole_answer_is_remembered_whole():
    talk = conversation(ScriptedModel(["One. Two."], ["Yes."]))
    await all_of(turn(talk, FakeSpeech()))
    await all_of(turn(talk, FakeSpeech()))
    assert [message["content"][0]["text"] for message in talk.messages] == ["Tell me.", "One. Two.", "Tell me.", "Yes."]


async def test_model_and_speech_wait_for_a_caller_who_is_behind():
    speech = FakeSpeech()
    model = ScriptedModel([f"Sentence number {number}. " for number in range(500)])
    events = turn(conversation(model), speech)
    async with aclosing(events), asyncio.timeout(10):
        await anext(events)
        before = -1
        while len(speech.said) > before:
            before = len(speech.said)
            for _ in range(100):
                await asyncio.sleep(0)
        assert 0 < before < 150
        rest = [event async for event in events]
    assert types(rest)[-1] == "agent_end"
    assert len(speech.said) == 500


async def test_who_stopped_in_the_middle_may_say_better_what_was_heard():
    clock = Clock()
    model = ScriptedModel(["First things first. Se", asyncio.Event()], ["Yes."])
    talk = conversation(model)
    async with aclosing(turn(talk, FakeSpeech(), clock)) as events, asyncio.timeout(10):
        async for event in events:
            if isinstance(event, AudioChunk):
                break
    assert talk.messages == []
    await all_of(turn(talk, FakeSpeech(), clock, prompt="Go on.", heard_s=0.4))
    assert [message["content"][0]["text"] for message in talk.messages] == [
        "Tell me.",
        "First things",
        "Go on.",
        "Yes.",
    ]


async def test_a_turn_that_fails_before_it_began_leaves_the_one_before_alone():
    talk = conversation(ScriptedModel(["One. Two."], ["Never."]))
    await all_of(turn(talk, FakeSpeech()))

    class Nowhere(FakeSpeech):
        async def __aenter__(self):
            raise Unreachable("no server answers there")

    events = await all_of(turn(talk, Nowhere(), prompt="And?"))
    assert types(events) == ["agent_start", "error"]
    assert [message["content"][0]["text"] for message in talk.messages] == ["Tell me.", "One. Two."]


async def test_a_speech_server_that_falls_silent_is_given_up(monkeypatch):
    monkeypatch.setattr(speaker, "SILENCE_TIMEOUT_S", 0.01)
    speech = FakeSpeech(gate=asyncio.Event())
    events = await all_of(turn(conversation(ScriptedModel(["One. Two."])), speech))
    assert events[-1].message == "speech: the speech server fell silent"


async def test_a_model_may_think_for_as_long_as_it_likes(monkeypatch):
    monkeypatch.setattr(speaker, "SILENCE_TIMEOUT_S", 0.01)
    slow = asyncio.Event()
    model = ScriptedModel(["One. Tw", slow, "o."])
    asyncio.get_running_loop().call_later(0.1, slow.set)
    events = await all_of(turn(conversation(model), FakeSpeech()))
    assert types(events)[-1] == "agent_end"
