"""The classes behind the deployments, without Ray."""

import asyncio
import threading

import pytest

from serve_app.deployments.chunker import Chunker
from serve_app.deployments.kokoro import Kokoro
from serve_app.engine.fake import FakeEngine
from serve_app.engine.types import AudioChunk, EngineInfo, Segment
from serve_app.errors import EngineUnavailable, QueueSaturated, UnsupportedLanguage
from serve_app.metrics import SENTENCES_IN_HAND
from serve_app.text.pieces import Piece
from tests.fakes import CountingRecorder

SEGMENT = Segment("session", "request", 0, (1, 2, 3), "af_heart")


def test_a_segment_is_answered_with_audio():
    assert isinstance(asyncio.run(Kokoro(FakeEngine()).synthesize(SEGMENT)), AudioChunk)
    assert isinstance(asyncio.run(Kokoro(FakeEngine()).info()), EngineInfo)


def test_a_refusal_is_an_answer():
    async def refused():
        engine = FakeEngine(max_queue=1, gated=True)
        kokoro = Kokoro(engine)
        busy = [asyncio.create_task(kokoro.synthesize(SEGMENT)) for _ in range(2)]
        await asyncio.sleep(0)
        surplus = await kokoro.synthesize(SEGMENT)
        engine.allow(2)
        await asyncio.gather(*busy)
        return surplus

    assert isinstance(asyncio.run(refused()), QueueSaturated)


def test_health_and_info_follow_the_engine():
    engine = FakeEngine()
    kokoro = Kokoro(engine)
    asyncio.run(kokoro.check_health())
    engine.break_down()
    with pytest.raises(EngineUnavailable):
        asyncio.run(kokoro.check_health())
    assert isinstance(asyncio.run(kokoro.info()), EngineUnavailable)


class Sentences:
    """A front end that says what it hears."""

    languages = ("a",)

    def pieces(self, sentence, lang):
        return [sentence]


def test_a_chunker_counts_the_sentences_in_hand_from_its_start_on():
    async def asked(chunker):
        await asyncio.gather(chunker.pieces("One.", "a"), chunker.pieces("Two.", "a"))

    recorder = CountingRecorder()
    chunker = Chunker(Sentences, recorder=recorder)
    assert recorder.values[SENTENCES_IN_HAND.name] == [(0, {})]
    asyncio.run(asked(chunker))
    assert [value for value, _ in recorder.values[SENTENCES_IN_HAND.name]] == [0, 1, 2, 1, 0]


class OneAtATime:
    """A front end that notices a second caller, and one on another thread than the one it was built on."""

    languages = ("a",)

    def __init__(self):
        self._busy = threading.Lock()
        self._thread = threading.get_ident()

    def pieces(self, sentence, lang):
        assert threading.get_ident() == self._thread
        assert self._busy.acquire(blocking=False)
        try:
            if lang != "a":
                raise UnsupportedLanguage("only a")
            return [Piece((len(sentence),))]
        finally:
            self._busy.release()


def test_sentences_of_many_requests_never_meet_in_the_front_end():
    async def scenario():
        chunker = Chunker(OneAtATime)
        answers = await asyncio.gather(*(chunker.pieces("x" * n, "a") for n in range(1, 100)))
        assert [pieces[0].phoneme_ids for pieces in answers] == [(n,) for n in range(1, 100)]
        assert isinstance(await chunker.pieces("x", "z"), UnsupportedLanguage)
        assert await chunker.languages() == ("a",)

    asyncio.run(scenario())


def test_the_event_loop_turns_while_the_front_end_works():
    entered, release = threading.Event(), threading.Event()

    class Slow(OneAtATime):
        def pieces(self, sentence, lang):
            entered.set()
            release.wait(10)
            return super().pieces(sentence, lang)

    async def scenario():
        chunker = Chunker(Slow)
        working = asyncio.create_task(chunker.pieces("x", "a"))
        await asyncio.to_thread(entered.wait, 10)
        assert not working.done()
        release.set()
        assert await working

    asyncio.run(scenario())
