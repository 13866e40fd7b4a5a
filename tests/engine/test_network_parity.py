"""Each item of a batch against itself alone, and alone against the official model: real weights, all items compared."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from scripts.official import given_noise, log_spectral_distance_db, official_model
from serve_app.config import WeightsSettings
from serve_app.engine.checkpoint import model_config
from serve_app.engine.network import albert
from serve_app.engine.network.graphs import Graphs
from serve_app.engine.network.grouping import Buckets, Group, Grouping
from serve_app.engine.network.lstm import PaddedLSTM
from serve_app.engine.network.masked import Span
from serve_app.engine.network.noise import gaussian
from serve_app.engine.network.passes import Item, Passes, Spoken
from serve_app.engine.network.source import HARMONICS
from serve_app.engine.network.spectrum import Spectrum
from serve_app.engine.network.stages import Cut, Kokoro, align
from serve_app.engine.weights import Weights, build_network, load_weights
from tests.engine.test_network_graphs import Recorder

CPU = torch.device("cpu")
MAX_LEAK = 1e-8
MAX_DISTANCE_DB = 0.3

SHORT = (("həlˈO", "af_heart", 2.0), ("ðˈɛɹ.", "bm_george", 3.0), ("θɹˈi sˈɛn", "jf_alpha", 4.0))
"""Phonemes, voice, speed: 0.2 to 0.5 s, so that float64 has little to compute."""

LONGER = (
    ("həlˈO ðˈɛɹ.", "af_heart", 1.0),
    ("ˌɪt hæz θɹˈi sˈɛntᵊnsᵻz.", "am_adam", 1.3),
    ("ðˈɛɹ.", "bf_emma", 0.8),
)


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """Small tensors on a machine that others use too: threads would mostly wait for each other."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def weights() -> Weights:
    return load_weights(WeightsSettings(source="packaged"))


@pytest.fixture(scope="module")
def network(weights: Weights) -> Kokoro:
    return build_network(weights)


@pytest.fixture(scope="module")
def precise_state(weights: Weights) -> dict[str, Tensor]:
    """In float64 before anything is folded or unfolded, which rounds."""
    return {name: tensor.double() for name, tensor in weights.state_dict.items()}


@pytest.fixture(scope="module")
def precise(precise_state: dict[str, Tensor]) -> Kokoro:
    return Kokoro.build(model_config(), precise_state)


def items_of(weights: Weights, said: Sequence[tuple[str, str, float]]) -> list[Item]:
    vocab = model_config()["vocab"]
    return [
        Item(
            (0, *(vocab[symbol] for symbol in phonemes), 0),
            weights.voices.style(voice, len(phonemes))[0],
            speed,
            seed=len(phonemes),
        )
        for phonemes, voice, speed in said
    ]


@pytest.fixture(scope="module")
def short(weights: Weights) -> list[Item]:
    return items_of(weights, SHORT)


@pytest.fixture(scope="module")
def short_alone(precise: Kokoro, short: list[Item]) -> list[Spoken]:
    return Passes(precise, CPU).run(short)


@pytest.fixture(scope="module")
def longer(weights: Weights) -> list[Item]:
    return items_of(weights, LONGER)


@pytest.fixture(scope="module")
def longer_alone(network: Kokoro, longer: list[Item]) -> list[Spoken]:
    return Passes(network, CPU).run(longer)


def together(padding: int, rows: int = 0) -> Grouping:
    """All items in one pass that is longer than the longest by `padding`, and has `rows` more rows than items."""

    def group(sizes: Sequence[int]) -> list[Group]:
        return [Group(tuple(range(len(sizes))), len(sizes) + rows, max(sizes) + padding, repeated=False)]

    return group


def leaks(found: Sequence[Spoken], expected: Sequence[Spoken]) -> list[float]:
    """Largest difference of each item; infinite where durations differ."""
    assert len(found) == len(expected)
    return [
        float(abs(a.samples - b.samples).max()) if a.durations.tolist() == b.durations.tolist() else torch.inf
        for a, b in zip(found, expected, strict=True)
    ]


def distances_db(found: Sequence[Spoken], expected: Sequence[Spoken]) -> list[float]:
    assert [item.durations.tolist() for item in found] == [item.durations.tolist() for item in expected]
    return [
        log_spectral_distance_db(torch.from_numpy(b.samples), torch.from_numpy(a.samples))
        for a, b in zip(found, expected, strict=True)
    ]


