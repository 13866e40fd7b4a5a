"""Real-time factor of this engine against the official kokoro package: same weights, same process, taking turns.

    uv run python scripts/bench_cpu.py [--repeats 5] [--threads 2]

Both get the same phonemes; the text front end is in neither time. RTF is wall seconds per second of audio. Ratios are
medians over the pairs (ours / official), so that load from elsewhere falls on both sides; below 1 is faster. On a busy
machine the ratio of CPU seconds with --threads 1 is the one to trust: threads that wait for a core burn time.
"""

import argparse
import os
import platform
import statistics
import subprocess
import time
from collections.abc import Callable

import torch
from kokoro import KPipeline

from scripts.official import official_model
from serve_app.config import EngineSettings, WeightsSettings
from serve_app.engine.checkpoint import model_config
from serve_app.engine.model import Synthesizer, available_cores
from serve_app.engine.network.passes import Passes
from serve_app.engine.types import Segment
from serve_app.engine.weights import build_network, load_weights

VOICE = "af_heart"
CLIPS = (
    "həlˈO ðˈɛɹ.",
    "ðə lˈæst bˈʌs lˈivz ɪn tˈɛn mˈɪnəts.",
    "ðə ʃˈɑp kwˈɔɹnəɹ ɪz klˈOzd tədˈA, bˌʌt ju kæn stˈɪl ˈɔɹdəɹ ˌɔnlˈIn ænd pˈɪk ɪt ˌʌp təmˈɑɹO mˈɔɹnɪŋ.",
    "wi wˈɔkt fɹʌm ðə stˈAʃən tə ðə hˈɑɹbəɹ, sˈæt dˌWn bˈI ðə wˈɔTəɹ, ænd wˈɑʧt ðə bˈOts kˌʌm ˈɪn wˌʌn ˈæftəɹ "
    "ði ˈʌðəɹ, ʌntˈɪl ðə lˈæmps wɜɹ lˈɪt ænd ðə wˈɪnd hæd tˈɜɹnd kˈOld; ðˈɛn wi wˈɛnt hˈOm ænd mˈAd sˈup.",
)
"""Phonemes of four sentences, about 1.5 to 12 s of audio."""


def timed(run: Callable[[], int]) -> tuple[float, float]:
    """Wall and CPU seconds of one run."""
    wall_s, cpu_s = time.perf_counter(), time.process_time()
    run()
    return time.perf_counter() - wall_s, time.process_time() - cpu_s


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5, help="pairs for each clip, after one warm-up pair")
    parser.add_argument("--threads", type=int, default=available_cores(), help="CPU threads of both")
    options = parser.parse_args()

    torch.set_num_threads(options.threads)
    weights = load_weights(WeightsSettings())
    settings = EngineSettings(device="cpu", threads=options.threads)
    passes = Passes.on(torch.device("cpu"), build_network(weights))
    ours = Synthesizer(passes, weights.voices, settings, weights.source)
    official = official_model(weights.state_dict)
    pack = weights.voices.pack(VOICE)
    vocab = model_config()["vocab"]

    print(setup(options.threads, weights.source))
    print(f"{'audio s':>8} {'phonemes':>9} {'official RTF':>13} {'our RTF':>8} {'ratio':>6} {'CPU ratio':>10}")
    wall_ratios: list[float] = []
    cpu_ratios: list[float] = []
    for phonemes in CLIPS:
        segment = Segment("bench", "bench", 0, tuple(vocab[symbol] for symbol in phonemes), VOICE)

        def run_ours(segment: Segment = segment) -> int:
            return len(ours.synthesize([segment])[0].samples)

        def run_official(phonemes: str = phonemes) -> int:
            return len(KPipeline.infer(official, phonemes, pack).audio)

        if run_ours() != (samples := run_official()):
            raise SystemExit("the two disagree on the length of the audio: not the same model")
        audio_s = samples / ours.info.sample_rate
        walls, cpus = [], []
        for repeat in range(options.repeats):
            order = (run_ours, run_official) if repeat % 2 else (run_official, run_ours)
            times = {run: timed(run) for run in order}
            walls.append((times[run_ours][0], times[run_official][0]))
            cpus.append((times[run_ours][1], times[run_official][1]))
        wall_ratios += (ratio := [a / b for a, b in walls])
        cpu_ratios += (cpu_ratio := [a / b for a, b in cpus])
        ours_s, official_s = (statistics.median(side) for side in zip(*walls, strict=True))
        print(
            f"{audio_s:8.2f} {len(segment.phoneme_ids):9} {official_s / audio_s:13.3f} {ours_s / audio_s:8.3f} "
            f"{statistics.median(ratio):6.2f} {statistics.median(cpu_ratio):10.2f}",
            flush=True,
        )
    print(
        f"all pairs: ratio {statistics.median(wall_ratios):.3f}, CPU ratio {statistics.median(cpu_ratios):.3f}; "
        "1 or less is not slower"
    )


def setup(threads: int, source: str) -> str:
    """What the figures depend on."""
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    return (
        f"commit {commit.stdout.strip() or 'unknown'}, torch {torch.__version__}, {platform.machine()}, "
        f"{available_cores()} cores, load {os.getloadavg()[0]:.1f}, {threads} threads, weights: {source}"
    )


if __name__ == "__main__":
    main()
