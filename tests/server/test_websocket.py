import asyncio
from types import SimpleNamespace

import pytest

from serve_app.engine.fake import FakeEngine
from serve_app.errors import Internal, QueueSaturated
from serve_app.metrics import ACTIVE_SESSIONS, REFUSALS, SESSIONS_ENDED, TTFA_S, UTTERANCES
from serve_app.server import account
from serve_app.server import websocket as sockets
from serve_app.server.websocket import HIGH_WATER_BYTES, MAX_CONTROL_FRAMES
from tests.asgi import turns_until, websocket
from tests.fakes import CountingRecorder, app_over

PATH = "/invocations-bidirectional-stream"


def run(scenario, engine=None, recorder=None, *, capacity=0, **limits):
    """Run `scenario(exchange, engine)` over an accepted socket."""
    engine = engine or FakeEngine()

    async def accepted():
        app = app_over(engine, recorder, **limits)
        async with websocket(app, PATH, capacity=capacity) as exchange:
            assert (await exchange.next())["type"] == "websocket.accept"
            return await scenario(exchange, engine)

    return asyncio.run(accepted())


@pytest.mark.parametrize("binary", [True, False])
def test_messages_are_spoken_one_after_the_other_in_one_session(binary):
    async def scenario(socket, engine):
        for number in range(3):
            socket.say({"text": f"Message {number}.", "request_id": f"r{number}"}, binary=binary)
        socket.say({"type": "close"}, binary=binary)
        for number in range(3):
            start, before = await socket.until("synthesis_start")
            assert (start["request_id"], before) == (f"r{number}", b"")
            end, audio = await socket.until("synthesis_complete")
            assert end["request_id"] == f"r{number}"
            assert end["total_duration_s"] == pytest.approx(len(audio) / 48000, abs=0.001)
            assert end["elapsed_s"] >= 0
        assert await socket.frame() == {"type": "closed", "code": 1000}
        await socket.ended()

    recorder = CountingRecorder()
    run(scenario, recorder=recorder)
    assert recorder.outcomes(SESSIONS_ENDED) == ["closed"]
    assert recorder.outcomes(UTTERANCES) == ["complete"] * 3
    assert [value for value, _ in recorder.values[ACTIVE_SESSIONS.name]] == [0, 1, 0]


def test_audio_frames_are_bounded_and_end_on_a_sample_border():
    async def scenario(socket, engine):
        socket.say({"text": "A sentence that is long enough to be many frames of audio, we hope. " * 5})
        socket.say({"type": "close"})
        while (frame := await socket.frame()) != {"type": "closed", "code": 1000}:
            if isinstance(frame, bytes):
                assert 0 < len(frame) <= 32768
                assert len(frame) % 2 == 0

    run(scenario)


def test_bad_messages_are_named_and_the_session_lives_on(caplog):
    async def scenario(socket, engine):
        for bad in (b"\x00\xff\xfe\x01", "not json", {"type": "dance"}):
            socket.say(bad)
        socket.say({"text": "Hello."})
        errors = [await socket.frame() for _ in range(3)]
        assert [error["code"] for error in errors] == ["bad_request"] * 3
        assert len({error["message"] for error in errors}) == 3
        _, audio = await socket.until("synthesis_complete")
        assert audio

    run(scenario)
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


def test_an_unknown_voice_fails_its_message_only():
    async def scenario(socket, engine):
        socket.say({"text": "Hello.", "voice": "af_hart", "request_id": "bad"})
        socket.say({"text": "Hello."})
        error, _ = await socket.until("error")
        assert (error["code"], error["request_id"]) == ("unknown_voice", "bad")
        assert (await socket.until("synthesis_complete"))[1]

    run(scenario)


def test_a_blend_of_voices_is_a_voice_and_an_ill_formed_one_fails_its_message_only():
    async def scenario(socket, engine):
        for voice in ("af_bella(2)+af_heart(1)", "af_bella(2)+", "af_heart+af_bella"):
            socket.say({"text": "Hello.", "voice": voice})
        assert (await socket.until("synthesis_complete"))[1]
        assert (await socket.until("error"))[0]["code"] == "bad_request"
        assert (await socket.until("synthesis_complete"))[1]
        assert [segment.voice for segment in engine.finished] == ["af_bella(2)+af_heart(1)", "af_heart+af_bella"]

    run(scenario)


