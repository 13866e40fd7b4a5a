"""Seconds of audio per second: this engine in batches against the official KModel in a loop; parity first.

    uv run python scripts/bench_gpu.py [--batches 1,4,16,64,128] [--repeats 5] [--device cuda]

Both get the same phonemes on the same device in the same run, taking turns; figures are medians over the turns, so that
whatever else the machine does falls on both. The official model takes one item after the other: it has no batches. The
card's limits are measured here too, as a matrix product and a copy in memory can reach them, and the work of a second
of audio is held against them. `--device cpu` runs everything, to see that it does; its figures say nothing.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from scripts.bench_cpu import CLIPS, VOICE
from scripts.official import given_noise, log_spectral_distance_db, official_model
from serve_app.config import WeightsSettings
from serve_app.engine.checkpoint import model_config
from serve_app.engine.network.noise import gaussian
from serve_app.engine.network.passes import Item, Passes
from serve_app.engine.network.source import HARMONICS, SAMPLE_RATE
from serve_app.engine.weights import Weights, build_network, load_weights

FLOP_PER_AUDIO_S = 55e9
"""27.6 billion multiply-adds, counted from the shapes that run."""
MAX_DISTANCE_DB = 0.3


class Official:
    """The package's model, one item after the other."""

    def __init__(self, weights: Weights, device: torch.device) -> None:
        model = official_model(weights.state_dict).to(device)
        model.bert.embeddings.position_ids = model.bert.embeddings.position_ids.to(device)
        model.bert.embeddings.token_type_ids = model.bert.embeddings.token_type_ids.to(device)
        self._model, self._device = model, device

    def speak(self, item: Item) -> tuple[Tensor, Tensor]:
        """Audio and durations, on the host."""
        tokens = torch.tensor([item.tokens], device=self._device)
        with torch.inference_mode():
            audio, durations = self._model.forward_with_tokens(tokens, item.style[None].to(self._device), item.speed)
        return audio.cpu(), durations.cpu()

    def loop(self, items: Sequence[Item]) -> None:
        for item in items:
            self.speak(item)


def items_of(weights: Weights, count: int, clips: Sequence[str]) -> list[Item]:
    """So many items, the clips in turn."""
    vocab = model_config()["vocab"]
    items = []
    for seed in range(count):
        phonemes = clips[seed % len(clips)]
        style = weights.voices.style(VOICE, len(phonemes))[0]
        items.append(Item((0, *(vocab[symbol] for symbol in phonemes), 0), style, 1.0, seed))
    return items


def check_parity(passes: Passes, official: Official, items: Sequence[Item], device: torch.device) -> float:
    """Raise SystemExit if an item is another than the official one; the largest log-spectral distance in dB."""
    far_db = 0.0
    # Three rounds are three ways on a GPU: as it comes, recorded, replayed.
    for found in [passes.run(items) for _ in range(3 if device.type == "cuda" else 1)]:
        for item, ours in zip(items, found, strict=True):
            noise = gaussian(torch.tensor([item.seed], device=device), HARMONICS, len(ours.samples))
            with given_noise(noise):
                audio, durations = official.speak(item)
            if durations.tolist() != ours.durations.tolist():
                raise SystemExit(f"item {item.seed}: durations differ from the official model's")
            far_db = max(far_db, log_spectral_distance_db(audio, torch.from_numpy(ours.samples)))
    if not far_db < MAX_DISTANCE_DB:
        raise SystemExit(f"log-spectral distance {far_db:.2f} dB, and {MAX_DISTANCE_DB} are allowed")
    return far_db


