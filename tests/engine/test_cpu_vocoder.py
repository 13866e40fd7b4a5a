"""Decode and generate by the native kernels against the network's own, on real weights with the same noise."""

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor

from scripts.official import log_spectral_distance_db
from serve_app.config import WeightsSettings
from serve_app.engine.checkpoint import model_config
from serve_app.engine.cpu import library, vocoder
from serve_app.engine.cpu.build import supported_targets
from serve_app.engine.cpu.library import load_kernels
from serve_app.engine.cpu.vocoder import NativeVocoder, cpu_vocoder
from serve_app.engine.network.stages import Cut, Kokoro, align
from serve_app.engine.weights import Weights, build_network, load_weights

Native = tuple[NativeVocoder, bool, bool]
"""With whether it is narrow, and the best one here."""
Inputs = tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]

LONG = "the longest"
"""Costs seconds; spoken by the best build alone."""
HELLO = "həlˈO ðˈɛɹ."
SAID = {
    "one token": ("h", "af_heart", 1.0),
    "a greeting": (HELLO, "bm_george", 1.3),
    "a sentence": ("ðə lˈæst bˈʌs lˈivz ɪn tˈɛn mˈɪnəts.", "af_heart", 0.9),
    LONG: ((HELLO + " ") * 42, "jf_alpha", 6.0),
}
"""Phonemes, voice, speed: 0.1 to 13 s."""
BOUNDS = {False: (80.0, 0.01), True: (38.0, 0.2)}
"""Of float32 and of bfloat16 products: least signal-to-noise ratio and largest log-spectral distance, in dB."""
TARGETS = supported_targets()
BUILDS = [(TARGETS[0], True), (TARGETS[0], False), (TARGETS[-1], False)] if TARGETS else []
"""What is used here, and what the plainest processor of this kind would use."""
BUILDS = [(target, narrow) for target, narrow in BUILDS if target.narrow or not narrow]


@pytest.fixture(scope="module", autouse=True)
def no_gradients() -> Iterator[None]:
    with torch.no_grad():
        yield


@pytest.fixture(scope="module")
def weights() -> Weights:
    return load_weights(WeightsSettings(source="packaged"))


@pytest.fixture(scope="module")
def network(weights: Weights) -> Kokoro:
    return build_network(weights)


@pytest.fixture(scope="module")
def spoken(weights: Weights, network: Kokoro) -> dict[str, tuple[Inputs, Tensor]]:
    """What the two stages are given, and what the network makes of it, for each of SAID."""
    return {
        name: (inputs := inputs_of(weights, network, *said), network.vocode(*inputs)) for name, said in SAID.items()
    }


@pytest.fixture(scope="module", params=BUILDS, ids=lambda b: f"{b[0].name}-{'bf16' if b[1] else 'fp32'}")
def native(request: pytest.FixtureRequest, network: Kokoro) -> Native:
    target, narrow = request.param
    kernels = load_kernels(target)
    if kernels is None:
        pytest.skip("no compiler")
    return NativeVocoder(network, kernels, narrow), narrow, request.param == BUILDS[0]


def inputs_of(weights: Weights, network: Kokoro, phonemes: str, voice: str, speed: float) -> Inputs:
    vocab = model_config()["vocab"]
    ids = [vocab[symbol] for symbol in phonemes][:510]
    style = weights.voices.style(voice, len(ids))[0][None]
    tokens = torch.tensor([[0, *ids, 0]])
    states = network.text(tokens, torch.tensor([tokens.shape[1]]), style, torch.tensor([speed]))
    whole = Cut(torch.tensor([0]), torch.tensor([0]), states.frames)
    hidden, encoded = (align(x, states.durations, whole, int(states.frames)) for x in (states.hidden, states.encoded))
    f0, energy = network.prosody(hidden, style, states.frames)
    return encoded.transpose(1, 2).contiguous(), f0, energy, style, states.frames, torch.tensor([7])


