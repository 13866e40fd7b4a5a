"""The official kokoro.KModel, the reference that tests and benchmarks hold this engine against, and how far from it."""

import importlib
import importlib.util
import io
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import ModuleType
from typing import TYPE_CHECKING
from unittest.mock import patch

import torch
from loguru import logger
from torch import Tensor

from scripts.fetch_weights import official_parts
from serve_app.engine.checkpoint import model_config

if TYPE_CHECKING:
    from kokoro import KModel


def official_model(state_dict: Mapping[str, Tensor]) -> "KModel":
    """As its package makes it, weight norm and all, with our folded weights. On the CPU, in eval mode."""
    model = official_skeleton()
    for part, tensors in official_parts(state_dict).items():
        getattr(model, part).load_state_dict(tensors, assign=True)
    # The three constants that no state dict holds.
    embeddings, generator, positions = model.bert.embeddings, model.decoder.generator, model.context_length
    embeddings.position_ids = torch.arange(positions).expand(1, -1)
    embeddings.token_type_ids = torch.zeros(1, positions, dtype=torch.long)
    generator.stft.window = torch.hann_window(generator.stft.win_length, periodic=True)
    return model.eval().requires_grad_(False)


def official_skeleton() -> "KModel":
    """Shapes without memory: drawing 82 million numbers to overwrite them would cost seconds."""
    no_tensors = io.BytesIO()
    torch.save({}, no_tensors)
    no_tensors.seek(0)
    kmodel = _kmodel_class()
    with torch.device("meta"), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it uses the older weight_norm, and a dropout in one-layer LSTMs
        return kmodel(repo_id="hexgrad/Kokoro-82M", config=dict(model_config()), model=no_tensors)


@contextmanager
def given_noise(noise: Tensor) -> Iterator[None]:
    """Within, the official model's source adds this instead of numbers drawn at random.

    Args:
        noise: [1, HARMONICS, samples or more].
    """

    def randn_like(wanted: Tensor) -> Tensor:
        # The source draws twice: for its harmonics, and for a branch that nothing reads.
        drawn = noise.transpose(1, 2)[:, : wanted.shape[1]] if wanted.shape[-1] == noise.shape[1] else wanted
        return drawn.to(wanted)

    with patch.object(torch, "randn_like", randn_like):
        yield


def log_spectral_distance_db(expected: Tensor, found: Tensor) -> float:
    """Between two mono signals of one length: over frames of 1 024 samples, the mean of the rms over the bins.

    Bins more than 80 dB below the loudest count as silent. Another noise seed of the official model is 1.1 to 1.3 dB
    away, the same model on another number of threads up to 0.1.
    """
    powers = [
        torch.stft(audio.float(), 1024, 256, window=torch.hann_window(1024), return_complex=True).abs().square()
        for audio in (expected, found)
    ]
    floor = float(powers[0].max()) * 1e-8
    levels_db = [10 * torch.log10(power.clamp(min=floor)) for power in powers]
    return float((levels_db[0] - levels_db[1]).square().mean(0).sqrt().mean())


def _kmodel_class() -> "type[KModel]":
    """Without the phonemizers that its package imports beside it, which take seconds.

    The package itself is not imported, and can be afterwards.
    """
    logger.disable("kokoro")  # as the package does: its debug lines hold phonemes
    if "kokoro" in sys.modules:
        return importlib.import_module("kokoro.model").KModel
    spec = importlib.util.find_spec("kokoro")
    assert spec is not None
    package = sys.modules["kokoro"] = ModuleType("kokoro")
    package.__path__ = list(spec.submodule_search_locations or ())
    try:
        return importlib.import_module("kokoro.model").KModel
    finally:
        del sys.modules["kokoro"]