@pytest.mark.parametrize("fed", [True, False])
def test_a_pause_is_audio_like_any_other_and_barge_in_ends_it(fed):
    async def scenario(socket, engine):
        if fed:
            for delta in ("One. [pau", "se:1", ".5s] Tw", "o. [pause:500ms]"):
                socket.say({"type": "text_delta", "text": delta, "timestamps": True})
            socket.say({"type": "text_end"})
        else:
            socket.say({"text": "One. [pause:1.5s] Two. [pause:500ms]", "timestamps": True})
        end, audio = await socket.until("synthesis_complete")
        # A beep of 25 ms a character; the lead of 50 ms is the fake engine's.
        assert end["total_duration_s"] == pytest.approx(0.05 + 0.1 + 1.5 + 0.1 + 0.5, abs=0.001)
        assert len(audio) == pytest.approx(48_000 * end["total_duration_s"], abs=48)
        socket.say({"text": "One. [pause:9s] Two.", "request_id": "r"})
        socket.say({"type": "cancel", "request_id": "r"})
        cancelled, _ = await socket.until("synthesis_cancelled")
        assert cancelled["sent_duration_s"] < 9
        socket.say({"text": "[pause:1s]"})
        assert (await socket.until("synthesis_complete"))[0]["total_duration_s"] == 0

    run(scenario)


def test_text_deltas_are_spoken_before_the_text_ends():
    async def scenario(socket, engine):
        for delta in ("The first sent", "ence. The sec", "ond"):
            socket.say({"type": "text_delta", "text": delta, "request_id": "r"})
        await socket.until("synthesis_start")
        assert isinstance(await socket.frame(), bytes)
        assert len(engine.finished) == 1
        socket.say({"type": "text_delta", "text": " one."})
        socket.say({"type": "text_end"})
        end, _ = await socket.until("synthesis_complete")
        assert end["request_id"] == "r"
        assert len(engine.finished) == 2

    run(scenario)


def test_a_ping_is_answered_while_a_synthesis_runs():
    async def scenario(socket, engine):
        socket.say({"text": "Hello."})
        await socket.until("synthesis_start")
        socket.say({"type": "ping"})
        assert await socket.frame() == {"type": "pong"}
        assert not engine.finished

    run(scenario, FakeEngine(gated=True))


def test_cancel_stops_what_runs_and_drops_what_waits():
    async def scenario(socket, engine):
        for number in range(3):
            socket.say({"text": "One is here. Two is here. Three is here.", "request_id": f"r{number}"})
        await socket.until("synthesis_start")
        engine.allow(1)
        assert isinstance(await socket.frame(), bytes)
        socket.say({"type": "cancel"})
        cancelled = [(await socket.until("synthesis_cancelled"))[0] for _ in range(3)]
        assert {frame["request_id"] for frame in cancelled} == {"r0", "r1", "r2"}
        sent = {frame["request_id"]: frame["sent_duration_s"] for frame in cancelled}
        assert sent["r0"] > 0
        assert sent["r1"] == sent["r2"] == 0
        engine.allow(10)
        socket.say({"text": "After.", "request_id": "after"})
        end, audio = await socket.until("synthesis_complete")
        assert (end["request_id"], bool(audio)) == ("after", True)
        assert engine.queue_depth == 0

    recorder = CountingRecorder()
    run(scenario, FakeEngine(gated=True), recorder)
    assert recorder.outcomes(UTTERANCES) == ["cancelled", "complete"]


def test_a_failed_synthesis_is_an_error_frame_and_the_next_message_is_spoken():
    async def scenario(socket, engine):
        engine.fail_next(Internal("the model failed"))
        socket.say({"text": "Hello.", "request_id": "bad"})
        socket.say({"text": "Hello.", "request_id": "good"})
        error, _ = await socket.until("error")
        assert (error["code"], error["request_id"]) == ("internal", "bad")
        assert (await socket.until("synthesis_complete"))[0]["request_id"] == "good"

    run(scenario)


@pytest.mark.parametrize("audio_format", ["mp3", "wav"])
def test_other_formats_are_sent_when_asked_for(audio_format):
    async def scenario(socket, engine):
        socket.say({"text": "Hello there.", "format": audio_format})
        _, audio = await socket.until("synthesis_complete")
        assert audio.startswith(b"RIFF") if audio_format == "wav" else audio[0] == 0xFF

    run(scenario)


