"""The long form of tests/engine/test_network_parity.py: voices x lengths x batch sizes, each item against itself alone.

    uv run python scripts/check_parity.py [--precise] [--batches 1,2,5,8] [--device cuda]

Prints a line for each item and ends with status 1 if a bound is broken. With --precise everything is computed in
float64, where no rounding hides a leak (minutes, and on a CPU only). Without, the network runs as it would on the
device, buckets, graphs and narrow convolutions included, against the network alone in float32 on the CPU.
"""

import argparse
import itertools
import sys
from collections.abc import Sequence

import torch

from scripts.official import log_spectral_distance_db
from serve_app.config import WeightsSettings
from serve_app.engine.checkpoint import model_config
from serve_app.engine.network.grouping import Group, Grouping
from serve_app.engine.network.passes import Item, Passes, Spoken
from serve_app.engine.network.stages import Kokoro
from serve_app.engine.weights import Weights, build_network, load_weights

VOICES = ("af_heart", "am_adam", "bm_george", "jf_alpha", "ef_dora", "zf_xiaobei")
SPEEDS = (1.0, 0.7, 1.6, 1.0, 2.5)
TEXTS = (
    "həlˈO ðˈɛɹ.",
    "jˈɛs.",
    "ðə lˈæst bˈʌs lˈivz ɪn tˈɛn mˈɪnəts.",
    "ˌɪt hæz θɹˈi sˈɛntᵊnsᵻz.",
    "ðə ʃˈɑp kwˈɔɹnəɹ ɪz klˈOzd tədˈA, bˌʌt ju kæn stˈɪl ˈɔɹdəɹ ˌɔnlˈIn ænd pˈɪk ɪt ˌʌp təmˈɑɹO mˈɔɹnɪŋ.",
)
"""Phonemes, 0.7 to 6 s at speed 1."""

MAX_LEAK = 1e-8
MAX_DISTANCE_DB = 0.3


def items_of(weights: Weights, count: int) -> list[Item]:
    """So many items, no two of one text, voice and speed."""
    vocab = model_config()["vocab"]
    said = itertools.islice(zip(*map(itertools.cycle, (TEXTS, VOICES, SPEEDS)), strict=False), count)
    return [
        Item(
            (0, *(vocab[symbol] for symbol in phonemes), 0),
            weights.voices.style(voice, len(phonemes))[0],
            speed,
            seed,
        )
        for seed, (phonemes, voice, speed) in enumerate(said)
    ]


def together(padding: int) -> Grouping:
    """All in one pass, which is longer than the longest item and has one row too many."""

    def group(sizes: Sequence[int]) -> list[Group]:
        return [Group(tuple(range(len(sizes))), len(sizes) + 1, max(sizes) + padding, repeated=False)]

    return group


def difference(found: Spoken, alone: Spoken, precise: bool) -> float:
    """Infinite where the durations differ; else the largest difference, or the log-spectral distance in dB."""
    if found.durations.tolist() != alone.durations.tolist():
        return float("inf")
    if precise:
        return float(abs(found.samples - alone.samples).max())
    return log_spectral_distance_db(torch.from_numpy(alone.samples), torch.from_numpy(found.samples))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--precise", action="store_true", help="float64, on the CPU")
    parser.add_argument("--batches", default="1,2,5,8", help="sizes, comma-separated")
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args(arguments)
    batches = [int(size) for size in options.batches.split(",")]

    weights = load_weights(WeightsSettings())
    cpu, device = torch.device("cpu"), torch.device(options.device)
    items = items_of(weights, max(batches))
    network = build_network(weights)
    if options.precise:
        network = Kokoro.build(model_config(), {name: tensor.double() for name, tensor in weights.state_dict.items()})
    alone = Passes(network, cpu).run(items)
    if device.type == "cuda":
        passes = Passes.on(device, build_network(weights))
    else:
        passes = Passes(network, cpu, together(7), together(13))
    bound, unit = (MAX_LEAK, "") if options.precise else (MAX_DISTANCE_DB, " dB")
    broken = 0
    for size in batches:
        # On a GPU three times, which are three ways: as it is, recorded, and replayed.
        for turn in range(3 if device.type == "cuda" else 1):
            for index, found in enumerate(passes.run(items[:size])):
                far = difference(found, alone[index], options.precise)
                broken += not far < bound
                print(
                    f"batch {size:3} turn {turn} item {index:3}: {len(found.samples) / 24_000:5.2f} s, {far:.2g}{unit}"
                    f"{'' if far < bound else '  BROKEN'}",
                    flush=True,
                )
    print(f"{broken} of the items are further than {bound:g}{unit} from themselves alone")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
