"""One utterance from sentences to audio: phonemes, segments, synthesis, seams.

Sentences come in as they are written; a bounded number of segments is in the engine ahead of the one being sent, so
that the next one is computed while this one plays and a slow reader stops the synthesis of its own session only.
"""

import asyncio
import math
import time
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Callable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Protocol

from serve_app.audio.pcm import MODEL_RATE, Samples, duration_s
from serve_app.audio.seams import SeamJoiner
from serve_app.blends import check_voice
from serve_app.engine.types import AudioChunk, Engine, EngineInfo, Segment
from serve_app.errors import EngineUnavailable, QueueSaturated
from serve_app.metrics import DROPPED_SYMBOLS, REFUSALS, Recorder
from serve_app.protocol.requests import SpeechRequest
from serve_app.server.listener import Listener, Pace
from serve_app.text.chunker import is_cut_short
from serve_app.text.first_cut import cut_first
from serve_app.text.pauses import split_at_pauses
from serve_app.text.pieces import Piece
from serve_app.tracing import NO_TRACER, Tracer

READY_WITHIN_S = 1.0
"""How long an engine that never answered before may take to; past it a request is refused, not left hanging."""

MAX_PAUSES_S = 600.0
"""All pauses of one utterance; later ones shrink to nothing. A short text could otherwise ask for hours of audio."""


class Phonemizer(Protocol):
    """Sentence in, pieces for the model out; the one in this process or the one behind a Serve handle."""

    async def pieces(self, sentence: str, lang: str) -> Sequence[Piece]:
        """Raises UnsupportedLanguage. A sentence without a speakable character gives no piece."""
        ...

    async def languages(self) -> tuple[str, ...]:
        """Codes of the languages whose front end is installed."""
        ...


@dataclass(frozen=True, slots=True)
class TimedWord:
    """A word as written, and when it is heard, in seconds from the start of its utterance's audio."""

    text: str
    start_s: float
    end_s: float

    def as_json(self) -> dict[str, str | float]:
        """The contract's shape, times rounded to ms."""
        return {"w": self.text, "start_s": round(self.start_s, 3), "end_s": round(self.end_s, 3)}


@dataclass(frozen=True, slots=True, eq=False)
class Spoken:
    """Audio to send next: float32 [n] at the engine's rate. `segments` is 0 for a pause and the silence at the end.

    `gap_s` is how long its listener was silent for want of it, see `Speech.speak`.
    """

    samples: Samples
    sample_rate: int
    words: tuple[TimedWord, ...] = ()
    inference_s: float = 0.0
    segments: int = 1
    gap_s: float = 0.0


class Sentences:
    """Sentences of an utterance that is still being written: an async iterator with a writing end."""

    def __init__(self, sentences: Sequence[str] = (), *, final: bool = False) -> None:
        self._queue: asyncio.Queue[str | None] = asyncio.Queue()
        self.characters = 0
        self.add(sentences, final=final)

    def add(self, sentences: Sequence[str], *, final: bool) -> None:
        """Append; `final` says that nothing follows. The session bounds what waits here."""
        for sentence in sentences:
            self.characters += len(sentence)
            self._queue.put_nowait(sentence)
        if final:
            self._queue.put_nowait(None)

    async def __aiter__(self) -> AsyncIterator[str]:
        while (sentence := await self._queue.get()) is not None:
            yield sentence