def test_words_come_before_their_audio_when_asked_for():
    async def scenario(socket, engine):
        socket.say({"text": "Hello there. You too.", "timestamps": True})
        await socket.until("synthesis_start")
        words, frame = [], await socket.frame()
        while isinstance(frame, bytes) or frame["type"] == "words":
            words += [] if isinstance(frame, bytes) else frame["words"]
            frame = await socket.frame()
        assert [word["w"] for word in words] == ["Hello there.", "You too."]
        assert words[1]["start_s"] >= words[0]["end_s"]
        assert words[1]["end_s"] <= frame["total_duration_s"] + 0.025

    run(scenario)


def test_a_disconnect_frees_everything():
    async def scenario(socket, engine):
        socket.say({"text": "One is here. Two is here."})
        await turns_until(lambda: engine.started)
        socket.to_app.put_nowait({"type": "websocket.disconnect", "code": 1006})
        await socket.ended()
        assert engine.queue_depth == 0
        assert len(engine.cancelled) == 2

    recorder = CountingRecorder()
    run(scenario, FakeEngine(gated=True), recorder)
    assert recorder.outcomes(SESSIONS_ENDED) == ["disconnected"]
    assert recorder.outcomes(UTTERANCES) == ["disconnected"]


def test_a_reader_that_takes_nothing_stops_its_synthesis_and_is_closed():
    async def scenario(socket, engine):
        socket.say({"text": "This sentence will be a few seconds long, as it has many characters. " * 60})
        await socket.ended()
        seconds_made = sum(len(segment.phoneme_ids) * 0.025 for segment in engine.finished)
        assert seconds_made * 48000 < 6 * HIGH_WATER_BYTES

    recorder = CountingRecorder()
    run(scenario, recorder=recorder, capacity=2, send_stall_timeout_s=0.05)
    assert recorder.outcomes(SESSIONS_ENDED) == ["stalled"]


def test_sessions_closed_while_audio_is_coming_have_ended_and_not_failed(caplog):
    async def scenario():
        engine = FakeEngine()
        app = app_over(engine, recorder)
        for _ in range(20):
            async with websocket(app, PATH) as socket:
                await socket.next()
                socket.say({"text": "One is here. Two is here. Three is here."})
                while not isinstance(await socket.frame(), bytes):
                    pass
                socket.say({"type": "close"})
                while await socket.frame() != {"type": "closed", "code": 1000}:
                    pass
                await socket.ended()

    recorder = CountingRecorder()
    asyncio.run(scenario())
    assert recorder.outcomes(SESSIONS_ENDED) == ["closed"] * 20
    assert recorder.outcomes(UTTERANCES) == ["complete"] * 20
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []


def test_shutdown_finishes_the_message_in_hand_and_closes_with_1001():
    async def scenario():
        engine = FakeEngine(gated=True)
        app = app_over(engine, recorder)
        async with websocket(app, PATH) as socket, websocket(app, PATH) as idle:
            async with app.router.lifespan_context(app):
                await idle.next()
                await socket.next()
                socket.say({"text": "One is here.", "request_id": "in hand"})
                socket.say({"text": "Two is here.", "request_id": "waiting"})
                await turns_until(lambda: engine.started)
            assert await idle.frame() == {"type": "closed", "code": 1001}
            engine.allow(1)
            assert (await socket.until("error"))[0]["request_id"] == "waiting"
            assert (await socket.until("synthesis_complete"))[0]["request_id"] == "in hand"
            assert await socket.frame() == {"type": "closed", "code": 1001}
            await socket.ended()

    recorder = CountingRecorder()
    asyncio.run(scenario())
    assert recorder.outcomes(SESSIONS_ENDED) == ["shutdown", "shutdown"]
    assert recorder.values[REFUSALS.name] == [(1.0, {"reason": "draining"})]


def test_a_session_without_messages_is_told_and_closed():
    async def scenario(socket, engine):
        error, _ = await socket.until("error")
        assert error["code"] == "idle_timeout"
        assert await socket.frame() == {"type": "closed", "code": 1001}
        await socket.ended()

    recorder = CountingRecorder()
    run(scenario, recorder=recorder, session_idle_timeout_s=0.01)
    assert recorder.outcomes(SESSIONS_ENDED) == ["idle_timeout"]