@pytest.mark.parametrize(
    ("batch", "padding", "rows"),
    [([0, 1, 2], 7, 2), ([2, 0], 0, 0), ([1], 13, 0)],
    ids=["three and padding of both kinds", "two as they come", "one padded"],
)
def test_nothing_leaks_from_neighbours_and_padding(precise, short, short_alone, batch, padding, rows):
    """In float64, where rounding hides nothing, end to end."""
    passes = Passes(precise, CPU, together(padding, rows), together(padding, rows))
    found = passes.run([short[item] for item in batch])
    assert max(leaks(found, [short_alone[item] for item in batch])) < MAX_LEAK
    frames = [int(spoken.durations.sum()) for spoken in found]
    assert passes.padding_frames == (len(batch) + rows) * (max(frames) + padding) - sum(frames)


def test_nothing_leaks_into_items_of_which_only_a_part_is_spoken(precise, short):
    items = [replace(short[0], part=(3, 7)), short[1], replace(short[2], part=(0, 5)), replace(short[2], part=(5, 10))]
    alone = Passes(precise, CPU).run(items)
    found = Passes(precise, CPU, together(7, 2), together(13, 2)).run(items)
    assert max(leaks(found, alone)) < MAX_LEAK
    for item, spoken in zip(items, alone, strict=True):
        first, last = item.part or (0, len(item.tokens))
        assert [frames > 0 for frames in spoken.durations] == [first <= at < last for at in range(len(item.tokens))]
        assert len(spoken.samples) == 600 * sum(spoken.durations)


def test_a_part_has_the_durations_pitch_and_energy_of_the_whole(network, longer):
    """And nothing else of it: decode and generate see the part alone."""
    heard = []

    def vocoder(encoded, f0, energy, style, frames, seeds):
        heard.append((encoded, f0, energy))
        return torch.zeros(len(frames), 600 * encoded.shape[2])

    whole, part = longer[1], replace(longer[1], part=(6, 15))
    durations = [spoken.durations for spoken in Passes(network, CPU, vocoder=vocoder).run([whole, part])]
    start, end = (int(durations[0][:token].sum()) for token in (6, 15))
    assert durations[1].tolist() == [0] * 6 + durations[0][6:15].tolist() + [0] * (len(whole.tokens) - 15)
    (encoded, f0, energy), found = heard
    assert torch.equal(found[0], encoded[:, :, start:end])
    assert torch.equal(found[1], f0[:, 2 * start : 2 * end])
    assert torch.equal(found[2], energy[:, 2 * start : 2 * end])


def open_gates(patch: pytest.MonkeyPatch) -> None:
    def forward(layer: PaddedLSTM, x: Tensor, span: Span) -> Tensor:
        return span.zero_rows(nn.LSTM.forward(layer, torch.cat([x, torch.zeros_like(x[..., :1])], -1))[0])

    patch.setattr(PaddedLSTM, "forward", forward)


def attend_to_padding(patch: pytest.MonkeyPatch) -> None:
    attend = albert.F.scaled_dot_product_attention
    patch.setattr(
        albert.F,
        "scaled_dot_product_attention",
        lambda query, key, value, attn_mask: attend(query, key, value, attn_mask=torch.zeros_like(attn_mask)),
    )


def count_padding(patch: pytest.MonkeyPatch) -> None:
    def normalized(span: Span, x: Tensor, eps: float) -> tuple[Tensor, Tensor]:
        variance, mean = torch.var_mean(x, -1, unbiased=False, keepdim=True)
        return x - mean, torch.rsqrt(variance + eps)

    patch.setattr(Span, "normalized", normalized)


def reflect_at_the_batchs_end(patch: pytest.MonkeyPatch) -> None:
    forward = Spectrum.forward
    patch.setattr(
        Spectrum,
        "forward",
        lambda self, signal, samples: forward(self, signal, torch.full_like(samples, signal.shape[1])),
    )


def leave_dirt(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Span, "zero", lambda span, x: x)


@pytest.mark.parametrize("wrong", [open_gates, attend_to_padding, count_padding, reflect_at_the_batchs_end, leave_dirt])
def test_a_wrong_mask_is_noticed(precise, short, short_alone, monkeypatch, wrong: Callable[..., None]):
    wrong(monkeypatch)
    passes = Passes(precise, CPU, together(0), together(4))
    found = passes.run(short[1:])
    assert any(not leak < 1000 * MAX_LEAK for leak in leaks(found, short_alone[1:]))  # NaN is no small number


def test_alone_it_is_the_official_model(precise_state, short, short_alone):
    """In float64, all of it: same durations, same samples."""
    official = official_model(precise_state).double()
    official.decoder.generator.stft.window = official.decoder.generator.stft.window.double()
    torch.set_default_dtype(torch.float64)  # the official source makes tensors of the default type
    try:
        item, expected = short[0], short_alone[0]
        with given_noise(gaussian(torch.tensor([item.seed]), HARMONICS, len(expected.samples))):
            audio, durations = official.forward_with_tokens(
                torch.tensor([item.tokens]), item.style[None].double(), item.speed
            )
    finally:
        torch.set_default_dtype(torch.float32)
    assert durations.tolist() == expected.durations.tolist()
    assert float(abs(audio - torch.from_numpy(expected.samples)).max()) < MAX_LEAK


