"""Segments in, audio out: the forward pass. Knows nothing of queues, clients and event loops."""

import math
import os
import time
from collections.abc import Mapping, Sequence
from typing import Any, Self, cast

import numpy as np
import torch
from numpy.typing import NDArray

from serve_app.config import EngineSettings, WeightsSettings
from serve_app.engine.checkpoint import model_config
from serve_app.engine.types import AudioChunk, EngineInfo, Samples, Segment
from serve_app.engine.voices import VoiceStore
from serve_app.engine.weights import build_model, load_weights
from serve_app.errors import Internal

_NOISE_SEED = 0


class Synthesizer:
    """The model, its voices, and the device that they are on. Not thread-safe: one thread calls `synthesize`."""

    def __init__(self, model: torch.nn.Module, voices: VoiceStore, settings: EngineSettings, weights: str) -> None:
        """
        Args:
            model: a `kokoro.KModel` in eval mode without weight norm; moved to the device.
            weights: their origin, for people.
        """
        self._device = _device(settings.device)
        self._threads = settings.threads or available_cores()
        self._model = cast(Any, model.to(self._device))
        self._voices = voices
        self._symbols: int = model_config()["n_token"]
        self._hop_samples = hop_samples(model_config()["istftnet"])
        # The configuration is silent about the rate; the harmonic source is built for one.
        self._sample_rate = int(self._model.decoder.generator.m_source.l_sin_gen.sampling_rate)
        self.info = EngineInfo(self._sample_rate, voices.names, self._device.type, weights)

    @classmethod
    def load(cls, settings: EngineSettings, weights: WeightsSettings) -> Self:
        """Load weights and voices. Blocks for seconds. Raises WeightsError."""
        loaded = load_weights(weights)
        return cls(build_model(loaded), loaded.voices, settings, loaded.source)

    def check(self, segment: Segment) -> None:
        """Raise UnknownVoice, BadRequest or Internal if this model has no such voice or symbol. For every thread."""
        self._voices.check(segment.voice)
        if max(segment.phoneme_ids) >= self._symbols:  # on a GPU such an index would break the process's context
            raise Internal("A segment holds a phoneme that the model doesn't have.")

    def synthesize(self, batch: Sequence[Segment]) -> list[AudioChunk]:
        """Speak the segments, which may belong to different sessions; one chunk each, in order.

        The same segment gives the same samples on the same machine, whatever was spoken before or beside it.

        Raises:
            Internal: a segment came out empty, silent or not finite.
        """
        # The setting belongs to the thread, not to the process: with OMP_NUM_THREADS=1, which Ray sets, a thread that
        # doesn't call this computes on one core although torch.get_num_threads() says otherwise.
        torch.set_num_threads(self._threads)
        with torch.inference_mode():
            return [self._speak(segment) for segment in batch]

    def _speak(self, segment: Segment) -> AudioChunk:
        started_s = time.perf_counter()
        style = self._voices.style(segment.voice, len(segment.phoneme_ids)).to(self._device)
        ids = torch.tensor([[0, *segment.phoneme_ids, 0]], device=self._device)
        # The harmonic source adds Gaussian noise from the global generator, which nobody else in this process uses.
        torch.manual_seed(_NOISE_SEED)
        audio, durations = self._model.forward_with_tokens(ids, style, segment.speed)
        samples = np.ascontiguousarray(audio.float().cpu().numpy())
        duration_frames = durations.cpu().numpy().astype(np.int64, copy=False)
        self._require_audible(samples, duration_frames)
        inference_s = time.perf_counter() - started_s
        return AudioChunk(samples, self._sample_rate, self._hop_samples, duration_frames, inference_s)

    def _require_audible(self, samples: Samples, duration_frames: NDArray[np.int64]) -> None:
        if samples.shape != (int(duration_frames.sum()) * self._hop_samples,):
            raise Internal("The speech model gave audio of a wrong length.")
        peak = float(np.max(np.abs(samples)))  # NaN if any sample is
        if not 0.0 < peak < math.inf:
            raise Internal("The speech model gave no audio for speakable text.")


def hop_samples(istftnet: Mapping[str, Any]) -> int:
    """Samples of one duration frame: the decoder doubles the frames, and the generator up-samples them by this much."""
    return int(2 * math.prod(istftnet["upsample_rates"]) * istftnet["gen_istft_hop_size"])


def available_cores() -> int:
    """Cores that this process may use, by its CPU affinity where the system has one."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _device(name: str) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    return torch.device(name)
