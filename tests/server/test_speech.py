"""What an utterance is made of, over an engine whose every phoneme is a tone of its own: a word can be heard."""

import asyncio
from contextlib import aclosing
from dataclasses import replace

import numpy as np
import pytest

from serve_app.engine.fake import HOP_SAMPLES, PAD_FRAMES, SAMPLE_RATE, FakeEngine
from serve_app.errors import QueueSaturated
from serve_app.metrics import DROPPED_SYMBOLS, REFUSALS, NoRecorder
from serve_app.protocol.requests import SpeechRequest
from serve_app.server.listener import Listener
from serve_app.server.speech import MAX_PAUSES_S, Sentences, Speech
from serve_app.text.pieces import Piece, WordSpan
from serve_app.text.vocab import VOCAB
from tests.asgi import turns_until
from tests.fakes import CountingRecorder

FRAME_S = HOP_SAMPLES / SAMPLE_RATE
BLANK, STOP = 5, 6
LENGTHS = {"One": 4, "fine": 3, "day": 6, "$14.20": 9, "paid": 5, "Bob": 2, "left.": 4}
IDS = {word: 20 * number + 2 for number, word in enumerate(LENGTHS, 1)}  # whole periods in a frame
SENTENCES = ("One fine day", "$14.20 paid Bob", "left.")


class WordPhonemizer:
    """Each word is one phoneme id, repeated; blanks between words, a stop at the end. Pieces of two words."""

    def __init__(self, words_per_piece):
        self._words_per_piece = words_per_piece

    async def pieces(self, sentence, lang):
        words = sentence.split()
        groups = [words[i : i + self._words_per_piece] for i in range(0, len(words), self._words_per_piece)]
        return [self._piece(group, last=group is groups[-1]) for group in groups]

    def _piece(self, words, *, last):
        ids, spans = [], []
        for word in words:
            ids += [BLANK] if ids else []
            spans.append(WordSpan(word, len(ids), len(ids) + LENGTHS[word]))
            ids += [IDS[word]] * LENGTHS[word]
        return Piece((*ids, STOP), continues=not last, words=tuple(spans))

    async def languages(self):
        return ("a",)


def parts_of(sentences, engine=None, *, speed=1.0, words_per_piece=9):
    """What an utterance of these sentences yields."""

    async def scenario():
        speech = Speech(WordPhonemizer(words_per_piece), engine or FakeEngine(), NoRecorder(), lookahead_segments=2)
        request = SpeechRequest(text=" ".join(sentences), speed=speed)
        async with asyncio.timeout(10):
            return [
                part async for part in speech.speak(request, Sentences(sentences, final=True), listener=Listener("s"))
            ]

    return asyncio.run(scenario())


def spoken(engine=None, *, sentences=SENTENCES, speed=1.0, words_per_piece=9):
    """All audio of an utterance, and its words."""
    parts = parts_of(sentences, engine, speed=speed, words_per_piece=words_per_piece)
    return np.concatenate([part.samples for part in parts]), [word for part in parts for word in part.words]


def pitch_hz(samples):
    """Of the loudest tone; a word of one phoneme id has one."""
    spectrum = np.abs(np.fft.rfft(samples * np.hanning(len(samples)), 1 << 16))
    return np.argmax(spectrum) * SAMPLE_RATE / (1 << 16)


@pytest.mark.parametrize("speed", [0.25, 0.5, 1.0, 4.0])
@pytest.mark.parametrize("words_per_piece", [1, 2, 9])
def test_a_word_is_heard_when_its_times_say_whatever_the_speed_and_the_split(speed, words_per_piece):
    samples, words = spoken(speed=speed, words_per_piece=words_per_piece)
    assert [word.text for word in words] == list(LENGTHS)
    frames = max(1, round(1 / speed))
    for word in words:
        assert word.end_s - word.start_s == pytest.approx(LENGTHS[word.text] * frames * FRAME_S, abs=FRAME_S / 2)
        start, end = round(word.start_s * SAMPLE_RATE), round(word.end_s * SAMPLE_RATE)
        for heard in (samples[start : start + HOP_SAMPLES], samples[end - HOP_SAMPLES : end]):
            assert pitch_hz(heard) == pytest.approx(100 + 10 * IDS[word.text], abs=15)