def test_sessions_past_the_bound_are_refused_before_the_upgrade():
    async def scenario():
        recorder = CountingRecorder()
        app = app_over(FakeEngine(), recorder, max_sessions=1)
        async with websocket(app, PATH) as first:
            assert (await first.next())["type"] == "websocket.accept"
            async with websocket(app, PATH) as surplus:
                refusal = await surplus.next()
                assert refusal["type"] == "websocket.http.response.start"
                assert refusal["status"] == 503
                assert b"retry-after" in dict(refusal["headers"])
            first.say({"type": "close"})
            assert await first.frame() == {"type": "closed", "code": 1000}
        async with websocket(app, PATH) as later:
            assert (await later.next())["type"] == "websocket.accept"
        assert recorder.outcomes(SESSIONS_ENDED)[0] == "refused"

    asyncio.run(scenario())


def test_two_sessions_at_once_take_turns():
    async def scenario():
        engine = FakeEngine(gated=True)
        app = app_over(engine)
        text = " ".join(f"Sentence number {n} is here." for n in range(6))
        async with websocket(app, PATH) as one, websocket(app, PATH) as two:
            for socket in (one, two):
                await socket.next()
                socket.say({"text": text})
                await socket.until("synthesis_start")
            engine.allow(100)
            for socket in (one, two):
                await socket.until("synthesis_complete")
        sessions = [segment.session_id for segment in engine.started]
        assert len(set(sessions[:2])) == len(set(sessions[2:4])) == len(set(sessions[6:8])) == 2

    asyncio.run(scenario())


def test_a_cancel_that_overtakes_the_first_step_of_a_synthesis_is_answered():
    async def scenario(socket, engine):
        socket.say({"text": "Hello.", "request_id": "gone"})
        socket.say({"type": "cancel"})
        socket.say({"text": "Hello.", "request_id": "next"})
        assert (await socket.until("synthesis_cancelled"))[0]["request_id"] == "gone"
        assert (await socket.until("synthesis_complete"))[0]["request_id"] == "next"

    run(scenario)


def test_a_cancel_leaves_the_unsent_audio_of_the_message_before_it_alone():
    async def scenario(socket, engine):
        socket.say(
            {
                "text": "One is long enough for more frames than a client takes that is slow to read.",
                "request_id": "first",
            }
        )
        socket.say({"text": "Two is here.", "request_id": "second"})
        engine.allow(1)
        await turns_until(lambda: len(engine.started) == 2)
        socket.say({"type": "cancel", "request_id": "second"})
        await turns_until(lambda: engine.cancelled)
        complete, audio = await socket.until("synthesis_complete")
        assert len(audio) / 48000 == pytest.approx(complete["total_duration_s"], abs=0.001)
        cancelled, audio = await socket.until("synthesis_cancelled")
        assert (cancelled["request_id"], cancelled["sent_duration_s"], audio) == ("second", 0.0, b"")

    run(scenario, FakeEngine(gated=True), capacity=1)


def test_a_burst_of_messages_from_a_client_that_reads_is_answered_in_full():
    async def scenario(socket, engine):
        for _ in range(2 * MAX_CONTROL_FRAMES):
            socket.say({"type": "ping"})
        socket.say({"type": "close"})
        for _ in range(2 * MAX_CONTROL_FRAMES):
            assert await socket.frame() == {"type": "pong"}
        assert await socket.frame() == {"type": "closed", "code": 1000}

    run(scenario)


def test_a_client_that_sends_and_does_not_read_is_closed():
    async def scenario(socket, engine):
        for _ in range(2 * MAX_CONTROL_FRAMES):
            socket.say({"type": "ping"})
        await socket.ended()

    recorder = CountingRecorder()
    run(scenario, recorder=recorder, capacity=2)
    assert recorder.outcomes(SESSIONS_ENDED) == ["stalled"]


def test_a_message_larger_than_a_body_may_be_fails_alone():
    async def scenario(socket, engine):
        for binary in (True, False):
            socket.say('{"text":"Hi.","x":[' + "{}," * 500 + "{}]}", binary=binary)
        socket.say({"text": "Hello."})
        errors = [await socket.frame() for _ in range(2)]
        assert [error["code"] for error in errors] == ["text_too_long"] * 2
        assert (await socket.until("synthesis_complete"))[1]

    run(scenario, max_body_bytes=1000)


