"""What an utterance is made of, over an engine whose every phoneme is a tone of its own: a word can be heard."""

import asyncio
from dataclasses import replace

import numpy as np
import pytest

from serve_app.engine.fake import HOP_SAMPLES, PAD_FRAMES, SAMPLE_RATE, FakeEngine
from serve_app.metrics import NoRecorder
from serve_app.protocol.requests import SpeechRequest
from serve_app.server.speech import Sentences, Speech
from serve_app.text.pieces import Piece, WordSpan

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


def spoken(engine=None, *, speed=1.0, words_per_piece=9):
    """All audio of an utterance of `SENTENCES`, and its words."""

    async def scenario():
        speech = Speech(WordPhonemizer(words_per_piece), engine or FakeEngine(), NoRecorder(), lookahead_segments=2)
        request = SpeechRequest(text=" ".join(SENTENCES), speed=speed)
        async with asyncio.timeout(10):
            return [part async for part in speech.speak(request, Sentences(SENTENCES, final=True), session_id="s")]

    parts = asyncio.run(scenario())
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