def seconds_of(work: Callable[[], object], device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize()
    started_s = time.perf_counter()
    work()
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - started_s


def in_turn(
    ours: Callable[[], object], theirs: Callable[[], object], repeats: int, device: torch.device
) -> list[float]:
    """Median seconds of both, and the median of their ratios (theirs / ours)."""
    pairs = []
    for turn in range(repeats):
        order = (ours, theirs) if turn % 2 else (theirs, ours)
        took_s = {work: seconds_of(work, device) for work in order}
        pairs.append((took_s[ours], took_s[theirs]))
    return [
        statistics.median(pair[0] for pair in pairs),
        statistics.median(pair[1] for pair in pairs),
        statistics.median(pair[1] / pair[0] for pair in pairs),
    ]


def limits(device: torch.device) -> tuple[float, float]:
    """FLOP/s of a matrix product in the convolutions' precision, and bytes/s of a copy (read and written)."""
    size, dtype = (8192, torch.float16) if device.type == "cuda" else (1024, torch.float32)
    a, b = (torch.randn(size, size, device=device, dtype=dtype) for _ in range(2))
    from_, to = (torch.empty(size, size, 4, device=device) for _ in range(2))
    product_s = min(seconds_of(lambda: a @ b, device) for _ in range(10))
    copy_s = min(seconds_of(lambda: to.copy_(from_), device) for _ in range(10))
    return 2 * size**3 / product_s, 2 * from_.nbytes / copy_s


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--batches", default="1,4,16,64,128", help="sizes, comma-separated")
    parser.add_argument("--clips", default="0,1,2,3", help="which of the clips of bench_cpu.py, 1.5 to 12 s")
    parser.add_argument("--repeats", type=int, default=5, help="turns for each line, after three to warm up")
    parser.add_argument("--official", type=int, default=8, help="items that the official loop is timed on, at most")
    options = parser.parse_args(arguments)
    device = torch.device(options.device)
    if device.type == "cuda" and not torch.cuda.is_available():
        print("there is no CUDA device here; --device cpu shows that the script runs", file=sys.stderr)
        return 1

    weights = load_weights(WeightsSettings())
    passes, official = Passes.on(device, build_network(weights)), Official(weights, device)
    clips = [CLIPS[int(index)] for index in options.clips.split(",")]
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"
    flop_per_s, bytes_per_s = limits(device)
    print(f"{name}, torch {torch.__version__}, weights: {weights.source}")
    print(
        f"measured limits: {flop_per_s / 1e12:.1f} TFLOP/s in a matrix product, {bytes_per_s / 1e9:.0f} GB/s in a copy"
    )
    far_db = check_parity(passes, official, items_of(weights, len(clips), clips), device)
    print(f"parity: durations identical, log-spectral distance at most {far_db:.2f} dB")

    print(f"{'batch':>6} {'audio s':>8} {'ours ms':>8} {'audio s/s':>10} {'official':>9} {'ratio':>6} {'of limit':>9}")
    for batch in (int(size) for size in options.batches.split(",")):
        items = items_of(weights, batch, clips)
        for _ in range(2):
            passes.run(items)
        lengths_s = [len(spoken.samples) / SAMPLE_RATE for spoken in passes.run(items)]
        sample = items[: options.official]
        audio_s, sample_s = sum(lengths_s), sum(lengths_s[: options.official])
        official.loop(sample)
        ours_s, theirs_s, ratio = in_turn(
            lambda items=items: passes.run(items), lambda sample=sample: official.loop(sample), options.repeats, device
        )
        speed, official_speed = audio_s / ours_s, sample_s / theirs_s
        print(
            f"{batch:6} {audio_s:8.1f} {1000 * ours_s:8.1f} {speed:10.1f} {official_speed:9.1f} "
            f"{ratio * audio_s / sample_s:6.1f} {speed * FLOP_PER_AUDIO_S / flop_per_s:9.1%}",
            flush=True,
        )
    alone = items_of(weights, 1, CLIPS[:1])
    ours_s, theirs_s, ratio = in_turn(lambda: passes.run(alone), lambda: official.loop(alone), options.repeats, device)
    print(f"one short sentence alone: {1000 * ours_s:.1f} ms, official {1000 * theirs_s:.1f} ms, ratio {ratio:.1f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
