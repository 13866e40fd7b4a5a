"""The one door to weights and voices: settings in, checked tensors out."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from torch import Tensor

from serve_app.config import WeightsSettings
from serve_app.engine import checkpoint
from serve_app.engine.files import WeightsError as WeightsError
from serve_app.engine.packaged import packaged_model, packaged_voices
from serve_app.engine.voices import VoiceStore

if TYPE_CHECKING:
    from kokoro import KModel


@dataclass(frozen=True, slots=True, eq=False)
class Weights:
    """Everything that the engine needs to build a model and to give it a voice.

    Attributes:
        state_dict: the official KModel's tensors, float32, weight norm folded away; they may be views of a mapped file.
        source: what they are, without a path: "packaged int8", "hub fp32", "folder", "s3".
    """

    state_dict: Mapping[str, Tensor]
    voices: VoiceStore
    source: str


def load_weights(settings: WeightsSettings) -> Weights:
    """Find, check and load the model and its voices; fetches only what is in no cache.

    Raises:
        WeightsError: a file is missing or wrong, or nothing can be reached.
    """
    cache = cache_folder(settings)
    return Weights(packaged_model(cache), packaged_voices(cache), "packaged int8")


def build_model(weights: Weights) -> "KModel":
    """The official model on the CPU: eval mode, weight norm folded away, no gradients, sharing the weights' tensors."""
    return checkpoint.build_model(weights.state_dict)


def cache_folder(settings: WeightsSettings) -> Path:
    """Where converted and fetched files are kept (XDG Base Directory Specification)."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return settings.cache_dir or Path(base) / "kokoro-serve"
