"""The product as a user starts it, with the real model: what it says, in which order, and what breaks it not."""

import base64
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import numpy as np
import pytest

from serve_app.audio.pcm import from_s16le
from serve_app.protocol.sse import SseDecoder
from tests.running.conversation import HANG_S, conversation

PUBLISHED = {  # bytes of PCM with the packaged 8-bit weights, voice af_heart, speed 1
    "Hello there.": 74_400,
    "This is a post deployment check.": 105_600,
    "It has three sentences.": 98_400,
}
SEVEN = "One is first. Two is next. Three comes then. Four is here. Five is late. Six is near. Seven ends it."
WORDS = "river window garden morning yellow paper simple music running water little station early coffee".split()  # noqa: SIM905


def unpunctuated(first: int, last: int) -> str:
    """Plain words, number `first` up to `last`."""
    return " ".join(WORDS[number % len(WORDS)] for number in range(first, last))


def post(stack, **request):
    return httpx.post(f"{stack.http}/invocations", json=request, timeout=HANG_S)


def test_three_sentences_in_one_session_are_spoken_in_order_and_understood(stack, listener):
    with conversation(stack) as session:
        for text in PUBLISHED:
            session.say(text)
        spoken = [session.spoken() for _ in PUBLISHED]
        session.send({"type": "close"})
    assert [len(audio) for audio in spoken] == list(PUBLISHED.values())
    for text, audio in zip(PUBLISHED, spoken, strict=True):
        assert "".join(listener.words(audio)) == re.sub(r"[^a-z]", "", text.lower())


@pytest.mark.parametrize("text", PUBLISHED)
def test_an_invocation_speaks_the_same_bytes(stack, text):
    answer = post(stack, text=text, format="pcm")
    assert answer.status_code == 200
    assert len(answer.content) == PUBLISHED[text]
    with conversation(stack) as session:
        session.say(text)
        assert session.spoken() == answer.content


def test_seven_sentences_are_seven_segments_and_the_first_is_heard_before_the_rest_is_made(stack):
    request = {"text": SEVEN, "request_id": "seven", "format": "pcm"}
    with httpx.stream("POST", f"{stack.http}/invocations", json=request, timeout=HANG_S) as answer:
        chunks = answer.iter_bytes()
        first = next(chunks)
        assert first
        assert not [line for line in stack.lines if '"seven"' in line]
        rest = sum(map(len, chunks))
    record = stack.utterance("seven")
    assert record["segments"] == 7
    assert record["ttfa_s"] < record["elapsed_s"] / 2
    assert record["audio_s"] == pytest.approx((len(first) + rest) / 48_000, abs=0.001)


def test_two_sessions_at_once_never_swap_a_word(stack):
    texts = ["The green boat left the harbour early.", "My uncle paints old wooden chairs."] * 2

    def alone(text):
        with conversation(stack) as session:
            session.say(text)
            return session.spoken()

    expected = {text: alone(text) for text in set(texts)}
    with ThreadPoolExecutor(len(texts)) as pool:
        assert list(pool.map(alone, texts)) == [expected[text] for text in texts]


def test_ping_says_yes_while_the_model_is_busy(stack):
    with conversation(stack) as session:
        session.say(SEVEN)
        session.until("synthesis_start")
        for _ in range(5):
            answer = httpx.get(f"{stack.http}/ping", timeout=2.0)
            assert (answer.status_code, answer.json()) == (200, {"status": "ok"})
        session.send({"type": "cancel"})
        session.until("synthesis_cancelled")


def test_cancel_is_answered_and_the_next_message_is_spoken_whole(stack):
    with conversation(stack) as session:
        session.say(SEVEN, request_id="dropped")
        session.until("synthesis_start")
        assert isinstance(session.receive(), bytes)
        session.send({"type": "cancel"})
        cancelled, _ = session.until("synthesis_cancelled")
        assert cancelled["request_id"] == "dropped"
        assert cancelled["sent_duration_s"] > 0
        session.say("Hello there.")
        assert len(session.spoken()) == PUBLISHED["Hello there."]


def test_deltas_of_an_answer_are_spoken_before_it_is_written(stack):
    with conversation(stack) as session:
        for word in ["Hello", "there.", "It", "has", "three"]:
            session.send({"type": "text_delta", "text": f"{word} ", "request_id": "written"})
        session.until("synthesis_start")
        assert isinstance(session.receive(), bytes)
        session.send({"type": "text_delta", "text": "sentences."})
        session.send({"type": "text_end"})
        session.until("synthesis_complete")
    assert stack.utterance("written")["segments"] == 2


def test_junk_is_named_and_the_session_lives_on(stack):
    with conversation(stack) as session:
        for junk in (b"\x00\xff\xfe\x01", "not json", b"[1, 2]", {"type": "dance"}, {"text": "  "}, {"text": 5}):
            session.send(junk)
            assert session.until("error")[0]["code"] == "bad_request"
        session.say("...", request_id="silent")
        complete, audio = session.until("synthesis_complete")
        assert (complete["total_duration_s"], audio) == (0.0, b"")
        session.say("Hello there.")
        assert len(session.spoken()) == PUBLISHED["Hello there."]