def test_in_float32_it_sounds_like_the_official_model(weights, longer, longer_alone):
    official = official_model(weights.state_dict)
    for item, ours in zip(longer, longer_alone, strict=True):
        with given_noise(gaussian(torch.tensor([item.seed]), HARMONICS, len(ours.samples))):
            audio, durations = official.forward_with_tokens(torch.tensor([item.tokens]), item.style[None], item.speed)
        assert durations.tolist() == ours.durations.tolist()
        assert log_spectral_distance_db(audio, torch.from_numpy(ours.samples)) < MAX_DISTANCE_DB


def test_in_float32_a_batch_sounds_like_its_items_alone(network, longer, longer_alone):
    """Sums are rounded in another order, which the phase of the source amplifies: not the same samples."""
    found = Passes(network, CPU, together(5, 1), together(11, 1)).run(longer)
    assert max(distances_db(found, longer_alone)) < MAX_DISTANCE_DB


def test_in_float32_with_the_pitch_given_a_batch_is_its_items_alone(network, longer):
    """Nothing else amplifies: to a thousandth, sample by sample."""
    with torch.inference_mode():
        alone, lengths = [], []
        for item in longer:
            style = item.style[None]
            text = network.text(
                torch.tensor([item.tokens]), torch.tensor([len(item.tokens)]), style, torch.tensor([item.speed])
            )
            whole = Cut(torch.tensor([0]), torch.tensor([0]), text.frames)
            hidden = align(text.hidden, text.durations, whole, int(text.frames))
            encoded = align(text.encoded, text.durations, whole, int(text.frames)).transpose(1, 2).contiguous()
            f0, energy = network.prosody(hidden, style, text.frames)
            audio = network.vocode(encoded, f0, energy, style, text.frames, torch.tensor([item.seed]))
            alone.append((encoded, f0, energy, audio))
            lengths.append(int(text.frames))

        def padded(tensors: Sequence[Tensor], size: int) -> Tensor:
            return torch.cat([nn.functional.pad(tensor, (0, size - tensor.shape[-1])) for tensor in tensors])

        size = max(lengths) + 9
        encoded, f0, energy, _ = zip(*alone, strict=True)
        styles, seeds = torch.stack([item.style for item in longer]), torch.tensor([item.seed for item in longer])
        curves = padded(f0, 2 * size), padded(energy, 2 * size)
        audio = network.vocode(padded(encoded, size), *curves, styles, torch.tensor(lengths), seeds)
    for row, (_, _, _, expected) in enumerate(alone):
        assert float((audio[row, : expected.shape[1]] - expected[0]).abs().max()) < 1e-3


def test_what_was_recorded_ahead_is_replayed_for_the_first_listener(network, short):
    recorder = Recorder()
    passes = Passes(
        network, CPU, Buckets((8, 12), (1,), 60), Buckets((20, 32), (1,), 60), Graphs(recorder, lambda: True)
    )
    passes.record_ahead(10**9)
    assert sorted(recorder.recorded) == sorted(
        [[1, 12], [1, 8], [1, 32, 640], [1, 20, 640], [1, 512, 32], [1, 512, 20]]
    )
    recorded, replays = len(recorder.recorded), recorder.replays
    found = passes.run(short[:1])
    assert (len(recorder.recorded), recorder.replays) == (recorded, replays + 3)
    assert max(distances_db(found, Passes(network, CPU).run(short[:1]))) < MAX_DISTANCE_DB


def test_passes_of_repeated_shapes_are_replayed_and_sound_the_same(network, short):
    """The way of a GPU, its graphs stood in for: bucketed, regrouped by frames, recorded, replayed."""
    recorder = Recorder()
    sizes = Buckets((8, 12, 20, 32), (1, 2, 3), 60)
    passes = Passes(network, CPU, sizes, sizes, Graphs(recorder, lambda: True))
    rounds = [passes.run(short) for _ in range(3)]
    assert recorder.recorded == [[1, 12], [2, 8], [1, 32, 640], [2, 20, 640], [1, 512, 32], [2, 512, 20]]
    assert recorder.replays == 2 * 6
    for found in rounds[1:]:
        assert leaks(found, rounds[0]) == [0.0] * len(short)
    assert max(distances_db(rounds[0], Passes(network, CPU).run(short))) < MAX_DISTANCE_DB
