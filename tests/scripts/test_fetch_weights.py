"""The official layout made from the packaged weights, read by the stock model and by us."""

import os
import warnings
from importlib import resources
from pathlib import Path

import pytest
import torch

from scripts import fetch_weights
from scripts.official import given_noise, log_spectral_distance_db
from serve_app.config import WeightsSettings
from serve_app.engine.checkpoint import model_config
from serve_app.engine.network.noise import gaussian
from serve_app.engine.network.passes import Item, Passes
from serve_app.engine.network.source import HARMONICS
from serve_app.engine.weights import Weights, build_network, load_weights

PHONEMES = "həlˈO ðˈɛɹ."


@pytest.fixture(scope="module")
def packaged() -> Weights:
    return load_weights(WeightsSettings(source="packaged"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory, packaged) -> Path:
    folder = tmp_path_factory.mktemp("weights") / "kokoro"
    assert len(fetch_weights.write_folder(packaged, folder)) == 56
    return folder


def test_the_layout_is_the_official_one_in_plain_files(folder, packaged):
    entries = {str(path.relative_to(folder)) for path in folder.rglob("*")}
    voices = {f"voices/{name}.pt" for name in packaged.voices.names}
    assert entries == {"config.json", "kokoro-v1_0.pth", "voices"} | voices
    assert not any(path.is_symlink() for path in folder.rglob("*"))
    assert (folder / "config.json").read_bytes() == resources.files("serve_app").joinpath("kokoro.json").read_bytes()
    assert (folder / "voices" / "af_heart.pt").stat().st_size < 530_000  # one voice, not the storage of all


def test_the_stock_model_reads_it_and_speaks_as_ours_does(folder, packaged):
    from kokoro import KModel

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        stock = KModel(
            repo_id="hexgrad/Kokoro-82M", config=str(folder / "config.json"), model=str(folder / "kokoro-v1_0.pth")
        )
    style = torch.load(folder / "voices" / "af_heart.pt", weights_only=True)[len(PHONEMES) - 1]
    vocab = model_config()["vocab"]
    item = Item((0, *(vocab[symbol] for symbol in PHONEMES), 0), style[0], speed=1.0, seed=1)
    (ours,) = Passes(build_network(packaged), torch.device("cpu")).run([item])
    with given_noise(gaussian(torch.tensor([item.seed]), HARMONICS, len(ours.samples))):
        expected = stock.eval()(PHONEMES, style, return_output=True)
    assert expected.pred_dur.tolist() == ours.durations.tolist()
    assert log_spectral_distance_db(expected.audio, torch.from_numpy(ours.samples)) < 0.3


def test_it_is_a_source_itself_also_one_folder_deeper(folder, packaged):
    for source in (folder, folder.parent):
        again = load_weights(WeightsSettings(source=str(source)))
        assert again.source == "folder"
        assert again.voices.names == packaged.voices.names
        for name, tensor in packaged.state_dict.items():
            torch.testing.assert_close(again.state_dict[name], tensor, msg=name)


def test_the_published_files_form_is_read_the_same(folder, packaged, tmp_path):
    """The published checkpoint names everything `module.X` and has no InstanceNorm affine."""
    parts = torch.load(folder / "kokoro-v1_0.pth", weights_only=True, mmap=True)
    published = {
        part: {f"module.{name}": tensor for name, tensor in tensors.items() if ".norm." not in name}
        for part, tensors in parts.items()
    }
    torch.save(published, tmp_path / "kokoro-v1_0.pth")
    (tmp_path / "config.json").write_bytes((folder / "config.json").read_bytes())
    (tmp_path / "voices").symlink_to(folder / "voices")
    again = load_weights(WeightsSettings(source=str(tmp_path)))
    assert again.state_dict.keys() == packaged.state_dict.keys()
    name = "decoder.generator.resblocks.0.convs1.0.weight"
    torch.testing.assert_close(again.state_dict[name], packaged.state_dict[name])


@pytest.fixture
def small(tmp_path, folder) -> Weights:
    """Official files with a model of a few bytes, as links, as in the hub's cache."""
    origin = tmp_path / "origin"
    (origin / "voices").mkdir(parents=True)
    (tmp_path / "blob").write_bytes(b"model")
    (origin / "kokoro-v1_0.pth").symlink_to(tmp_path / "blob")
    (origin / "config.json").symlink_to(folder / "config.json")
    store = load_weights(WeightsSettings(source="packaged")).voices
    for name in store.names[:2]:
        (origin / "voices" / f"{name}.pt").symlink_to(folder / "voices" / f"{name}.pt")
    fewer = type(store)({name: store.pack(name) for name in store.names[:2]})
    return Weights({}, fewer, "hub fp32", origin)


def test_links_of_the_source_become_plain_files(small, tmp_path):
    to = tmp_path / "to"
    fetch_weights.write_folder(small, to)
    assert (to / "kokoro-v1_0.pth").read_bytes() == b"model"
    assert not any(path.is_symlink() for path in to.rglob("*"))


def test_a_second_run_changes_nothing_and_a_later_one_what_differs(small, tmp_path):
    to = tmp_path / "to"
    fetch_weights.write_folder(small, to)
    assert fetch_weights.write_folder(small, to) == []
    first = small.voices.names[0]
    (to / "voices" / f"{first}.pt").write_bytes(b"damaged")
    (to / "kokoro-v1_0.pth").unlink()
    (to / "kokoro-v1_0.pth").symlink_to(tmp_path / "blob")
    (to / "voices" / "old_voice.pt").write_bytes(b"x")
    changed = fetch_weights.write_folder(small, to)
    assert changed == ["kokoro-v1_0.pth", f"voices/{first}.pt", "voices/old_voice.pt"]
    assert not (to / "kokoro-v1_0.pth").is_symlink()
    assert (tmp_path / "blob").read_bytes() == b"model"


def test_a_linked_voices_folder_is_replaced_and_its_target_kept(small, tmp_path):
    to, elsewhere = tmp_path / "to", tmp_path / "elsewhere"
    to.mkdir()
    elsewhere.mkdir()
    (elsewhere / "af_old.pt").write_bytes(b"x")
    (to / "voices").symlink_to(elsewhere)
    fetch_weights.write_folder(small, to)
    assert not (to / "voices").is_symlink()
    assert os.listdir(elsewhere) == ["af_old.pt"]


def test_the_command_prints_a_summary(small, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(fetch_weights, "load_weights", lambda settings: small)
    assert fetch_weights.main(["--to", str(tmp_path / "to")]) == 0
    summary = capsys.readouterr().out
    assert "Kokoro-82M from hub fp32" in summary
    assert "voices/ (2 files)" in summary
    assert "4 files changed" in summary


def test_a_failure_is_one_sentence_and_a_status(tmp_path, capsys):
    assert fetch_weights.main(["--to", str(tmp_path / "to"), "--source", str(tmp_path / "none")]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert "which is no folder" in captured.err


def test_an_unwritable_target_is_one_sentence(small, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(fetch_weights, "load_weights", lambda settings: small)
    (tmp_path / "file").write_text("")
    assert fetch_weights.main(["--to", str(tmp_path / "file" / "to")]) == 1
    assert "could not be written" in capsys.readouterr().err
