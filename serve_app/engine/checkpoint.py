"""The official checkpoint: what must be in it, and reading it.

Weights travel through the engine *folded*: one plain `weight` where the official file has `weight_g` and `weight_v`
(weight norm, Salimans & Kingma 2016). Folding is exact, saves 89 normalisations a forward pass, and gives a filter that
quantisation made all zero the value zero instead of 0/0.
"""

import functools
import json
import re
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from serve_app.engine.files import WeightsError
from serve_app.engine.network.stages import Kokoro

PARTS = ("bert", "bert_encoder", "predictor", "text_encoder", "decoder")
"""The five state dicts of the official file."""

_DEFAULTED = re.compile(r".*\.norm\.(weight|bias)")
"""InstanceNorm's affine, which the published model was trained without."""

_PLAIN_CONVOLUTION = re.compile(r"decoder\.generator\.noise_convs\.\d\.weight|predictor\.(F0|N)_proj\.weight")

_ARCHITECTURE = (
    "hidden_dim",
    "istftnet",
    "max_dur",
    "n_layer",
    "n_mels",
    "n_token",
    "style_dim",
    "text_encoder_kernel_size",
    "vocab",
)


@functools.cache
def model_config() -> Mapping[str, Any]:
    """Kokoro-82M v1.0's config.json: architecture and symbol table."""
    config: Mapping[str, Any] = json.loads(resources.files("serve_app").joinpath("kokoro.json").read_text("utf-8"))
    return config


def check_config(path: Path) -> None:
    """Compare a config.json with the architecture and vocabulary that this program is made for.

    Raises:
        WeightsError: unreadable, or another model's.
    """
    try:
        found = json.loads(path.read_text("utf-8"))
        differing = [key for key in _ARCHITECTURE if found.get(key) != model_config()[key]]
        if _sizes(found.get("plbert", {})) != _sizes(model_config()["plbert"]):
            differing.append("plbert")
    except (OSError, ValueError, AttributeError) as exc:
        raise WeightsError(f"{path} is not a readable config.json ({type(exc).__name__}); fetch it again") from exc
    if differing:
        raise WeightsError(
            f"{path} describes another model than Kokoro-82M v1.0: {', '.join(differing)} differ; "
            "use the config.json of hexgrad/Kokoro-82M"
        )


def _sizes(plbert: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in plbert.items() if key != "dropout"}


def read_checkpoint(path: Path) -> dict[str, Tensor]:
    """Read an official checkpoint file into a folded state dict.

    Raises:
        WeightsError: unreadable, or tensors are missing, of another shape or not finite.
    """
    try:
        parts = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
        flat = {
            # The published file was saved from a DataParallel wrapper, which prefixes every name.
            f"{part}.{name.removeprefix('module.')}": tensor
            for part in PARTS
            for name, tensor in parts[part].items()
        }
    except Exception as exc:  # a damaged zip or pickle raises nearly anything
        raise WeightsError(f"{path} is not a Kokoro checkpoint ({type(exc).__name__}); fetch it again") from exc
    return checked(_folded(flat), str(path))


def _folded(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    folded = {name: tensor for name, tensor in state.items() if not name.endswith((".weight_g", ".weight_v"))}
    for name, v in state.items():
        stem = name.removesuffix("_v")
        if name.endswith(".weight_v") and f"{stem}_g" in state:
            weight = torch._weight_norm(v, state[f"{stem}_g"], 0)
            if not torch.isfinite(weight.sum()):
                weight[v.flatten(1).abs().amax(1) == 0] = 0.0
            folded[stem] = weight
    return folded


def checked(state: Mapping[str, Tensor], what: str) -> dict[str, Tensor]:
    """Reduce `state` to the folded model's tensors, float32, and fill in the ones that never vary.

    Names that the model does not have are left out, as the official loader does.

    Args:
        what: names the origin in the message.
    Raises:
        WeightsError: a tensor is missing, has another shape or is not finite.
    """
    complete: dict[str, Tensor] = {}
    for name, shape in folded_shapes().items():
        tensor = state.get(name)
        if tensor is None:
            if not _DEFAULTED.fullmatch(name):
                raise WeightsError(f"{what} has no tensor {name}: this is not Kokoro-82M v1.0; fetch it again")
            affine_weight = name.endswith(".norm.weight")
            tensor = torch.ones(shape) if affine_weight else torch.zeros(shape)
        if tensor.shape != shape:
            raise WeightsError(
                f"{what} has {name} of shape {list(tensor.shape)} instead of {list(shape)}: "
                "this is not Kokoro-82M v1.0; fetch it again"
            )
        tensor = tensor.float()
        if not torch.isfinite(tensor.sum()):
            raise WeightsError(f"{what} has numbers in {name} that are not finite; the file is damaged, fetch it again")
        complete[name] = tensor
    return complete


@functools.cache
def folded_shapes() -> Mapping[str, torch.Size]:
    """Name and shape of every tensor of the folded model."""
    return {name: tensor.shape for name, tensor in Kokoro.skeleton(model_config()).state_dict().items()}


@functools.cache
def normed_names() -> frozenset[str]:
    """Names of the folded tensors that the official file splits into `..._g` and `..._v`: most convolutions."""
    return frozenset(
        name
        for name, shape in folded_shapes().items()
        if len(shape) == 3 and name.endswith(".weight") and not _PLAIN_CONVOLUTION.fullmatch(name)
    )