@pytest.mark.parametrize("speed", [0.25, 1.0])
@pytest.mark.parametrize("words_per_piece", [1, 9])
def test_after_the_last_word_come_its_stop_and_the_pad_and_no_more(speed, words_per_piece):
    samples, words = spoken(speed=speed, words_per_piece=words_per_piece)
    after_s = len(samples) / SAMPLE_RATE - words[-1].end_s
    assert after_s == pytest.approx((max(1, round(1 / speed)) + PAD_FRAMES) * FRAME_S, abs=FRAME_S / 2)


class LongSilences(FakeEngine):
    """Its first and last phonemes are silent and last a second, as a model may draw out a breath."""

    async def synthesize(self, segment):
        chunk = await super().synthesize(segment)
        silence, frames = np.zeros(SAMPLE_RATE, np.float32), SAMPLE_RATE // HOP_SAMPLES
        durations = chunk.duration_frames.copy()
        durations[1] += frames
        durations[-3] += frames  # of the last phoneme of the last word; -2 is the stop, -1 the pad
        edge = (PAD_FRAMES + 1) * HOP_SAMPLES
        silenced = np.concatenate([silence, chunk.samples[:-edge], silence, np.zeros(edge, np.float32)])
        return replace(chunk, samples=silenced, duration_frames=durations)


@pytest.mark.parametrize("words_per_piece", [1, 2, 9])
def test_words_never_overlap_nor_outlast_the_audio_when_a_seam_takes_their_silence(words_per_piece):
    samples, words = spoken(LongSilences(), words_per_piece=words_per_piece)
    times = [time for word in words for time in (word.start_s, word.end_s)]
    assert times == sorted(times)
    assert words[0].start_s >= 0
    assert words[-1].end_s <= len(samples) / SAMPLE_RATE + 1e-9


def silences_s(samples):
    """Seconds of each run of silence: beeps have no two samples of silence in a row."""
    loud = np.flatnonzero(np.abs(np.concatenate([[1], samples, [1]])) > 1e-6)
    gaps = np.diff(loud) - 1
    return list(gaps[gaps > 100] / SAMPLE_RATE)


PAD_S = PAD_FRAMES * FRAME_S


@pytest.mark.parametrize("words_per_piece", [1, 9])
@pytest.mark.parametrize(
    ("sentences", "pauses_s"),
    [
        (("One [pause:1s] fine",), [PAD_S, 1.0, PAD_S]),
        (("One", "[pause:300ms] fine"), [PAD_S, 0.3, PAD_S]),
        (("One [PAUSE:1.5s]", "fine"), [PAD_S, 1.5, PAD_S]),
        (("[pause:1s] One",), [1.0, PAD_S]),
        (("[pause:1s]", "[pause:500ms] One"), [1.5, PAD_S]),
        (("One", "[pause:2s]"), [PAD_S, 2.0]),
        (("One [pause:2s]",), [PAD_S, 2.0]),
        (("One [pause:1s] [pause:250ms]", "[pause:250ms] fine"), [PAD_S, 1.5, PAD_S]),
        (("One [pause:60s] fine",), [PAD_S, 10.0, PAD_S]),
        (("One[pause:0.5s]day[pause:1s]Bob[pause:1.5s]left.",), [PAD_S, 0.5, 1.0, 1.5, PAD_S]),
    ],
)
def test_a_pause_is_as_long_as_written_to_the_sample(sentences, pauses_s, words_per_piece):
    samples, words = spoken(sentences=sentences, words_per_piece=words_per_piece)
    assert silences_s(samples) == pytest.approx(pauses_s, abs=1.5 / SAMPLE_RATE)
    for word in words:
        start, end = round(word.start_s * SAMPLE_RATE), round(word.end_s * SAMPLE_RATE)
        for heard in (samples[start : start + HOP_SAMPLES], samples[end - HOP_SAMPLES : end]):
            assert pitch_hz(heard) == pytest.approx(100 + 10 * IDS[word.text], abs=15)


@pytest.mark.parametrize("sentences", [("[pause:1s]",), ("[pause:1s]", "[pause:2s] "), ("", "[pause:1s]")])
def test_pauses_alone_are_nothing_to_speak(sentences):
    assert parts_of(sentences) == []


