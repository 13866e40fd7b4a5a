import threading
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch

from serve_app.config import EngineSettings
from serve_app.engine.checkpoint import model_config
from serve_app.engine.engine import WARMUP_PHONEME_IDS
from serve_app.engine.model import Synthesizer, available_cores, hop_samples
from serve_app.engine.network.passes import Item, Spoken
from serve_app.engine.types import Segment
from serve_app.engine.voices import VoiceStore
from serve_app.errors import Internal, UnknownVoice

HELLO_THERE = Segment("s", "r", 0, WARMUP_PHONEME_IDS, "af_heart")


class Scripted:
    """Stands in for Passes: gives out what the test wants and notes what it was given."""

    padding_frames = 0

    def __init__(self, samples: np.ndarray, durations: np.ndarray) -> None:
        self.answer = Spoken(samples, durations)
        self.asked: list[Item] = []

    def run(self, items: Sequence[Item]) -> list[Spoken]:
        self.asked += items
        return [self.answer for _ in items]


def scripted(samples: np.ndarray, tokens: int = 5, threads: int | None = None) -> tuple[Scripted, Synthesizer]:
    passes = Scripted(samples, np.ones(tokens, dtype=np.int64))
    rows = torch.arange(510.0)[:, None, None].expand(510, 1, 256)
    settings = EngineSettings(device="cpu", threads=threads)
    return passes, Synthesizer(passes, VoiceStore({"v": rows, "w": rows}), settings, "scripted")


def test_the_pass_gets_padded_ids_and_the_style_row_of_the_phoneme_count() -> None:
    passes, synthesizer = scripted(np.ones(3000, dtype=np.float32))
    (chunk,) = synthesizer.synthesize([Segment("s", "r", 0, (7, 8, 9), "v", speed=1.5)])
    (item,) = passes.asked
    assert (item.tokens, item.style.shape, float(item.style[0]), item.speed) == ((0, 7, 8, 9, 0), (256,), 2.0, 1.5)
    assert (chunk.sample_rate, chunk.hop_samples, chunk.duration_frames.tolist()) == (24_000, 600, [1] * 5)


@pytest.mark.parametrize(("part", "tokens"), [((0, 1), (0, 2)), ((1, 2), (2, 3)), ((1, 3), (2, 5)), ((0, 3), (0, 5))])
def test_a_pad_belongs_to_the_part_beside_it(part: tuple[int, int], tokens: tuple[int, int]) -> None:
    passes, synthesizer = scripted(np.ones(3000, dtype=np.float32))
    synthesizer.synthesize([Segment("s", "r", 0, (7, 8, 9), "v", part=part)])
    (item,) = passes.asked
    assert (item.tokens, float(item.style[0]), item.part) == ((0, 7, 8, 9, 0), 2.0, tokens)


def test_noise_follows_from_what_is_said_and_how_and_from_nothing_else() -> None:
    passes, synthesizer = scripted(np.ones(3000, dtype=np.float32))
    said = Segment("s", "r", 0, (7, 8, 9), "v")
    same = (said, Segment("t", "q", 5, (7, 8, 9), "v"), replace(said, voice="w(2)+v(2)"))
    others = (
        replace(said, part=(0, 2)),
        replace(said, part=(1, 3)),
        replace(said, phoneme_ids=(7, 8, 10)),
        replace(said, phoneme_ids=(7, 8)),
        replace(said, speed=1.25),
    )
    synthesizer.synthesize([*same, *others])
    seeds = [item.seed for item in passes.asked]
    assert len(set(seeds[:3])) == 1
    assert len(set(seeds)) == 1 + len(others)
    assert seeds[0] == 2281067204520769399  # of all machines and versions: recorded audio stays reproducible


@pytest.mark.parametrize(
    ("audio", "reason"),
    [
        (np.zeros(3000), "no audio"),
        (np.full(3000, np.nan), "no audio"),
        (np.append(np.ones(2999), np.inf), "no audio"),
        (np.zeros(0), "wrong length"),
        (np.ones(2400), "wrong length"),
    ],
)
def test_silence_and_damaged_audio_are_errors(audio: np.ndarray, reason: str) -> None:
    _, synthesizer = scripted(audio)
    with pytest.raises(Internal, match=reason):
        synthesizer.synthesize([Segment("s", "r", 0, (7, 8, 9), "v")])


def test_a_voice_or_symbol_that_the_model_lacks_is_refused_before_the_pass() -> None:
    _, synthesizer = scripted(np.ones(3000))
    synthesizer.check(Segment("s", "r", 0, (177,), "v"))
    with pytest.raises(UnknownVoice):
        synthesizer.check(Segment("s", "r", 0, (1,), "u"))
    with pytest.raises(Internal):
        synthesizer.check(Segment("s", "r", 0, (178,), "v"))


def test_the_hop_follows_from_the_model_s_configuration() -> None:
    assert hop_samples(model_config()["istftnet"]) == 600
    assert hop_samples({"upsample_rates": [4, 2], "gen_istft_hop_size": 5}) == 80


def test_hello_there_has_the_published_length(synthesizer: Synthesizer) -> None:
    (chunk,) = synthesizer.synthesize([HELLO_THERE])
    assert 2 * len(chunk.samples) == {"packaged int8": 74_400}.get(synthesizer.info.weights, 73_200)


def test_segments_of_one_batch_come_out_as_if_alone(synthesizer: Synthesizer) -> None:
    other = Segment("t", "r", 3, WARMUP_PHONEME_IDS[:5], "am_adam", speed=2.0)
    both = synthesizer.synthesize([HELLO_THERE, other])
    alone = [*synthesizer.synthesize([other]), *synthesizer.synthesize([HELLO_THERE])][::-1]
    for batched, single in zip(both, alone, strict=True):
        assert np.array_equal(batched.duration_frames, single.duration_frames)
        assert np.array_equal(batched.samples, single.samples)


def test_a_blend_is_a_voice_of_its_own(synthesizer: Synthesizer) -> None:
    def spoken(voice: str) -> np.ndarray:
        (chunk,) = synthesizer.synthesize([replace(HELLO_THERE, voice=voice, speed=4.0)])
        return chunk.samples

    heart, adam = spoken("af_heart"), spoken("am_adam")
    blend = spoken("af_heart(2)+am_adam(1)")
    assert np.isfinite(blend).all()
    assert np.abs(blend).max() > 0.01
    for other in (heart, adam, spoken("af_heart+am_adam(2)")):
        assert len(blend) != len(other) or np.abs(blend - other).max() > 0.01
    assert np.array_equal(blend, spoken("am_adam(0.5) + af_heart"))
    assert np.array_equal(spoken("af_heart(1)"), heart)


def test_one_phoneme_can_be_spoken(synthesizer: Synthesizer) -> None:
    (chunk,) = synthesizer.synthesize([Segment("s", "r", 0, WARMUP_PHONEME_IDS[1:2], "af_heart")])
    assert chunk.duration_frames.shape == (3,)


def test_the_thread_that_speaks_computes_on_as_many_cores_as_set() -> None:
    """torch.get_num_threads() is no witness: it tells the process's wish, OpenMP what the calling thread will do."""
    threads = available_cores() + 1
    synthesizer = scripted(np.ones(0), threads=threads)[1]
    seen: list[str] = []

    def speak() -> None:
        synthesizer.synthesize([])
        seen.extend(torch.__config__.parallel_info().splitlines())

    thread = threading.Thread(target=speak)
    thread.start()
    thread.join()
    assert f"omp_get_max_threads() : {threads}" in [line.strip() for line in seen]
