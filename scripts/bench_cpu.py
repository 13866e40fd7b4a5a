"""Real-time factor of this engine's ways to speak on a CPU against the official kokoro package: same weights, in turns.

    uv run python scripts/bench_cpu.py [--repeats 5] [--threads 2]

All get the same phonemes; the text front end is in no time. RTF is wall seconds per second of audio, median. Ratios are
medians over the rounds (this / official), so that load from elsewhere falls on all; below 1 is faster. The official
model runs twice: beside ours in a process with our settings of malloc (serve_app/ray_environment.py), and in one with
malloc as it comes, which is how a user meets it. On a busy machine the ratio of CPU seconds with --threads 1 is the one
to trust: threads that wait for a core burn time.
"""

import argparse
import multiprocessing
import os
import platform
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:  # a process reads its settings of malloc before it imports anything large
    from serve_app.audio.pcm import Samples

MALLOC = "MALLOC_"
OFFICIAL = "official"
DEFAULT_MALLOC = "official, malloc as it comes"
VOICE = "af_heart"
CLIPS = (
    "həlˈO ðˈɛɹ.",
    "ðə lˈæst bˈʌs lˈivz ɪn tˈɛn mˈɪnəts.",
    "ðə ʃˈɑp kwˈɔɹnəɹ ɪz klˈOzd tədˈA, bˌʌt ju kæn stˈɪl ˈɔɹdəɹ ˌɔnlˈIn ænd pˈɪk ɪt ˌʌp təmˈɑɹO mˈɔɹnɪŋ.",
    "wi wˈɔkt fɹʌm ðə stˈAʃən tə ðə hˈɑɹbəɹ, sˈæt dˌWn bˈI ðə wˈɔTəɹ, ænd wˈɑʧt ðə bˈOts kˌʌm ˈɪn wˌʌn ˈæftəɹ "
    "ði ˈʌðəɹ, ʌntˈɪl ðə lˈæmps wɜɹ lˈɪt ænd ðə wˈɪnd hæd tˈɜɹnd kˈOld; ðˈɛn wi wˈɛnt hˈOm ænd mˈAd sˈup.",
)
"""Phonemes of four sentences, about 1.5 to 13 s of audio."""
GFLOP_OF_A_SECOND = 55
"""What the network's layers come to for a second of audio, counted as plain products."""


type Way = Callable[[str, str], "Samples"]
"""Phonemes and voice to audio."""


class Run(NamedTuple):
    samples: int
    wall_s: float
    cpu_s: float


def open_ways(threads: int, ours: bool) -> tuple[dict[str, Way], dict[str, float], str]:
    """The ways to speak that this processor has, all with the same weights.

    Returns:
        The ways; the GFLOP/s of one core that a native one could reach; where the weights are from.
    """
    import torch
    from kokoro import KPipeline

    from scripts.official import official_model
    from serve_app.config import EngineSettings, WeightsSettings
    from serve_app.engine.checkpoint import model_config
    from serve_app.engine.cpu.build import supported_targets
    from serve_app.engine.cpu.library import load_kernels
    from serve_app.engine.cpu.vocoder import NativeVocoder
    from serve_app.engine.model import Synthesizer
    from serve_app.engine.network.passes import Passes
    from serve_app.engine.types import Segment
    from serve_app.engine.weights import build_network, load_weights

    torch.set_num_threads(threads)
    weights = load_weights(WeightsSettings())
    official = official_model(weights.state_dict)
    vocab = model_config()["vocab"]
    ways: dict[str, Way] = {
        OFFICIAL: lambda phonemes, voice: KPipeline.infer(official, phonemes, weights.voices.pack(voice)).audio.numpy()
    }
    limits = {}
    if ours:
        device, settings = torch.device("cpu"), EngineSettings(device="cpu", threads=threads)

        def add(name: str, passes: Passes) -> None:
            synthesizer = Synthesizer(passes, weights.voices, settings, weights.source)

            def speak(phonemes: str, voice: str) -> "Samples":
                ids = tuple(vocab[symbol] for symbol in phonemes)
                return synthesizer.synthesize([Segment("bench", "bench", 0, ids, voice)])[0].samples

            ways[name] = speak

        add("torch", Passes(build_network(weights), device))
        for target in supported_targets()[:1]:
            if kernels := load_kernels(target):
                for narrow in (False, True)[: 1 + target.narrow]:
                    network = build_network(weights)
                    name = f"native {'bf16' if narrow else 'fp32'}"
                    add(name, Passes(network, device, vocoder=NativeVocoder(network, kernels, narrow)))

                    def probed(narrow: bool = narrow) -> float:
                        started_s = time.thread_time()
                        return kernels.probe(20_000, narrow) / (time.thread_time() - started_s) / 1e9

                    limits[name] = max(probed() for _ in range(10))
    return ways, limits, weights.source