class Speech:
    """What the routes speak with: a phonemizer and an engine, wherever they run.

    Attributes:
        lookahead_segments: segments of one utterance in the engine ahead of the one being sent; may be set at any time.
    """

    def __init__(
        self,
        phonemizer: Phonemizer,
        engine: Engine,
        recorder: Recorder,
        tracer: Tracer = NO_TRACER,
        *,
        lookahead_segments: int,
        first_cut_above: int | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """
        Args:
            first_cut_above: phoneme tokens past which a sentence that is waited for in silence is cut at a clause.
            clock: seconds, for how much of what was handed on a listener has heard.
        """
        self._phonemizer, self._engine, self._recorder = phonemizer, engine, recorder
        self.tracer = tracer
        self.lookahead_segments = lookahead_segments
        self._first_cut_above, self._clock = first_cut_above, clock
        self._pace = Pace()
        self._info: EngineInfo | None = None
        self._languages: set[str] = set()

    async def ready(self) -> None:
        """Ask every part whether it can work now. Raises EngineUnavailable."""
        self._info, _ = await asyncio.gather(self._engine.info(), self._phonemizer.languages())

    async def voices(self) -> tuple[str, ...]:
        """Ids of the loaded voices. Raises EngineUnavailable."""
        if self._info is None:
            try:
                async with asyncio.timeout(READY_WITHIN_S):
                    self._info = await self._engine.info()
            except TimeoutError as exc:
                raise EngineUnavailable("the speech engine does not answer; it may be starting") from exc
        return self._info.voices

    async def check(self, request: SpeechRequest) -> None:
        """Refuse before anything is spoken.

        Raises UnknownVoice, BadRequest (an ill-formed blend), UnsupportedLanguage, EngineUnavailable.
        """
        check_voice(request.voice, await self.voices())
        if request.language not in self._languages:
            await self._phonemizer.pieces("", request.language)  # the front end knows what to install
            self._languages.add(request.language)

    async def speak(
        self, request: SpeechRequest, sentences: AsyncIterable[str], *, listener: Listener
    ) -> AsyncGenerator[Spoken, None]:
        """Yield the utterance's audio, segment by segment, in order. Close it to stop the synthesis.

        What is yielded counts as heard by `listener` from then on, one utterance at a time. A gap is the silence since
        then, as far as it is this server's: not before the text was there nor before the caller asked for more, and
        not what an utterance begins with whose text came to a listener in silence: that is its time to first audio.

        Raises:
            UnknownVoice, BadRequest (an ill-formed blend), UnsupportedLanguage, QueueSaturated: before any audio.
            EngineUnavailable, Internal: at any point.
        """
        await self.check(request)
        ahead = _Ahead(self.lookahead_segments)
        submitting = asyncio.create_task(self._submit(ahead, request, sentences, listener))
        submitting.add_done_callback(lambda _: ahead.due.put_nowait(None))
        track = _Track()
        asked_s = -math.inf

        def handed_on(spoken: Spoken) -> Spoken:
            listener.hear(duration_s(len(spoken.samples), spoken.sample_rate), self._clock())
            return spoken

        try:
            while (item := await ahead.due.get()) is not None:
                if isinstance(item, float):
                    yield handed_on(track.pause(item))
                    asked_s = self._clock()
                    continue
                chunk = await item.task
                gap_s = listener.silent_s(self._clock(), max(item.owed_since_s, asked_s))
                if item.piece.dropped:
                    self._recorder.record(DROPPED_SYMBOLS, item.piece.dropped)
                for pause_s in item.pauses_s:
                    yield handed_on(track.pause(pause_s))
                spoken = track.speak(item.piece, chunk, resumes=item.resumes)
                audio_s = duration_s(len(spoken.samples), spoken.sample_rate)
                self._pace.record(item.piece.spoken_tokens, request.speed, audio_s)
                ahead.in_engine.popleft()
                yield handed_on(replace(spoken, gap_s=gap_s))
                asked_s = self._clock()
                ahead.free.release()
            await submitting  # re-raises what ended it
            if (end := track.finish()) is not None:
                yield handed_on(end)
        except QueueSaturated as refused:
            self._recorder.record(REFUSALS, reason=refused.bound)
            raise
        finally:
            unfinished = (submitting, *(item.task for item in ahead.in_engine))
            for task in unfinished:
                task.cancel()
            await asyncio.gather(*unfinished, return_exceptions=True)

    async def _submit(
        self, ahead: "_Ahead", request: SpeechRequest, sentences: AsyncIterable[str], listener: Listener
    ) -> None:
        """Hand the utterance to the engine, a few segments ahead of what is sent."""
        index, first_pauses, cut_short = 0, list[float](), False
        async for sentence in sentences:
            known_s = self._clock()
            begins_s = known_s if listener.left_s(known_s) else math.inf
            for part in split_at_pauses(sentence):
                if isinstance(part, float):
                    if index:
                        ahead.due.put_nowait(part)
                    else:
                        first_pauses.append(part)
                    continue
                with self.tracer.begin("sentence", characters=len(part)):
                    pieces = await self._phonemizer.pieces(part, request.language)
                for piece in pieces if index else self._cut_first(pieces, listener):
                    await ahead.free.acquire()
                    slack_s = listener.left_s(self._clock()) + ahead.expected_s
                    segment = _segment(piece, index, request, listener.session_id, slack_s)
                    ahead.put(
                        _Due(
                            piece,
                            asyncio.create_task(self._synthesize(segment)),
                            self._pace.expected_s(piece.spoken_tokens, request.speed),
                            resumes=cut_short,
                            pauses_s=() if index else tuple(first_pauses),
                            owed_since_s=known_s if index else begins_s,
                        )
                    )
                    index, cut_short = index + 1, False
            cut_short = is_cut_short(sentence)

    async def _synthesize(self, segment: Segment) -> AudioChunk:
        with self.tracer.begin("segment", index=segment.index, tokens=segment.spoken_tokens, slack_s=segment.slack_s):
            return await self._engine.synthesize(segment)

    def _cut_first(self, pieces: Sequence[Piece], listener: Listener) -> Sequence[Piece]:
        """The beginning of an utterance: in shorter parts if the listener waits for it in silence."""
        if self._first_cut_above is None or not pieces or listener.left_s(self._clock()):
            return pieces
        return [*cut_first(pieces[0], self._first_cut_above), *pieces[1:]]


@dataclass(frozen=True, slots=True, eq=False)
class _Due:
    """A piece in the engine's hands, the seconds it will last, about, and since when silence before it is a gap.

    `resumes` says that the text before it was cut where a sentence goes on. With the first one come the pauses that
    begin an utterance: no audio leaves before the engine has taken its first segment, so that a refusal still is one.
    """

    piece: Piece
    task: "asyncio.Task[AudioChunk]"
    expected_s: float
    resumes: bool
    pauses_s: tuple[float, ...]
    owed_since_s: float


class _Ahead:
    """What of one utterance is on its way: pieces in the engine, pauses between them, and None as the end.

    Attributes:
        in_engine: the pieces whose audio was not handed on, in order.
        free: how many more may be.
    """

    def __init__(self, lookahead_segments: int) -> None:
        self.free = asyncio.Semaphore(lookahead_segments)
        self.due: asyncio.Queue[_Due | float | None] = asyncio.Queue()
        self.in_engine: deque[_Due] = deque()

    def put(self, item: _Due) -> None:
        """Append a piece."""
        self.in_engine.append(item)
        self.due.put_nowait(item)

    @property
    def expected_s(self) -> float:
        """Audio that is in the engine, about."""
        return sum(item.expected_s for item in self.in_engine)


class _Track:
    """The audio of one utterance as it grows: seams, pauses, and where in it each word is heard."""

    def __init__(self) -> None:
        self._joiner = SeamJoiner()
        self._position_samples = 0
        self._pauses_left_s = MAX_PAUSES_S

    def speak(self, piece: Piece, chunk: AudioChunk, *, resumes: bool) -> Spoken:
        """The next segment."""
        joined = self._joiner.join(
            chunk.samples,
            continues=piece.continues,
            resumes=resumes,
            begun=piece.is_begun,
            unfinished=piece.is_unfinished,
        )
        start_s = self._position_samples / chunk.sample_rate
        origin_s = start_s - joined.trimmed_start_samples / chunk.sample_rate
        self._position_samples += len(joined.samples)
        words = _timed(piece, chunk, origin_s, (start_s, self._position_samples / chunk.sample_rate))
        return Spoken(joined.samples, chunk.sample_rate, words, chunk.inference_s)

    def pause(self, pause_s: float) -> Spoken:
        """A pause between what was spoken last and what comes next."""
        pause_s = min(pause_s, self._pauses_left_s)
        self._pauses_left_s -= pause_s
        silence = self._joiner.pause(round(pause_s * MODEL_RATE))
        self._position_samples += len(silence)
        return Spoken(silence, MODEL_RATE, segments=0)

    def finish(self) -> Spoken | None:
        """The silence at the end, if any is left."""
        tail = self._joiner.finish()
        return Spoken(tail, MODEL_RATE, segments=0) if len(tail) else None


def _segment(piece: Piece, index: int, request: SpeechRequest, session_id: str, slack_s: float) -> Segment:
    return Segment(
        session_id=session_id,
        request_id=request.request_id,
        index=index,
        phoneme_ids=piece.phoneme_ids,
        part=piece.part,
        voice=request.voice,
        speed=request.speed,
        slack_s=slack_s,
    )


def _timed(piece: Piece, chunk: AudioChunk, origin_s: float, heard_s: tuple[float, float]) -> tuple[TimedWord, ...]:
    """Word times from the model's own duration frames; token 0 is the leading pad.

    A seam may have taken silence that the model counts to a word: what is left of it lies within `heard_s`.
    """
    frame_s = chunk.hop_samples / chunk.sample_rate
    borders = [
        min(max(origin_s + frames * frame_s, heard_s[0]), heard_s[1])
        for frames in accumulate(chunk.duration_frames.tolist(), initial=0)
    ]
    return tuple(TimedWord(word.text, borders[word.start + 1], borders[word.end + 1]) for word in piece.words)
