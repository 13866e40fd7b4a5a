"""Float samples to PCM s16le and back, lengths, slices. The only place that quantises."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

Samples = NDArray[np.float32]
"""Mono audio, shape [n], nominally -1..1."""

MODEL_RATE = 24_000
"""Hz: what the model makes and every encoder takes."""

SAMPLE_BYTES = 2
_FULL_SCALE = 32767


def bounded(samples: Samples) -> Samples:
    """Samples within -1..1: values outside are clipped, infinities too; NaN becomes 0.

    Raises:
        ValueError: not one-dimensional float audio (usually samples quantised twice).
    """
    if samples.ndim != 1 or not np.issubdtype(samples.dtype, np.floating):
        raise ValueError(f"expected float samples of shape [n], got {samples.dtype} {samples.shape}")
    return np.clip(np.nan_to_num(samples, nan=0.0, posinf=1.0, neginf=-1.0), -1.0, 1.0)


def to_s16le(samples: Samples) -> bytes:
    """Quantise mono audio to PCM s16le: round(clip(x, -1, 1) * 32767).

    Args:
        samples: float32, shape [n], nominally -1..1; see `bounded` for what lies outside.
    Returns:
        2 * n bytes, little-endian.
    Raises:
        ValueError: not one-dimensional float audio (usually samples quantised twice).
    """
    return np.round(bounded(samples) * _FULL_SCALE).astype("<i2").tobytes()


def from_s16le(pcm: bytes) -> Samples:
    """The inverse of `to_s16le`. Raises ValueError on an odd number of bytes."""
    return np.frombuffer(pcm, dtype="<i2").astype(np.float32) / np.float32(_FULL_SCALE)


def duration_s(samples: int, sample_rate: int) -> float:
    """Seconds that `samples` mono samples last."""
    return samples / sample_rate


def slices(samples: Samples, slice_samples: int) -> Iterator[Samples]:
    """Views of at most `slice_samples` samples, in order; what is encoded between two turns of an event loop."""
    for start in range(0, len(samples), slice_samples):
        yield samples[start : start + slice_samples]