def speak_for(pipe: Connection, threads: int, ours: bool) -> None:
    """A process's main: answers (way, clip) with a Run; tells at first which ways it has, and the machine's limits."""
    import torch

    ways, limits, source = open_ways(threads, ours)
    pipe.send((list(ways), limits, source, torch.__version__))
    while request := pipe.recv():
        way, clip = request
        wall_s, cpu_s = time.perf_counter(), time.process_time()
        samples = len(ways[way](CLIPS[clip], VOICE))
        pipe.send(Run(samples, time.perf_counter() - wall_s, time.process_time() - cpu_s))


@contextmanager
def speaker(threads: int, ours: bool, malloc: Mapping[str, str]) -> Iterator[Connection]:
    """A process with these settings of malloc, which glibc reads at its start, and no others."""
    for name in [name for name in os.environ if name.startswith(MALLOC)]:
        del os.environ[name]
    os.environ.update(malloc)
    here, there = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=speak_for, args=(there, threads, ours), daemon=True)
    process.start()
    there.close()
    try:
        yield here
    finally:
        here.close()
        process.terminate()
        process.join()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5, help="rounds for each clip, after one to warm up")
    parser.add_argument("--threads", type=int, default=None, help="CPU threads of each way; by default all cores")
    parser.add_argument("--clips", type=int, nargs="*", default=range(len(CLIPS)), help="which sentences, from 0")
    options = parser.parse_args()
    from serve_app.engine.model import available_cores
    from serve_app.engine.network.source import SAMPLE_RATE
    from serve_app.ray_environment import DEFAULTS

    threads = options.threads or available_cores()
    tuned = {name: value for name, value in DEFAULTS.items() if name.startswith(MALLOC)}
    with speaker(threads, False, {}) as plain, speaker(threads, True, tuned) as ours:
        plain.recv()
        names, limits, source, torch_version = ours.recv()
        print(setup(threads, source, torch_version))
        for name, limit in limits.items():
            print(f"limit of {name}: {limit:.0f} GFLOP/s a core")
        ways = {DEFAULT_MALLOC: (plain, OFFICIAL)} | {name: (ours, name) for name in names}
        for clip in options.clips:
            rounds = [one_round(ways, clip, number) for number in range(options.repeats + 1)][1:]
            if len({run.samples for runs in rounds for run in runs.values()}) > 1:
                raise SystemExit("they disagree on the length of the audio: not the same model")
            audio_s = next(iter(rounds[0].values())).samples / SAMPLE_RATE
            report(audio_s, rounds, limits, threads)


def one_round(ways: Mapping[str, tuple[Connection, str]], clip: int, number: int) -> dict[str, Run]:
    """Each way once, the first one last the next time."""
    order = list(ways)[number % len(ways) :] + list(ways)[: number % len(ways)]
    runs = {}
    for name in order:
        pipe, way = ways[name]
        pipe.send((way, clip))
        runs[name] = pipe.recv()
    return runs


def report(audio_s: float, rounds: list[dict[str, Run]], limits: Mapping[str, float], threads: int) -> None:
    print(f"\n{audio_s:.2f} s of audio: RTF, then wall and CPU ratio to '{DEFAULT_MALLOC}', then to '{OFFICIAL}'")
    for name in sorted(rounds[0]):

        def ratio(field: str, other: str, name: str = name) -> float:
            return statistics.median(getattr(runs[name], field) / getattr(runs[other], field) for runs in rounds)

        wall_s = statistics.median(runs[name].wall_s for runs in rounds)
        line = (
            f"{name:32} {wall_s / audio_s:6.3f}   {ratio('wall_s', DEFAULT_MALLOC):6.2f} "
            f"{ratio('cpu_s', DEFAULT_MALLOC):6.2f}   {ratio('wall_s', OFFICIAL):6.2f} {ratio('cpu_s', OFFICIAL):6.2f}"
        )
        if name in limits:
            share = GFLOP_OF_A_SECOND * audio_s / wall_s / (limits[name] * threads)
            line += f"   {share:.0%} of the limit"
        print(line, flush=True)


def setup(threads: int, source: str, torch_version: str) -> str:
    """What the figures depend on."""
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    return (
        f"commit {commit.stdout.strip() or 'unknown'}, torch {torch_version}, {platform.machine()}, "
        f"load {os.getloadavg()[0]:.1f}, {threads} threads, weights: {source}"
    )


if __name__ == "__main__":
    main()
