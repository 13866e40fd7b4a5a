"""The conversation without a socket: frames in, events out, and what is sent."""

import asyncio
import json
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serve_app.client.errors import BrokenAnswer, UnexpectedAnswer
from serve_app.client.session import Event, Session, Words
from serve_app.client.types import Audio, Chunk, Options, Word
from serve_app.errors import BadRequest
from serve_app.protocol.framing import is_control
from serve_app.protocol.messages import (
    ErrorFrame,
    Pong,
    ServerFrame,
    SynthesisCancelled,
    SynthesisComplete,
    SynthesisStart,
    dump_frame,
)
from tests.client.streams import PCM

START = SynthesisStart("r")
COMPLETE = SynthesisComplete("r", 0.1, 0.05)


class Script:
    """A `Connection` whose server has said everything before it is asked; `merged` as SageMaker delivers it."""

    def __init__(self, frames: Iterable[ServerFrame | str | bytes], *, merged: bool = False) -> None:
        self._frames = iter(frames)
        self._merged = merged
        self.sent: list[dict[str, Any]] = []

    async def send(self, message: str) -> None:
        self.sent.append(json.loads(message))

    async def receive(self) -> str | bytes | None:
        frame = next(self._frames, None)
        if frame is None or isinstance(frame, bytes):
            return frame
        text = frame if isinstance(frame, str) else dump_frame(frame)
        return text.encode() if self._merged else text


def heard(
    frames: Iterable[ServerFrame | str | bytes],
    *,
    merged: bool = False,
    says: Iterable[Options] = ({"request_id": "r"},),
) -> list[Event]:
    """The events of a session that said a text for each of `says`."""

    async def scenario() -> list[Event]:
        session = Session(Script(frames, merged=merged), {})
        for options in says:
            await session.say("Hello.", **options)
        return [event async for event in session]

    return asyncio.run(scenario())


def audio(events: Iterable[Event]) -> bytes:
    return b"".join(event.data for event in events if isinstance(event, Chunk))


@pytest.mark.parametrize("merged", [False, True])
def test_an_utterance_is_a_start_its_audio_and_an_end(merged: bool) -> None:
    events = heard([START, PCM[:6], PCM[6:8], COMPLETE], merged=merged)
    assert events == [
        START,
        Chunk("r", PCM[:6], Audio("pcm", 24000)),
        Chunk("r", PCM[6:8], Audio("pcm", 24000)),
        COMPLETE,
    ]


@given(st.lists(st.binary(max_size=7), max_size=12).map(lambda slices: [s for s in slices if is_control(s) is None]))
def test_frames_of_any_length_keep_every_sample(slices: list[bytes]) -> None:
    whole = b"".join(slices)
    events = heard([START, *slices, COMPLETE], merged=True)
    assert audio(events) == whole[: len(whole) - len(whole) % 2]
    assert all(len(event.data) % 2 == 0 for event in events if isinstance(event, Chunk))


def test_half_a_sample_does_not_get_into_the_next_utterance() -> None:
    frames = [START, PCM[:5], COMPLETE, START, PCM[10:13], PCM[13:14], COMPLETE]
    events = heard(frames, says=[{"request_id": "r"}, {"request_id": "r"}])
    assert audio(events) == PCM[:4] + PCM[10:14]


def test_audio_that_begins_with_a_brace_is_audio_on_a_merged_stream() -> None:
    assert audio(heard([START, b"{}\x00{", b'{"a', COMPLETE], merged=True)) == b"{}\x00{" + b'{"'


def test_every_utterance_has_its_own_format() -> None:
    frames = [
        START,
        b"abc",
        COMPLETE,
        SynthesisStart("s"),
        b"abc",
        SynthesisComplete("s", 0.1, 0.1),
    ]
    says: list[Options] = [{"request_id": "r", "format": "mp3"}, {"request_id": "s", "sample_rate": 8000}]
    chunks = [event for event in heard(frames, says=says) if isinstance(event, Chunk)]
    assert [(chunk.data, chunk.audio.format, chunk.audio.sample_rate) for chunk in chunks] == [
        (b"abc", "mp3", 24000),
        (b"ab", "pcm", 8000),
    ]


def test_words_are_events_of_their_own() -> None:
    words = '{"type": "words", "request_id": "r", "words": [{"w": "Hello.", "start_s": 0, "end_s": 0.2}]}'
    assert heard([START, words, PCM[:2], COMPLETE])[1] == Words("r", (Word("Hello.", 0.0, 0.2),))


def test_an_error_ends_its_utterance_and_not_the_session() -> None:
    refused = ErrorFrame("r", "no such voice", "unknown_voice")
    complete = SynthesisComplete("s", 0.1, 0.1)
    events = heard([refused, SynthesisStart("s"), PCM[:2], complete], says=[{"request_id": "r"}, {"request_id": "s"}])
    assert events == [refused, SynthesisStart("s"), Chunk("s", PCM[:2], Audio("pcm", 24000)), complete]


