"""Which source is taken, and the real model with the packaged weights."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from serve_app.audio.pcm import to_s16le
from serve_app.config import WeightsSettings
from serve_app.engine import packaged, sources, weights
from serve_app.engine.checkpoint import model_config
from serve_app.engine.types import Segment
from serve_app.engine.voices import VoiceStore
from serve_app.engine.weights import Weights, WeightsError, build_network, load_weights


@pytest.fixture(scope="module")
def packaged_weights() -> Weights:
    return load_weights(WeightsSettings(source="packaged"))


@pytest.mark.parametrize(
    ("phonemes", "pcm_bytes"),
    [
        ("həlˈO ðˈɛɹ.", 74_400),  # Hello there.
        ("ðˌɪs ɪz ɐ pˈOst dəplˈYmənt ʧˈɛk.", 105_600),  # This is a post deployment check.
        ("ˌɪt hæz θɹˈi sˈɛntᵊnsᵻz.", 98_400),  # It has three sentences.
    ],
)
def test_packaged_weights_give_the_published_lengths(synthesizer, phonemes, pcm_bytes):
    """Contract section 6."""
    vocab = model_config()["vocab"]
    segment = Segment("s", "r", 0, tuple(vocab[symbol] for symbol in phonemes), "af_heart")
    (chunk,) = synthesizer.synthesize([segment])
    assert len(to_s16le(chunk.samples)) == pcm_bytes
    assert 0.1 < np.abs(chunk.samples).max() < 1.0  # 94 filters are all zero; unguarded they make the utterance NaN


def test_the_built_network_has_no_tensor_left_without_memory_and_no_gradients(packaged_weights):
    network = build_network(packaged_weights)
    assert not network.training
    for module in network.modules():
        held = [*module.parameters(recurse=False), *module.buffers(recurse=False), *vars(module).values()]
        assert all(tensor.device.type == "cpu" for tensor in held if isinstance(tensor, torch.Tensor))
    assert not any(parameter.requires_grad for parameter in network.parameters())


def test_the_model_is_loaded_without_the_packages_that_take_seconds():
    code = (
        "import sys, serve_app.engine.model; "
        "sys.exit(str({'kokoro', 'transformers', 'misaki', 'spacy', 'onnx'} & sys.modules.keys() or ''))"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert ended.stderr.strip() == ""


def test_packaged_weights_come_with_54_voices(packaged_weights):
    assert len(packaged_weights.voices.names) == 54
    assert packaged_weights.source == "packaged int8"


def test_a_second_start_fetches_nothing_and_reads_no_onnx(packaged_weights, monkeypatch, tmp_path):
    npm = tmp_path / "npm"
    npm.write_text("#!/bin/sh\nexit 1\n")
    npm.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(sys.modules, "onnx", None)
    monkeypatch.delitem(sys.modules, "serve_app.engine.dequantize", raising=False)
    monkeypatch.setattr(packaged, "MODEL_PACKAGES", ("kokoro-not-installed",))
    again = load_weights(WeightsSettings(source="packaged"))
    assert again.voices.names == packaged_weights.voices.names


@pytest.fixture
def fakes(monkeypatch):
    """Packages and hub that answer at once; `fakes` lists who was asked."""
    asked: list[str] = []
    model, voices = {"weight": torch.zeros(1)}, VoiceStore({})

    def answer(name, value):
        def ask(*_):
            asked.append(name)
            if isinstance(value, Exception):
                raise value
            return value

        return ask

    monkeypatch.setattr(weights, "packaged_model", answer("packages", model))
    monkeypatch.setattr(weights, "packaged_voices", lambda _: voices)
    monkeypatch.setattr(weights, "_load_official", lambda folder, source: Weights(model, voices, source, folder))
    monkeypatch.setattr(sources, "hub_cached", lambda _: None)

    def hub(*, reachable: bool, fetch: object = Path("hub")) -> None:
        monkeypatch.setattr(sources, "hub_reachable", answer("probe", reachable))
        monkeypatch.setattr(sources, "fetch_hub", answer("hub", fetch))

    return asked, hub


def test_auto_takes_the_packages_where_the_hub_is_out_of_reach_and_later_asks_nobody(fakes, tmp_path):
    asked, hub = fakes
    hub(reachable=False)
    settings = WeightsSettings(cache_dir=tmp_path)
    assert load_weights(settings).source == load_weights(settings).source == "packaged int8"
    assert asked == ["probe", "packages", "packages"]


def test_auto_takes_the_hub_where_it_answers_and_later_asks_nobody(fakes, tmp_path):
    asked, hub = fakes
    hub(reachable=True)
    settings = WeightsSettings(cache_dir=tmp_path)
    assert load_weights(settings).source == load_weights(settings).source == "hub fp32"
    assert asked == ["probe", "hub", "hub"]


def test_auto_uses_the_packages_for_once_when_the_hub_breaks_off(fakes, tmp_path):
    asked, hub = fakes
    settings = WeightsSettings(cache_dir=tmp_path)
    hub(reachable=True, fetch=WeightsError("broke off"))
    assert load_weights(settings).source == "packaged int8"
    hub(reachable=True)
    assert load_weights(settings).source == "hub fp32"


def test_a_misspelt_source_is_refused_with_the_names_that_exist():
    with pytest.raises(WeightsError, match=r"pakaged, which is no folder; use `auto`, `hub`, `packaged`, `s3://"):
        load_weights(WeightsSettings(source="pakaged"))


def test_a_cache_folder_that_cannot_be_made_is_a_sentence(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(WeightsError, match="is writable and not full, or set weights.cache_dir"):
        load_weights(WeightsSettings(source="packaged", cache_dir=tmp_path / "file" / "cache"))


def test_the_cache_follows_xdg(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert weights.cache_folder(WeightsSettings()) == tmp_path / "kokoro-serve"
    assert weights.cache_folder(WeightsSettings(cache_dir=tmp_path / "own")) == tmp_path / "own"