def test_all_pauses_of_an_utterance_are_bounded_and_none_is_one_big_block_of_memory():
    many = (*["One [pause:10s] [pause:10s]"] * 100, "left.")
    parts = parts_of(many)
    spoken_s = sum(part.segments for part in parts) * 10 * FRAME_S
    total_s = sum(len(part.samples) for part in parts) / SAMPLE_RATE
    assert MAX_PAUSES_S <= total_s <= MAX_PAUSES_S + spoken_s + 100 * 0.45
    assert max(len(part.samples) for part in parts) <= 10 * SAMPLE_RATE
    assert parts[-1].words[0].text == "left."


def test_a_pause_leaves_before_the_next_sentence_is_spoken_or_even_written():
    async def scenario():
        engine, sentences = FakeEngine(gated=True), Sentences()
        speech = Speech(WordPhonemizer(9), engine, NoRecorder(), lookahead_segments=2)
        request = SpeechRequest(text="fed")
        async with asyncio.timeout(10), aclosing(speech.speak(request, sentences, listener=Listener("s"))) as parts:
            sentences.add(["One", "[pause:2s]"], final=False)
            engine.allow(1)
            first, pause = await anext(parts), await anext(parts)
            assert (first.segments, pause.segments) == (1, 0)
            assert len(pause.samples) / SAMPLE_RATE == pytest.approx(2.0, abs=0.2)
            sentences.add(["fine"], final=True)
            engine.allow(1)
            return first, pause, await anext(parts)

    parts = asyncio.run(scenario())
    assert silences_s(np.concatenate([part.samples for part in parts]))[:2] == pytest.approx([PAD_S, 2.0], abs=1e-4)


def test_a_pause_at_the_start_waits_so_that_a_refusal_comes_before_any_audio():
    engine = FakeEngine()
    engine.fail_next(QueueSaturated("full"))
    with pytest.raises(QueueSaturated):
        parts_of(("[pause:1s] One",), engine)


def test_leaving_during_a_pause_cancels_what_is_ahead():
    async def scenario():
        engine = FakeEngine(gated=True)
        speech = Speech(WordPhonemizer(9), engine, NoRecorder(), lookahead_segments=2)
        sentences = Sentences(["One [pause:5s] fine", "day"], final=True)
        async with (
            asyncio.timeout(10),
            aclosing(speech.speak(SpeechRequest(text="x"), sentences, listener=Listener("s"))) as parts,
        ):
            engine.allow(1)
            await anext(parts)
            assert (await anext(parts)).segments == 0
            await turns_until(lambda: engine.queue_depth == 1)
        return engine

    engine = asyncio.run(scenario())
    assert len(engine.finished) == 1
    assert sorted(segment.index for segment in engine.cancelled) == [1, 2]


class LossyPhonemizer(WordPhonemizer):
    """Whose every piece had two symbols that the model lacks, as a pronunciation in the text may have."""

    async def pieces(self, sentence, lang):
        return [replace(piece, dropped=2) for piece in await super().pieces(sentence, lang)]


def test_symbols_that_the_model_lacks_are_counted():
    async def scenario(recorder):
        speech = Speech(LossyPhonemizer(9), FakeEngine(), recorder, lookahead_segments=2)
        sentences = Sentences(["One [pause:1s] fine", "day"], final=True)
        async with asyncio.timeout(10):
            return [part async for part in speech.speak(SpeechRequest(text="x"), sentences, listener=Listener("s"))]

    recorder = CountingRecorder()
    assert asyncio.run(scenario(recorder))
    assert recorder.values[DROPPED_SYMBOLS.name] == [(2, {})] * 3


def test_each_text_between_pauses_is_a_segment_with_its_own_words():
    engine = FakeEngine()
    parts = parts_of(("One [pause:1s] fine [pause:1s] day",), engine)
    assert [segment.index for segment in engine.finished] == [0, 1, 2]
    assert [[word.text for word in part.words] for part in parts if part.segments] == [["One"], ["fine"], ["day"]]


