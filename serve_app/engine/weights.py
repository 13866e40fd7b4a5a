"""The one door to weights and voices: settings in, checked tensors out."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from serve_app.config import WeightsSettings, user_cache_folder
from serve_app.engine import checkpoint, sources
from serve_app.engine.files import WeightsError as WeightsError
from serve_app.engine.files import locked
from serve_app.engine.network.stages import Kokoro
from serve_app.engine.packaged import packaged_model, packaged_voices
from serve_app.engine.voices import VoiceStore, read_voice_folder

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, eq=False)
class Weights:
    """Everything that the engine needs to build a model and to give it a voice.

    Attributes:
        state_dict: the checkpoint's tensors, float32, weight norm folded away; they may be views of a mapped file.
        source: what they are, without a path: "packaged int8", "hub fp32", "folder" or "s3".
        folder: the official files that they were read from; None where they were made from the packages.
    """

    state_dict: Mapping[str, Tensor]
    voices: VoiceStore
    source: str
    folder: Path | None = None


def load_weights(settings: WeightsSettings) -> Weights:
    """Find, check and load the model and its voices; fetches only what is in no cache.

    Raises:
        WeightsError: a file is missing or wrong, or nothing can be reached.
    """
    cache = cache_folder(settings)
    try:
        match settings.source:
            case "auto":
                return _load_auto(settings, cache)
            case "hub":
                return _load_hub(settings, cache)
            case "packaged":
                return _load_packaged(cache)
            case uri if uri.startswith("s3://"):
                return _load_official(sources.fetch_s3(uri, cache), "s3")
            case folder:
                return _load_official(sources.find_folder(Path(folder).expanduser()), "folder")
    except OSError as exc:
        raise WeightsError(
            f"weights could not be read or kept ({exc.strerror or type(exc).__name__}); check weights.source, and that "
            f"{cache} is writable and not full, or set weights.cache_dir"
        ) from exc


def build_network(weights: Weights) -> Kokoro:
    """The network on the CPU, in float32, sharing the weights' tensors."""
    return Kokoro.build(checkpoint.model_config(), weights.state_dict)


def cache_folder(settings: WeightsSettings) -> Path:
    """Where converted and fetched files are kept."""
    return settings.cache_dir or user_cache_folder()


def _load_auto(settings: WeightsSettings, cache: Path) -> Weights:
    """Official files if they can be had, else the packages; the choice is kept, so that later starts ask nobody."""
    kept = cache / "auto-source"
    if kept.exists():
        return _load_hub(settings, cache) if kept.read_text() == "hub" else _load_packaged(cache)
    with locked(kept):
        if sources.hub_cached(_hub_cache(settings)) or sources.hub_reachable():
            try:
                weights = _load_hub(settings, cache)
                kept.write_text("hub")
                return weights
            except WeightsError as exc:  # not kept: the hub was there, so the next start may well succeed
                log.warning("no official weights, so the packages are used this time: %s", exc)
                return _load_packaged(cache)
        weights = _load_packaged(cache)
        kept.write_text("packaged")
        return weights


def _load_hub(settings: WeightsSettings, cache: Path) -> Weights:
    return _load_official(sources.fetch_hub(cache, _hub_cache(settings)), "hub fp32")


def _hub_cache(settings: WeightsSettings) -> Path | None:
    return settings.cache_dir / "hub" if settings.cache_dir else None


def _load_packaged(cache: Path) -> Weights:
    return Weights(packaged_model(cache), packaged_voices(cache), "packaged int8")


def _load_official(folder: Path, source: str) -> Weights:
    checkpoint.check_config(folder / sources.CONFIG_FILE)
    state_dict = checkpoint.read_checkpoint(folder / sources.MODEL_FILE)
    return Weights(state_dict, read_voice_folder(folder / sources.VOICES_FOLDER), source, folder)
