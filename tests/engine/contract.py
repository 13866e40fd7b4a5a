"""What every Engine promises, whatever is behind it. Each promise takes an idle engine with a queue of MAX_QUEUE."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

import numpy as np
import pytest

from serve_app.engine.types import AudioChunk, Engine, Segment
from serve_app.errors import BadRequest, Internal, QueueSaturated, UnknownVoice

MAX_QUEUE = 5
VOICE = "af_heart"
PHONEME_IDS = (50, 83, 54, 156, 31, 4)

Promise = Callable[[Engine], Awaitable[None]]


def segment(name: str, phoneme_ids: tuple[int, ...] = PHONEME_IDS, voice: str = VOICE, speed: float = 4.0) -> Segment:
    """`a0` is the first segment of session a, whose listener hears nothing yet; each later one has ten seconds more.

    Fast speech, so that the real model has little to compute.
    """
    index = int(name[1:])
    return Segment(name[0], f"request-{name[0]}", index, phoneme_ids, voice, speed, slack_s=10.0 * index)


def keep(promise: Promise, engine: Engine) -> None:
    """Run one promise; the time only bounds a hang."""

    async def bounded() -> None:
        async with asyncio.timeout(60):
            await promise(engine)

    asyncio.run(bounded())


async def ask(engine: Engine, *segments: Segment) -> tuple[list[asyncio.Task[AudioChunk]], list[str]]:
    """Submit in this order; the list fills with the names of the segments as they end."""
    ended: list[str] = []

    async def speak(wanted: Segment) -> AudioChunk:
        chunk = await engine.synthesize(wanted)
        ended.append(f"{wanted.session_id}{wanted.index}")
        return chunk

    tasks = [asyncio.create_task(speak(wanted)) for wanted in segments]
    await asyncio.sleep(0)  # each is in the queue before anything else happens
    return tasks, ended


async def lengths_rate_and_durations_agree(engine: Engine) -> None:
    info = await engine.info()
    chunk = await engine.synthesize(segment("a0", speed=1.0))
    assert chunk.samples.dtype == np.float32
    assert chunk.samples.ndim == 1
    assert chunk.samples.flags["C_CONTIGUOUS"]
    assert chunk.duration_frames.dtype == np.int64
    assert chunk.duration_frames.shape == (len(PHONEME_IDS) + 2,)
    assert chunk.duration_frames.min() >= 1
    assert chunk.duration_frames.sum() * chunk.hop_samples == len(chunk.samples)
    assert chunk.sample_rate == info.sample_rate
    assert VOICE in info.voices
    assert np.isfinite(chunk.samples).all()
    assert np.abs(chunk.samples).max() > 0.01
    assert chunk.inference_s >= 0


async def the_same_segment_sounds_the_same(engine: Engine) -> None:
    first = await engine.synthesize(segment("a0"))
    other = await engine.synthesize(segment("a1", phoneme_ids=(81, 156, 86, 123, 4)))
    again = await engine.synthesize(segment("b7"))
    assert np.array_equal(first.samples, again.samples)
    assert len(other.samples) != len(first.samples) or not np.array_equal(first.samples, other.samples)


async def a_part_is_spoken_within_its_sentence(engine: Engine) -> None:
    whole = await engine.synthesize(segment("a0"))
    parts = [
        await engine.synthesize(replace(segment("a1"), part=part)) for part in ((0, 2), (2, 5), (5, len(PHONEME_IDS)))
    ]
    assert sum(chunk.duration_frames for chunk in parts).tolist() == whole.duration_frames.tolist()
    assert [np.flatnonzero(chunk.duration_frames).tolist() for chunk in parts] == [[0, 1, 2], [3, 4, 5], [6, 7]]
    for chunk in parts:
        assert len(chunk.samples) == chunk.duration_frames.sum() * chunk.hop_samples


async def slower_speech_is_longer(engine: Engine) -> None:
    slow = await engine.synthesize(segment("a0", speed=0.5))
    assert len(slow.samples) > 1.3 * len((await engine.synthesize(segment("a1"))).samples)


async def what_cannot_be_spoken_is_refused_and_harms_nobody(engine: Engine) -> None:
    for wrong in (
        segment("a0", phoneme_ids=()),
        segment("a0", phoneme_ids=(50,) * 511),
        segment("a0", phoneme_ids=(50, 0, 54)),
        segment("a0", speed=0.2),
        segment("a0", speed=float("nan")),
        replace(segment("a0"), slack_s=-0.1),
        replace(segment("a0"), part=(2, 2)),
        replace(segment("a0"), part=(0, 7)),
        replace(segment("a0"), slack_s=float("nan")),
    ):
        with pytest.raises(Internal):
            await engine.synthesize(wrong)
    with pytest.raises(UnknownVoice):
        await engine.synthesize(segment("a0", voice="xx_nobody"))
    assert (await engine.synthesize(segment("a0"))).samples.size


async def a_blend_of_known_voices_is_a_voice(engine: Engine) -> None:
    voices = (await engine.info()).voices
    for blend in (f"{voices[0]}(2)+{voices[-1]}(1)", f"{VOICE} + {voices[0]}", f"{VOICE}(0.5)"):
        assert (await engine.synthesize(segment("a0", voice=blend))).samples.size
    with pytest.raises(UnknownVoice, match="xx_nobody"):
        await engine.synthesize(segment("a0", voice=f"{VOICE}+xx_nobody(2)"))
    with pytest.raises(BadRequest):
        await engine.synthesize(segment("a0", voice=f"{VOICE}(0)+{voices[0]}"))


async def segments_of_a_session_end_in_order(engine: Engine) -> None:
    tasks, ended = await ask(engine, *map(segment, ("a0", "a1", "a2", "a3")))
    await asyncio.gather(*tasks)
    assert ended == ["a0", "a1", "a2", "a3"]


async def a_new_listener_waits_for_one_segment_of_another_not_for_its_text(engine: Engine) -> None:
    tasks, ended = await ask(engine, *map(segment, ("a0", "a1", "a2", "b0")))
    await asyncio.gather(*tasks)
    assert ended.index("b0") <= 1


async def the_listener_who_runs_dry_first_is_served_first(engine: Engine) -> None:
    tasks, ended = await ask(engine, *map(segment, ("a3", "a4", "b2", "b5", "c1")))
    await asyncio.gather(*tasks)
    ended.remove("a3")  # may have begun before the others came
    assert ended == ["c1", "b2", "a4", "b5"]


async def a_cancelled_segment_leaves_no_trace(engine: Engine) -> None:
    tasks, ended = await ask(engine, *map(segment, ("a0", "a1", "b0", "c0")))
    tasks[0].cancel()  # running, or about to
    tasks[2].cancel()  # waiting
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    assert [isinstance(outcome, asyncio.CancelledError) for outcome in outcomes] == [True, False, True, False]
    assert sorted(ended) == ["a1", "c0"]


async def past_the_bound_new_utterances_are_refused_and_those_let_in_end(engine: Engine) -> None:
    sessions = [segment(f"{name}0") for name in "abcdefghij"]
    tasks, _ = await ask(engine, *sessions, replace(sessions[0], index=1))
    *firsts, later = await asyncio.gather(*tasks, return_exceptions=True)
    refused = [outcome for outcome in firsts if isinstance(outcome, QueueSaturated)]
    spoken = [outcome for outcome in firsts if isinstance(outcome, AudioChunk)]
    assert len(spoken) in (MAX_QUEUE, MAX_QUEUE + 1)  # the running one may have left the queue in time
    assert len(refused) == len(firsts) - len(spoken)
    assert isinstance(later, AudioChunk)
    assert isinstance(await engine.synthesize(segment("z0")), AudioChunk)


async def a_waiting_segment_frees_its_place_when_its_listener_leaves(engine: Engine) -> None:
    tasks, _ = await ask(engine, *(segment(f"{name}0") for name in "abcdefghij"))
    tasks[MAX_QUEUE - 1].cancel()
    (taken,), _ = await ask(engine, segment("y0"))
    assert isinstance(await taken, AudioChunk)
    await asyncio.gather(*tasks, return_exceptions=True)


PROMISES: tuple[Promise, ...] = (
    lengths_rate_and_durations_agree,
    the_same_segment_sounds_the_same,
    a_part_is_spoken_within_its_sentence,
    slower_speech_is_longer,
    what_cannot_be_spoken_is_refused_and_harms_nobody,
    a_blend_of_known_voices_is_a_voice,
    segments_of_a_session_end_in_order,
    a_new_listener_waits_for_one_segment_of_another_not_for_its_text,
    the_listener_who_runs_dry_first_is_served_first,
    a_cancelled_segment_leaves_no_trace,
    past_the_bound_new_utterances_are_refused_and_those_let_in_end,
    a_waiting_segment_frees_its_place_when_its_listener_leaves,
)