@pytest.mark.parametrize(
    ("first", "pauses"), [("fine " * 50 + "day", False), ("fine day", True), ("fine " * 50 + "left.", True)]
)
def test_a_sentence_cut_for_its_length_goes_on_without_the_pause_of_a_full_stop(first, pauses):
    samples, words = spoken(sentences=(first, "One day"))
    between = samples[round(words[-3].end_s * SAMPLE_RATE) : round(words[-2].start_s * SAMPLE_RATE)]
    assert (np.count_nonzero(np.abs(between) < 1e-3) / SAMPLE_RATE > 0.15) == pauses


class Clock:
    now_s = 100.0

    def __call__(self):
        return self.now_s


def test_a_segment_says_for_how_long_its_listener_still_has_something_to_hear():
    async def scenario():
        clock, engine, listener = Clock(), FakeEngine(gated=True), Listener("s")
        speech = Speech(WordPhonemizer(9), engine, NoRecorder(), lookahead_segments=2, clock=clock)
        sentences = Sentences(["One fine day", "$14.20", "Bob"], final=True)
        async with (
            asyncio.timeout(10),
            aclosing(speech.speak(SpeechRequest(text="x"), sentences, listener=listener)) as parts,
        ):
            engine.allow(1)
            first = await anext(parts)
            clock.now_s += 0.1
            engine.allow(1)
            second = await anext(parts)
            engine.allow(1)
            await anext(parts)
        return [len(part.samples) / SAMPLE_RATE for part in (first, second)], engine.finished

    (first_s, second_s), segments = asyncio.run(scenario())
    slacks_s = [segment.slack_s for segment in segments]
    assert slacks_s[0] == 0
    assert 0.2 < slacks_s[1] < 3  # not spoken yet when the second was sent: what is expected of it
    assert slacks_s[2] > first_s - 0.1  # the first one as it was, the second as expected
    assert slacks_s[2] != pytest.approx(first_s + second_s)


def test_between_two_utterances_of_a_session_the_listener_still_hears_the_first():
    async def scenario():
        clock, engine, listener = Clock(), FakeEngine(), Listener("s")
        speech = Speech(WordPhonemizer(9), engine, NoRecorder(), lookahead_segments=2, clock=clock)

        async def say(text):
            async with asyncio.timeout(10):
                spoken = speech.speak(SpeechRequest(text=text), Sentences([text], final=True), listener=listener)
                return sum([len(part.samples) / SAMPLE_RATE async for part in spoken])

        lasts_s = await say("One fine day")
        clock.now_s += 0.1
        await say("Bob")
        clock.now_s += 60
        await say("Bob")
        return lasts_s, [segment.slack_s for segment in engine.finished]

    lasts_s, slacks_s = asyncio.run(scenario())
    assert slacks_s == pytest.approx([0, lasts_s - 0.1, 0])


class LongSentences(WordPhonemizer):
    """Two clauses of 24 tokens and a blank between."""

    async def pieces(self, sentence, lang):
        clause = (50,) * 23
        comma, blank = VOCAB[","], VOCAB[" "]
        return [Piece((*clause, comma, blank, *clause, STOP), words=(WordSpan(sentence, 0, 23), WordSpan("b", 25, 48)))]


def lengths(sentences, *, first_cut_above, heard_s=0.0):
    async def scenario():
        engine, listener = FakeEngine(), Listener("s")
        listener.hear(heard_s, 100.0)
        speech = Speech(
            LongSentences(9),
            engine,
            NoRecorder(),
            lookahead_segments=2,
            first_cut_above=first_cut_above,
            clock=Clock(),
        )
        spoken = speech.speak(SpeechRequest(text="x"), Sentences(sentences, final=True), listener=listener)
        async with asyncio.timeout(10):
            parts = [part async for part in spoken]
        words = [(word.text, round(word.start_s, 6), round(word.end_s, 6)) for part in parts for word in part.words]
        samples = np.concatenate([part.samples for part in parts])
        return samples, [(segment.part, len(segment.phoneme_ids)) for segment in engine.finished], words

    return asyncio.run(scenario())


def test_only_a_long_sentence_that_is_waited_for_in_silence_is_cut():
    whole = (None, 49)
    assert lengths(["one", "two"], first_cut_above=40)[1] == [((0, 23), 49), ((23, 49), 49), whole]
    assert lengths(["one", "two"], first_cut_above=49)[1] == [whole] * 2
    assert lengths(["one", "two"], first_cut_above=None)[1] == [whole] * 2
    assert lengths(["one", "two"], first_cut_above=40, heard_s=1.0)[1] == [whole] * 2