def test_three_hundred_messages_wait_in_order_while_pings_are_answered(stack):
    with conversation(stack, ping_interval=1, ping_timeout=5) as session:
        for number in range(300):
            session.say(f"Number {number}.", request_id=f"n{number}")
        session.send({"type": "ping"})
        ends: list[tuple[str, str]] = []
        pong_after = 300
        while len(ends) < 300:
            match session.receive():
                case {"type": "pong"}:
                    pong_after = len(ends)
                case {"type": "synthesis_complete" | "synthesis_cancelled" as kind, "request_id": request_id}:
                    ends.append((kind, request_id))
                    if len(ends) == 8:
                        session.send({"type": "cancel"})
        assert pong_after < 300
        assert {request_id for _, request_id in ends} == {f"n{number}" for number in range(300)}
        complete = [request_id for kind, request_id in ends if kind == "synthesis_complete"]
        assert complete == [f"n{number}" for number in range(len(complete))]
        assert 8 <= len(complete) < 300


def test_a_client_that_leaves_in_the_middle_frees_its_place(stack):
    with conversation(stack) as session:
        session.say(SEVEN, request_id="left")
        session.until("synthesis_start")
        assert isinstance(session.receive(), bytes)
    assert stack.utterance("left")["outcome"] in ("disconnected", "cancelled")
    request = {"text": SEVEN, "request_id": "left too"}
    with httpx.stream("POST", f"{stack.http}/invocations", json=request, timeout=HANG_S) as answer:
        next(answer.iter_bytes())
    assert stack.utterance("left too")["outcome"] == "disconnected"


def test_five_thousand_words_begin_at_once_and_can_be_stopped(stack):
    with conversation(stack) as session:
        session.say("This sentence has exactly eight words in it. " * 625, request_id="long")
        session.until("synthesis_start")
        assert isinstance(session.receive(), bytes)
        session.send({"type": "cancel", "request_id": "long"})
        session.until("synthesis_cancelled")
    assert stack.utterance("long")["segments"] < 20


def test_words_without_punctuation_are_all_spoken_without_a_hole(stack):
    whole, seams_s = spoken_with_seams(stack, unpunctuated(0, 130))
    halves = [spoken_with_seams(stack, unpunctuated(*words))[0] for words in ((0, 65), (65, 130))]
    assert len(whole) == pytest.approx(sum(map(len, halves)), rel=0.15)
    assert seams_s
    for seam_s in seams_s:
        assert silence_around_s(whole, seam_s) <= 0.3


def spoken_with_seams(stack, text):
    """The samples of an answer, and where in it a segment after the first begins: its words come before its audio."""
    decoder, pcm, seams_s = SseDecoder(), b"", []
    answer = post(stack, text=text, speed=2.0, format="pcm", transport="sse", timestamps=True)
    for event in decoder.feed(answer.content):
        if event.event == "audio_words" and pcm:
            seams_s.append(len(pcm) / 48_000)
        elif event.event == "audio_chunk":
            pcm += base64.b64decode(event.json()["data"])
    return from_s16le(pcm), seams_s


def silence_around_s(samples, at_s):
    """The run of 5 ms frames below -45 dB of the loudest one that holds this moment."""
    frames = samples[: len(samples) // 120 * 120].reshape(-1, 120)
    levels = np.sqrt((frames**2).mean(axis=1))
    loud = np.flatnonzero(levels > levels.max() * 10 ** (-45 / 20)) * 0.005
    return float(loud[loud > at_s][0] - loud[loud <= at_s][-1]) - 0.005


@pytest.mark.parametrize(("text", "code"), [("", "bad_request"), (" \n", "bad_request"), ("🌧", "nothing_to_speak")])
def test_text_without_words_is_refused_by_name(stack, text, code):
    answer = post(stack, text=text)
    assert (answer.status_code, answer.json()["code"]) == (400, code)


def test_an_unknown_voice_and_a_missing_front_end_are_refused_with_what_there_is(stack):
    voice = post(stack, text="Hello.", voice="af_hart").json()
    assert voice["code"] == "unknown_voice"
    assert "af_heart" in voice["error"]
    language = post(stack, text="Hello.", voice="jf_alpha").json()
    assert language["code"] == "unsupported_language"
    assert "misaki[ja]" in language["error"]


def test_another_language_speaks_through_espeak(stack):
    answer = post(stack, text="Buenos días, amigos.", voice="ef_dora", format="pcm")
    assert answer.status_code == 200
    assert len(answer.content) > 48_000


def output_of(*command):
    program = Path(sys.executable).with_name(command[0])
    done = subprocess.run([program, *command[1:]], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_ray_and_serve_show_what_runs(stack):
    status = output_of("serve", "status")
    assert status.count("status: HEALTHY") == 3
    assert "status: RUNNING" in status
    assert "1.0/" in output_of("ray", "status")  # CPUs of the three deployments


def test_sessions_closed_in_the_middle_are_ended_sessions_not_failures(stack):
    def ended():
        return sum('"event": "session"' in line and '"outcome": "closed"' in line for line in stack.lines)

    before = ended()
    for _ in range(20):
        with conversation(stack) as session:
            session.say(SEVEN)
            session.until("synthesis_start")
            session.send({"type": "cancel"})
            session.end()
    stack.wait_for(lambda: ended() - before == 20)
    ours = [line for line in stack.lines if "ServeReplica:kokoro" in line or "ProxyActor" in line]
    assert [line for line in ours if " ERROR " in line or "Traceback" in line or "GeneratorExit" in line] == []
