"""Segments in, audio out: the forward pass. Knows nothing of queues, clients and event loops."""

import hashlib
import math
import os
import struct
import time
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from serve_app.config import EngineSettings, WeightsSettings
from serve_app.engine.checkpoint import model_config
from serve_app.engine.cpu.vocoder import cpu_vocoder
from serve_app.engine.network.passes import Item, Passes
from serve_app.engine.network.source import SAMPLE_RATE
from serve_app.engine.types import AudioChunk, EngineInfo, Samples, Segment
from serve_app.engine.voices import VoiceStore
from serve_app.engine.weights import build_network, load_weights
from serve_app.errors import Internal
from serve_app.metrics import FRAMES, GPU_MEMORY_BYTES, NoRecorder, Recorder

_NO_RECORDER = NoRecorder()

MEMORY_EVERY_S = 5.0
"""How often the GPU is asked for its memory: no scrape comes oftener, and a pass has better things to wait for."""

_GRAPHS_SHARE = 10
"""Of the free memory of a GPU, a tenth is for what recorded passes keep."""


class Synthesizer:
    """The model, its voices, and the device that they are on. Not thread-safe: one thread calls `synthesize`."""

    def __init__(
        self,
        passes: Passes,
        voices: VoiceStore,
        settings: EngineSettings,
        weights: str,
        recorder: Recorder = _NO_RECORDER,
    ) -> None:
        """
        Args:
            weights: their origin, for people.
            recorder: hears after every pass what it filled, and of the GPU's memory.
        """
        self._passes = passes
        self._recorder = recorder
        self._memory_due_s = -math.inf
        self._threads = settings.threads or available_cores()
        self._voices = voices
        self._symbols: int = model_config()["n_token"]
        self._hop_samples = hop_samples(model_config()["istftnet"])
        self.info = EngineInfo(SAMPLE_RATE, voices.names, chosen_device(settings.device).type, weights)

    @classmethod
    def load(cls, settings: EngineSettings, weights: WeightsSettings, recorder: Recorder = _NO_RECORDER) -> Self:
        """Load weights and voices. Blocks for seconds. Raises WeightsError."""
        loaded = load_weights(weights)
        device, network = chosen_device(settings.device), build_network(loaded)
        if device.type == "cpu" and (vocoder := cpu_vocoder(network)):
            passes = Passes(network, device, vocoder=vocoder)
        else:
            passes = Passes.on(device, network)
            if settings.warmup and device.type == "cuda":
                passes.record_ahead(torch.cuda.mem_get_info()[0] // _GRAPHS_SHARE)
        return cls(passes, loaded.voices, settings, loaded.source, recorder)

    def check(self, segment: Segment) -> None:
        """Raise UnknownVoice, BadRequest or Internal if this model has no such voice or symbol. For every thread."""
        self._voices.check(segment.voice)
        if max(segment.phoneme_ids) >= self._symbols:  # on a GPU such an index would break the process's context
            raise Internal("A segment holds a phoneme that the model doesn't have.")

    def synthesize(self, batch: Sequence[Segment]) -> list[AudioChunk]:
        """Speak the segments, which may belong to different sessions; one chunk each, in order.

        A segment's audio does not depend on its neighbours: durations are the same beside any, noise is drawn for the
        segment's own content, and on a CPU the samples are the same to the bit. On a GPU the shape of the pass decides
        how sums are rounded, see docs/engine.md.

        Raises:
            Internal: a segment came out empty, silent or not finite.
        """
        # The setting belongs to the thread, not to the process: with OMP_NUM_THREADS=1, which Ray sets, a thread that
        # doesn't call this computes on one core although torch.get_num_threads() says otherwise.
        torch.set_num_threads(self._threads)
        started_s = time.perf_counter()
        spoken = self._passes.run([self._item(segment) for segment in batch])
        inference_s = time.perf_counter() - started_s
        self._record_pass(sum(int(duration_frames.sum()) for _, duration_frames in spoken))
        chunks = []
        for samples, duration_frames in spoken:
            samples = samples.astype(np.float32, copy=False)
            self._require_audible(samples, duration_frames)
            chunks.append(AudioChunk(samples, SAMPLE_RATE, self._hop_samples, duration_frames, inference_s))
        return chunks

    def _record_pass(self, speech_frames: int) -> None:
        self._recorder.record(FRAMES, speech_frames, content="speech")
        self._recorder.record(FRAMES, self._passes.padding_frames, content="padding")
        now_s = time.monotonic()
        if self.info.device == "cuda" and now_s >= self._memory_due_s:
            self._memory_due_s = now_s + MEMORY_EVERY_S
            free_bytes, total_bytes = torch.cuda.mem_get_info()
            self._recorder.record(GPU_MEMORY_BYTES, torch.cuda.memory_reserved(), memory="reserved")
            self._recorder.record(GPU_MEMORY_BYTES, free_bytes, memory="free")
            self._recorder.record(GPU_MEMORY_BYTES, total_bytes, memory="total")

    def _item(self, segment: Segment) -> Item:
        style = self._voices.style(segment.voice, len(segment.phoneme_ids))[0]
        seed = noise_seed(segment, style)
        return Item((0, *segment.phoneme_ids, 0), style, segment.speed, seed, segment.padded_part)

    def _require_audible(self, samples: Samples, duration_frames: NDArray[np.int64]) -> None:
        if samples.shape != (int(duration_frames.sum()) * self._hop_samples,):
            raise Internal("The speech model gave audio of a wrong length.")
        peak = float(np.max(np.abs(samples)))  # NaN if any sample is
        if not 0.0 < peak < math.inf:
            raise Internal("The speech model gave no audio for speakable text.")


def hop_samples(istftnet: Mapping[str, Any]) -> int:
    """Samples of one duration frame: the decoder doubles the frames, and the generator up-samples them by this much."""
    return int(2 * math.prod(istftnet["upsample_rates"]) * istftnet["gen_istft_hop_size"])


def noise_seed(segment: Segment, style: Tensor) -> int:
    """A seed that follows from what is said and how, so that the same segment gets the same noise everywhere.

    Args:
        style: what the voice comes to; two spellings of one blend are one voice.
    """
    content = struct.pack(f"<{len(segment.phoneme_ids)}Hd", *segment.phoneme_ids, segment.speed)
    if segment.part is not None:
        content += struct.pack("<2H", *segment.part)
    digest = hashlib.blake2b(content + style.numpy().astype("<f4").tobytes(), digest_size=8)
    return int.from_bytes(digest.digest(), "little", signed=True)


def available_cores() -> int:
    """Cores that this process may use, by its CPU affinity where the system has one."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def chosen_device(name: str) -> torch.device:
    """What `engine.device` comes to on this machine."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    return torch.device(name)