def test_a_sentence_that_was_cut_is_as_long_and_has_its_words_where_it_would_have_them_whole():
    cut, whole = (lengths(["one"], first_cut_above=above) for above in (40, None))
    assert len(cut[1]) == 2
    assert len(cut[0]) == len(whole[0])
    assert np.flatnonzero(np.abs(cut[0] - whole[0]) > 1e-6).size <= SAMPLE_RATE / 100  # the fades at the joint
    assert cut[2] == whole[2]


def gaps_s(*steps):
    """What of it is the server's, of a session in which each step waits, then says a text, and how long that takes."""

    async def scenario():
        clock, engine, listener = Clock(), FakeEngine(gated=True), Listener("s")
        speech = Speech(WordPhonemizer(9), engine, NoRecorder(), lookahead_segments=2, clock=clock)
        found = []
        for waits_s, text, takes_s in steps:
            clock.now_s += waits_s
            sentences = Sentences([text], final=True)
            async with (
                asyncio.timeout(10),
                aclosing(speech.speak(SpeechRequest(text="x"), sentences, listener=listener)) as parts,
            ):
                asked = asyncio.create_task(anext(parts))
                await turns_until(lambda: len(engine.started) > len(engine.finished))
                clock.now_s += takes_s
                engine.allow(1)
                found += [(await asked).gap_s, *[part.gap_s async for part in parts]]
        return [gap_s for gap_s in found if gap_s]

    return asyncio.run(scenario())


ONE_S = 18 * FRAME_S
"""About what "One fine day" lasts."""


def test_a_message_that_was_there_in_time_and_comes_late_is_a_gap():
    assert gaps_s((0, "One fine day", 0), (0, "Bob", 5)) == [pytest.approx(5 - ONE_S, abs=0.2)]
    assert gaps_s((0, "One fine day", 3), (0, "Bob", 0)) == []


def test_a_message_that_comes_to_a_listener_in_silence_has_a_first_audio_and_no_gap():
    assert gaps_s((0, "One fine day", 0), (5, "Bob", 5)) == []


def test_within_an_utterance_what_the_writer_or_the_reader_waits_for_is_no_gap_of_the_server():
    async def scenario():
        clock, engine, listener = Clock(), FakeEngine(gated=True), Listener("s")
        speech = Speech(WordPhonemizer(9), engine, NoRecorder(), lookahead_segments=2, clock=clock)
        sentences, found = Sentences(["One fine day"]), []
        async with (
            asyncio.timeout(10),
            aclosing(speech.speak(SpeechRequest(text="x"), sentences, listener=listener)) as parts,
        ):
            engine.allow(1)
            found.append((await anext(parts)).gap_s)
            for written_after_s, taken_after_s, spoken_after_s in ((10, 0, 0), (0, 10, 0), (0, 0, 10), (10, 0, 10)):
                asked = None if taken_after_s else asyncio.create_task(anext(parts))
                await asyncio.sleep(0)
                clock.now_s += written_after_s
                sentences.add(["Bob"], final=False)
                await turns_until(lambda: len(engine.started) > len(engine.finished))
                clock.now_s += taken_after_s
                asked = asked or asyncio.create_task(anext(parts))
                await asyncio.sleep(0)
                clock.now_s += spoken_after_s
                engine.allow(1)
                found.append((await asked).gap_s)
        return found

    assert asyncio.run(scenario()) == [0, 0, 0, pytest.approx(10, abs=1), 10]


def test_a_refusal_of_the_engine_is_counted_with_the_bound_that_was_reached():
    async def scenario():
        engine = FakeEngine()
        engine.fail_next(QueueSaturated("late", bound="wait"))
        speech = Speech(WordPhonemizer(9), engine, recorder, lookahead_segments=2)
        async for _ in speech.speak(SpeechRequest(text="x"), Sentences(["Bob"], final=True), listener=Listener("s")):
            pass

    recorder = CountingRecorder()
    with pytest.raises(QueueSaturated):
        asyncio.run(scenario())
    assert recorder.values[REFUSALS.name] == [(1.0, {"reason": "wait"})]