def test_the_audio_is_the_network_s(native: Native, spoken: dict[str, tuple[Inputs, Tensor]]) -> None:
    speak, narrow, best = native
    least_snr_db, largest_distance_db = BOUNDS[narrow]
    for name, (inputs, expected) in spoken.items():
        if name == LONG and not best:
            continue
        audio = speak(*inputs)
        assert audio.shape == expected.shape, name
        error = (audio - expected).square().mean()
        snr_db = float(10 * torch.log10(expected.square().mean() / error))
        assert snr_db > least_snr_db, name
        assert log_spectral_distance_db(expected[0], audio[0]) < largest_distance_db, name
        tail = (audio - expected)[0, -600:].abs().max()
        assert tail <= (audio - expected).abs().max() * 1.5, name


def test_the_same_bytes_whatever_ran_before_and_the_same_sound_on_any_number_of_threads(
    native: Native, spoken: dict[str, tuple[Inputs, Tensor]]
) -> None:
    speak, *_ = native
    inputs = spoken["a greeting"][0]
    before = torch.get_num_threads()
    answers = []
    for threads in (1, 2, 1):
        torch.set_num_threads(threads)
        answers.append(speak(*inputs))
        speak(*spoken["one token"][0])
    torch.set_num_threads(before)
    assert torch.equal(answers[0], answers[2])
    # torch's Fourier transforms depend on the threads, by a last bit that may flip a bfloat16's.
    assert log_spectral_distance_db(answers[0][0], answers[1][0]) < BOUNDS[True][1]


def test_items_of_a_batch_are_as_if_alone(native: Native, spoken: dict[str, tuple[Inputs, Tensor]]) -> None:
    speak, *_ = native
    alone = [spoken[name][0] for name in ("one token", "a greeting")]
    size = max(int(inputs[4]) for inputs in alone)

    def padded(tensor: Tensor, wanted: int) -> Tensor:
        return torch.nn.functional.pad(tensor, (0, wanted - tensor.shape[-1]), value=9.0)  # nothing reads it

    columns = list(zip(*alone, strict=True))
    batch = [
        torch.cat([padded(encoded, size) for encoded in columns[0]]),
        *(torch.cat([padded(curve, 2 * size) for curve in column]) for column in columns[1:3]),
        *(torch.cat(column) for column in columns[3:]),
    ]
    audio = speak(*batch)
    assert audio.shape == (2, 600 * size)
    for row, inputs in zip(audio, alone, strict=True):
        samples = 600 * int(inputs[4])
        assert torch.equal(row[:samples], speak(*inputs)[0])
        assert not row[samples:].any()


def test_buffers_of_long_items_are_given_back(
    native: Native, spoken: dict[str, tuple[Inputs, Tensor]], monkeypatch: pytest.MonkeyPatch
) -> None:
    speak, *_ = native
    monkeypatch.setattr(vocoder, "_KEPT_BYTES", 1000)
    speak(*spoken["one token"][0])
    assert not speak._generate._buffers._kept


def test_the_hook_takes_the_decoder_s_weights_with_it(weights: Weights, caplog: pytest.LogCaptureFixture) -> None:
    network = build_network(weights)
    inputs = inputs_of(weights, network, *SAID["one token"])
    with caplog.at_level(logging.INFO):
        speak = cpu_vocoder(network)
    if speak is None:
        pytest.skip("no native kernels here")
    assert "native kernels" in caplog.text
    assert not hasattr(network, "decoder")
    assert speak(*inputs).shape == (1, 600 * int(inputs[4]))


def test_the_text_stage_keeps_its_durations(weights: Weights, network: Kokoro) -> None:
    quick = build_network(weights)
    if cpu_vocoder(quick) is None:
        pytest.skip("no native kernels here")
    for voice in weights.voices.names[::18]:
        for phonemes, _, speed in (SAID["one token"], SAID["a sentence"]):
            tokens = torch.tensor([[0, *[model_config()["vocab"][symbol] for symbol in phonemes], 0]])
            given = torch.tensor([tokens.shape[1]]), weights.voices.style(voice, tokens.shape[1] - 2)[0][None]
            states = [of.text(tokens, *given, torch.tensor([speed])) for of in (network, quick)]
            assert torch.equal(states[0].durations, states[1].durations)
            assert (states[0].hidden - states[1].hidden).abs().max() < 1e-3


def test_where_there_is_no_compiler_the_network_is_left_as_it_is(
    weights: Weights, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(library, "user_cache_folder", lambda: tmp_path)
    monkeypatch.setenv("PATH", "")
    network = build_network(weights)
    assert cpu_vocoder(network) is None
    assert network.decoder is not None