def test_answers_to_nothing_are_passed_on_and_those_of_a_newer_server_are_not() -> None:
    late = SynthesisCancelled("unknown", 0.0)
    assert heard([Pong(), '{"type": "mood", "happy": true}', START, late, PCM[:2], COMPLETE])[1:3] == [
        late,
        Chunk("r", PCM[:2], Audio("pcm", 24000)),
    ]


@pytest.mark.parametrize("frames", [[], [START], [START, PCM[:2]], [ErrorFrame("unknown", "idle", "idle_timeout")]])
def test_a_session_that_ends_with_a_text_unanswered_is_broken(frames: list[ServerFrame | bytes]) -> None:
    with pytest.raises(BrokenAnswer, match="1 texts unanswered"):
        heard(frames)


@pytest.mark.parametrize(
    ("frames", "why"),
    [
        ([PCM[:2]], "outside of an utterance"),
        ([START, COMPLETE, PCM[:2]], "outside of an utterance"),
        ([SynthesisStart("other")], "was not sent"),
        (["not json"], "control frame"),
        (["[1]"], "control frame"),
        (["{}"], "control frame"),
        (['{"type": ["x"]}'], "control frame"),
        (['{"type": "synthesis_start"}'], "control frame"),
        ([START, '{"type": "words", "request_id": "r", "words": [{"w": "x"}]}'], "fields"),
    ],
)
def test_frames_outside_of_the_contract_are_reported(frames: list[ServerFrame | str | bytes], why: str) -> None:
    with pytest.raises(UnexpectedAnswer, match=why):
        heard(frames)


def sent(*steps: tuple[str, Any], options: Options | None = None) -> list[dict[str, Any]]:
    """What a session with these options sends for the named calls."""

    async def scenario() -> list[dict[str, Any]]:
        script = Script([])
        session = Session(script, options or {})
        for name, argument in steps:
            call = getattr(session, name)
            await (call() if argument is None else call(argument))
        return script.sent

    return asyncio.run(scenario())


def test_a_text_is_sent_with_the_options_of_the_session_and_an_id_of_its_own() -> None:
    first, second = sent(("say", "One."), ("say", "Two."), options={"voice": "af_bella", "request_id": "taken"})
    ids = {first.pop("request_id"), second.pop("request_id")}
    assert len(ids) == 2
    assert "taken" not in ids
    assert first == {"text": "One.", "voice": "af_bella", "format": "pcm"}
    assert second == {"text": "Two.", "voice": "af_bella", "format": "pcm"}


def test_pieces_of_a_text_share_one_id_and_the_next_text_has_another() -> None:
    messages = sent(("feed", "He"), ("feed", "llo."), ("end", None), ("feed", "Bye."), ("end", None), ("end", None))
    assert [message.get("type") for message in messages] == ["text_delta", "text_delta", "text_end"] + [
        "text_delta",
        "text_end",
    ]
    assert messages[0]["request_id"] == messages[1]["request_id"] != messages[3]["request_id"]
    assert "format" in messages[0]
    assert "format" not in messages[1]


def test_half_a_character_at_the_end_of_a_piece_is_sent_as_it_is() -> None:
    messages = sent(("feed", "caf\u00e9 \ud83c"), ("feed", "\udf27"))
    assert [message["text"] for message in messages] == ["caf\u00e9 \ud83c", "\udf27"]


def test_what_is_fed_after_a_cancel_is_another_text() -> None:
    messages = sent(("feed", "Never mi"), ("cancel", None), ("end", None), ("feed", "Hello."))
    assert [message["type"] for message in messages] == ["text_delta", "cancel", "text_delta"]
    assert messages[0]["request_id"] != messages[2]["request_id"]
    assert "request_id" not in messages[1]


def test_cancelling_another_utterance_leaves_the_fed_one_alone() -> None:
    messages = sent(("feed", "One"), ("cancel", "other"), ("feed", " more."), ("end", None))
    assert [message["type"] for message in messages] == ["text_delta", "cancel", "text_delta", "text_end"]
    assert messages[1]["request_id"] == "other"
    assert messages[0]["request_id"] == messages[2]["request_id"]


def test_an_unknown_format_is_refused_before_anything_is_sent() -> None:
    with pytest.raises(BadRequest, match="format must be one of wav"):
        heard([], says=[{"format": "midi"}])
    assert heard([], says=[]) == []


def test_a_text_that_could_not_be_sent_is_not_waited_for() -> None:
    class Gone(Script):
        async def send(self, message: str) -> None:
            raise BrokenAnswer("the connection has ended")

    async def scenario() -> list[Event]:
        session = Session(Gone([]), {})
        for send in (session.say, session.feed):
            with pytest.raises(BrokenAnswer):
                await send("Hello.")
        assert session.unanswered == 0
        return [event async for event in session]

    assert asyncio.run(scenario()) == []