def test_sessions_that_ask_at_once_are_counted_before_their_upgrade_is_answered():
    async def scenario():
        app = app_over(FakeEngine(), max_sessions=1)
        async with websocket(app, PATH) as first:
            opening = first.to_app.get_nowait()  # a proxy hands it over later
            await turns_until(lambda: first.to_app._getters)
            async with websocket(app, PATH) as surplus:
                assert (await surplus.next())["type"] == "websocket.http.response.start"
            first.to_app.put_nowait(opening)
            assert (await first.next())["type"] == "websocket.accept"
        async with websocket(app, PATH) as later:
            assert (await later.next())["type"] == "websocket.accept"

    asyncio.run(scenario())


def test_sentences_that_come_as_messages_of_their_own_are_due_when_the_one_before_ends():
    async def scenario(socket, engine):
        for number in range(3):
            socket.say({"text": "So long that no pause of this machine is longer. " * 8, "request_id": f"r{number}"})
        for _ in range(3):
            await socket.until("synthesis_complete")
        return [segment.slack_s for segment in engine.finished if segment.index == 0]

    first, second, third = run(scenario)
    assert first == 0 < second < third


def test_after_a_barge_in_the_next_message_is_waited_for_in_silence():
    async def scenario(socket, engine):
        engine.allow(2)
        socket.say({"text": "One is here. Two is here. Three is here.", "request_id": "gone"})
        await turns_until(lambda: len(engine.finished) == 2)
        socket.say({"type": "cancel"})
        await socket.until("synthesis_cancelled")
        socket.say({"text": "And now this.", "request_id": "next"})
        engine.allow(2)
        await socket.until("synthesis_complete")
        return engine.started[-1]

    last = run(scenario, FakeEngine(gated=True))
    assert (last.request_id, last.slack_s) == ("next", 0)


def test_a_message_past_the_engine_s_bound_is_told_when_to_come_back_and_the_session_lives_on():
    async def scenario(socket, engine):
        engine.fail_next(QueueSaturated("The engine is busy. Try again in 7 s.", 7))
        socket.say({"text": "Hello there."})
        refused, _ = await socket.until("error")
        assert (refused["code"], refused["message"]) == ("queue_saturated", "The engine is busy. Try again in 7 s.")
        socket.say({"text": "Hello there."})
        await socket.until("synthesis_complete")

    run(scenario)


def test_refusals_are_counted_by_the_bound_that_was_reached():
    async def scenario(socket, engine):
        socket.say({"text": "One."})
        socket.say({"text": "Two."})
        socket.say({"text": "Three."})
        assert (await socket.until("error"))[0]["code"] == "queue_saturated"
        engine.fail_next(QueueSaturated("The engine is busy.", 7, bound="wait"))
        engine.allow(2)
        assert (await socket.until("error"))[0]["code"] == "queue_saturated"
        await socket.until("synthesis_complete")

    recorder = CountingRecorder()
    run(scenario, FakeEngine(gated=True), recorder, inbox_messages=1)
    assert [tags["reason"] for _, tags in recorder.values[REFUSALS.name]] == ["inbox", "wait"]


# What is told of an utterance when


LONGER_THAN_A_FRAME = "This is long enough for more frames than a client takes that is slow to read."


def test_first_audio_is_what_was_sent_and_an_utterance_ends_with_its_last_byte():
    async def scenario(socket, engine):
        socket.say({"text": LONGER_THAN_A_FRAME})
        await turns_until(lambda: engine.finished)
        await turns_until(socket.from_app.full)
        assert TTFA_S.name not in recorder.values  # the client has not taken what comes before it
        await socket.until("synthesis_start")
        assert isinstance(await socket.frame(), bytes)
        await turns_until(lambda: TTFA_S.name in recorder.values)
        assert recorder.outcomes(UTTERANCES) == []
        await socket.until("synthesis_complete")
        assert recorder.outcomes(UTTERANCES) == ["complete"]
        assert len(recorder.values[TTFA_S.name]) == 1

    recorder = CountingRecorder()
    run(scenario, recorder=recorder, capacity=1)


