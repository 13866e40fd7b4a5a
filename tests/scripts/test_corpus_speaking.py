"""A row's audio is the body that POST /invocations answers with; over tones here, over the model in tests/running."""

import asyncio
import hashlib
import math
import sys

import httpx
import pytest

from scripts.corpus.rows import Row
from scripts.corpus.speaking import TRIES, Identity, Manner, Speaker, offline
from scripts.fake_app import FakeFrontEnd
from serve_app.config import load_settings
from serve_app.engine.fake import VOICES, FakeEngine
from serve_app.errors import EngineUnavailable, Internal, UnsupportedLanguage
from serve_app.formats import FORMATS
from tests.fakes import app_over

SETTINGS = offline(load_settings({}, {}), threads=1, max_batch=4, on_gpu=False)
TEXTS = ("One. Two goes on.", "A longer row. It has three sentences! [pause:0.4s] This is the last one.", "Hi.")


class OneLanguage(FakeFrontEnd):
    def pieces(self, sentence, lang):
        if lang != "a":
            raise UnsupportedLanguage("only a is supported here")
        return super().pieces(sentence, lang)


def speak(rows, engine=None, audio_format="wav", look_every_s=30.0, front_end=None, **manner):
    values = {"keeps_text": True, "product": "1", "created": "2026-01-01T00:00:00+00:00"} | manner
    told = Manner(audio_format, FORMATS[audio_format].default_rate, **values)
    heard = []

    async def run():
        identity = Identity("tones", "0", VOICES)
        speaker = Speaker(front_end or OneLanguage(), engine or FakeEngine(), identity, SETTINGS)
        return await speaker.speak(rows, told, lambda row, audio_s: heard.append((row.id, audio_s)), look_every_s)

    return asyncio.run(run()), heard


def row(number, text, **changes):
    values = {"voice": "af_heart", "speed": 1.0, "lang": None} | changes
    return Row(f"r{number}", number, "c.txt", text, **values)


@pytest.mark.parametrize("audio_format", FORMATS)
def test_the_audio_of_a_row_is_the_answer_to_the_same_text(audio_format):
    rows = [row(number, text, speed=(1.0, 1.5, 0.8)[number]) for number, text in enumerate(TEXTS)]
    outcome, _ = speak(rows, audio_format=audio_format)
    spoken = sorted(outcome.spoken, key=lambda told: told["row"])

    async def answers():
        transport = httpx.ASGITransport(app_over(FakeEngine()))
        async with httpx.AsyncClient(transport=transport, base_url="http://here") as client:
            for asked in rows:
                body = {"text": asked.text, "speed": asked.speed, "format": audio_format, "stream": False}
                answer = await client.post("/invocations", json=body)
                yield answer.content, float(answer.headers["X-Audio-Duration"])

    async def collected():
        return [answer async for answer in answers()]

    assert [(told["audio"], round(told["duration_s"], 3)) for told in spoken] == asyncio.run(collected())


def test_words_lie_within_the_audio_in_order():
    [told] = speak([row(1, TEXTS[1])])[0].spoken
    times = [time for word in told["words"] for time in (word["start_s"], word["end_s"])]
    assert len(told["words"]) == 3
    assert times == sorted(times)
    assert 0 <= times[0] <= times[-1] <= told["duration_s"]


def test_a_row_tells_where_it_came_from_and_what_made_it():
    outcome, heard = speak([row(3, "Hi.", speed=2.0)])
    [told] = outcome.spoken
    assert (told["id"], told["file"], told["row"], told["text"]) == ("r3", "c.txt", 3, "Hi.")
    assert told["provenance"] == {
        "product": "1",
        "weights": "tones",
        "weights_sha256": "0",
        "voice": "af_heart",
        "lang": "a",
        "speed": 2.0,
        "seed": "content",
        "created": "2026-01-01T00:00:00+00:00",
    }
    assert heard == [("r3", told["duration_s"])]
    assert outcome.characters == 3


def test_without_text_its_digest_is_left():
    [told] = speak([row(1, "Hi.")], keeps_text=False)[0].spoken
    assert told["text"] is None
    assert told["text_sha256"] == hashlib.sha256(b"Hi.").hexdigest()


def test_rows_that_the_model_refuses_are_turned_away_and_the_others_spoken():
    engine = FakeEngine()
    rows = [row(1, "Hi.", voice="af_nobody"), row(2, "Hi.", lang="q"), row(3, "Hi.")]
    outcome, heard = speak(rows, engine)
    assert [told["id"] for told in outcome.spoken] == ["r3"]
    assert sorted((rejected.row, rejected.code) for rejected in outcome.rejected) == [
        (1, "unknown_voice"),
        (2, "unsupported_language"),
    ]
    assert outcome.left == []
    assert len(heard) == 3


def failing(times):
    """An engine whose first segments fail."""
    engine = FakeEngine()
    for _ in range(times):
        engine.fail_next(Internal("The speech model failed on a part of the text."))
    return engine


def test_a_row_on_which_the_model_fails_is_tried_again():
    outcome, heard = speak([row(1, "Hi.")], failing(TRIES - 1))
    assert [told["id"] for told in outcome.spoken] == ["r1"]
    assert (outcome.rejected, outcome.left) == ([], [])
    assert [row_id for row_id, _ in heard] == ["r1"]


def test_a_row_on_which_the_model_fails_each_time_is_left_and_not_turned_away():
    outcome, heard = speak([row(1, "Hi.")], failing(TRIES))
    assert (outcome.spoken, outcome.rejected, outcome.characters) == ([], [], 0)
    assert [(left.row, left.code) for left in outcome.left] == [(1, "internal")]
    assert heard == []


def test_a_row_on_which_our_own_code_fails_is_left_and_the_others_spoken(caplog):
    class Faulty(FakeFrontEnd):
        def pieces(self, sentence, lang):
            if "odd" in sentence:
                raise RuntimeError("a defect")
            return super().pieces(sentence, lang)

    outcome, _ = speak([row(1, "An odd one."), row(2, "Hi.")], front_end=Faulty())
    assert [told["id"] for told in outcome.spoken] == ["r2"]
    assert [(left.row, left.code) for left in outcome.left] == [(1, "internal")]
    assert "row r1 failed" in caplog.text
    assert "odd one" not in caplog.text


def test_an_engine_that_is_gone_is_no_row_s_fault():
    engine = FakeEngine()
    engine.break_down()
    with pytest.raises(ExceptionGroup) as failures:
        speak([row(1, "Hi.")], engine)
    assert failures.group_contains(EngineUnavailable)


def test_an_engine_that_is_gone_while_all_wait_for_it_is_noticed():
    class Hanging(FakeEngine):
        async def synthesize(self, segment):
            self.break_down()
            await asyncio.Event().wait()

    with pytest.raises(ExceptionGroup) as failures:
        speak([row(1, "Hi.")], Hanging(), look_every_s=0.0)
    assert failures.group_contains(EngineUnavailable)


def test_offline_nobody_is_refused_for_having_to_wait():
    assert SETTINGS.engine.max_wait_s == math.inf
    assert SETTINGS.engine.max_queue == sys.maxsize
    assert (SETTINGS.engine.threads, SETTINGS.engine.max_batch) == (1, 4)


def test_a_worker_without_a_gpu_asks_for_none():
    settings = load_settings({}, {})
    assert SETTINGS.engine.device == "cpu"
    assert offline(settings, threads=1, max_batch=4, on_gpu=True).engine.device == "auto"
