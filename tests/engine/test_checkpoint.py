import json
from importlib import resources

import pytest
import torch

from serve_app.engine.checkpoint import (
    check_config,
    checked,
    folded_shapes,
    model_config,
    normed_names,
    read_checkpoint,
)
from serve_app.engine.files import WeightsError


def tiny_state() -> dict[str, torch.Tensor]:
    """The whole model in shape, without its memory: one number seen everywhere."""
    return {name: torch.zeros(()).expand(shape) for name, shape in folded_shapes().items()}


def test_a_complete_state_passes():
    assert checked(tiny_state(), "it").keys() == folded_shapes().keys()


def test_what_the_official_file_leaves_out_is_filled_in_and_what_it_has_beside_is_left_out():
    state = tiny_state()
    del state["decoder.encode.norm1.norm.weight"], state["decoder.encode.norm1.norm.bias"]
    state["bert.pooler.weight"] = torch.zeros(768, 768)
    state["bert.embeddings.position_ids"] = torch.arange(512)
    complete = checked(state, "it")
    assert complete.keys() == folded_shapes().keys()
    assert (complete["decoder.encode.norm1.norm.weight"] == 1).all()
    assert (complete["decoder.encode.norm1.norm.bias"] == 0).all()


def test_a_missing_tensor_is_named():
    state = tiny_state()
    del state["decoder.encode.conv1.weight"]
    with pytest.raises(WeightsError, match=r"it has no tensor decoder\.encode\.conv1\.weight"):
        checked(state, "it")


def test_another_shape_is_named():
    state = tiny_state() | {"bert_encoder.bias": torch.zeros(511)}
    with pytest.raises(WeightsError, match=r"it has bert_encoder\.bias of shape \[511\] instead of \[512\]"):
        checked(state, "it")


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_numbers_that_are_not_finite_are_refused(bad):
    state = tiny_state() | {"bert_encoder.bias": torch.tensor([bad] + [0.0] * 511)}
    with pytest.raises(WeightsError, match=r"bert_encoder\.bias that are not finite"):
        checked(state, "it")


@pytest.mark.parametrize("content", [b"", b"junk", b"PK\x03\x04junk"])
def test_a_damaged_checkpoint_is_refused_by_name(tmp_path, content):
    (tmp_path / "kokoro-v1_0.pth").write_bytes(content)
    with pytest.raises(WeightsError, match=r"kokoro-v1_0\.pth is not a Kokoro checkpoint"):
        read_checkpoint(tmp_path / "kokoro-v1_0.pth")


def test_a_checkpoint_of_something_else_is_refused(tmp_path):
    torch.save({"net": {}}, tmp_path / "kokoro-v1_0.pth")
    with pytest.raises(WeightsError, match=r"is not a Kokoro checkpoint \(KeyError\)"):
        read_checkpoint(tmp_path / "kokoro-v1_0.pth")


def test_our_own_configuration_agrees_with_itself(tmp_path):
    path = tmp_path / "config.json"
    path.write_bytes(resources.files("serve_app").joinpath("kokoro.json").read_bytes())
    check_config(path)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"vocab": {"a": 1}}, "vocab"),
        ({"hidden_dim": 256, "n_layer": 4}, "hidden_dim, n_layer"),
        ({"plbert": {"hidden_size": 1}}, "plbert"),
        ({"istftnet": {}}, "istftnet"),
    ],
)
def test_another_models_configuration_is_refused_and_the_difference_named(tmp_path, change, named):
    (tmp_path / "config.json").write_text(json.dumps({**model_config(), **change}))
    with pytest.raises(WeightsError, match=rf"describes another model than Kokoro-82M v1\.0: {named} differ"):
        check_config(tmp_path / "config.json")


@pytest.mark.parametrize("content", ["", "[]", '{"plbert": 3}', "\x00"])
def test_what_is_no_configuration_is_refused(tmp_path, content):
    (tmp_path / "config.json").write_text(content)
    with pytest.raises(WeightsError, match=r"config\.json"):
        check_config(tmp_path / "config.json")


def test_a_missing_configuration_is_refused_by_name(tmp_path):
    with pytest.raises(WeightsError, match=r"config\.json is not a readable config\.json \(FileNotFoundError\)"):
        check_config(tmp_path / "config.json")


def test_names_and_shapes_are_the_official_models():
    from scripts.official import official_skeleton

    official = official_skeleton().state_dict()
    split = {name.removesuffix("_v") for name in official if name.endswith(".weight_v")}
    assert normed_names() == split
    folded = {name.removesuffix("_v"): tensor.shape for name, tensor in official.items() if not name.endswith("_g")}
    assert {name: shape for name, shape in folded.items() if ".pooler." not in name} == folded_shapes()