def test_an_utterance_whose_turn_comes_while_the_one_before_is_taken_is_waited_for_from_then_on(monkeypatch):
    clock = SimpleNamespace(now_s=100.0, monotonic=lambda: clock.now_s, time=lambda: 0.0)
    for module in (account, sockets):
        monkeypatch.setattr(module, "time", clock)

    async def scenario(socket, engine):
        socket.say({"text": LONGER_THAN_A_FRAME})
        socket.say({"text": LONGER_THAN_A_FRAME})
        await turns_until(lambda: len(engine.finished) == 2)
        clock.now_s += 60.0
        for _ in range(2):
            await socket.until("synthesis_complete")
        assert [value for value, _ in recorder.values[TTFA_S.name]] == [60.0, 0.0]

    recorder = CountingRecorder()
    run(scenario, recorder=recorder, capacity=1)


def test_audio_that_is_dropped_before_it_was_sent_is_no_first_audio():
    async def scenario(socket, engine):
        engine.allow(1)
        socket.say({"text": f"{LONGER_THAN_A_FRAME} And another one."})
        await turns_until(lambda: len(engine.started) == 2)
        socket.say({"type": "cancel"})
        await turns_until(lambda: engine.cancelled)
        assert (await socket.until("synthesis_cancelled"))[1] == b""
        assert TTFA_S.name not in recorder.values
        assert recorder.outcomes(UTTERANCES) == ["cancelled"]

    recorder = CountingRecorder()
    run(scenario, FakeEngine(gated=True), recorder, capacity=1)


def test_a_client_that_leaves_before_the_last_byte_has_not_had_the_utterance():
    async def scenario(socket, engine):
        socket.say({"text": LONGER_THAN_A_FRAME})
        await turns_until(lambda: engine.finished)
        await turns_until(socket.from_app.full)
        socket.to_app.put_nowait({"type": "websocket.disconnect", "code": 1006})
        await socket.ended()

    recorder = CountingRecorder()
    run(scenario, recorder=recorder, capacity=1)
    assert recorder.outcomes(UTTERANCES) == ["disconnected"]


def test_whenever_a_client_leaves_each_utterance_that_began_ends_once_and_nothing_stays_behind():
    async def scenario(turns):
        recorder, engine = CountingRecorder(), FakeEngine()
        async with websocket(app_over(engine, recorder), PATH) as socket:
            await socket.next()
            for text in ("One is here. Two is here.", "Three is here.", "Four is here."):
                socket.say({"text": text})
            for _ in range(turns):
                await asyncio.sleep(0)
            socket.to_app.put_nowait({"type": "websocket.disconnect", "code": 1006})
            await socket.ended()
            while not socket.from_app.empty():
                await socket.next()
        sent = "".join(message.get("text") or "" for message in socket.sent)
        outcomes = recorder.outcomes(UTTERANCES)
        assert asyncio.all_tasks() == {asyncio.current_task()}
        assert outcomes.count("complete") - sent.count("synthesis_complete") in (0, 1)  # sent, but for this frame
        assert len(outcomes) - sent.count("synthesis_start") in (0, 1)  # one may have begun that was not told of yet
        assert set(outcomes) <= {"complete", "disconnected"}
        return outcomes

    seen = [asyncio.run(scenario(turns)) for turns in range(120)]
    assert {outcomes.count("complete") for outcomes in seen} == {0, 1, 2, 3}


def test_what_a_server_that_leaves_turns_away_and_gives_up_is_counted():
    async def scenario():
        app = app_over(FakeEngine(gated=True), recorder)
        async with websocket(app, PATH) as socket:
            await socket.next()
            for text in ("In hand.", "Waits.", "Waits, too."):
                socket.say({"text": text})
            await socket.until("synthesis_start")
            app.leave(0.01)
            socket.say({"text": "Comes too late."})
            errors = [(await socket.until("error"))[0]["code"] for _ in range(4)]
            assert errors == ["engine_unavailable"] * 4
            await socket.until("closed")
            await socket.ended()

    recorder = CountingRecorder()
    asyncio.run(scenario())
    assert [tags["reason"] for _, tags in recorder.values[REFUSALS.name]] == ["draining"] * 3
    assert recorder.outcomes(UTTERANCES) == ["engine_unavailable"]
