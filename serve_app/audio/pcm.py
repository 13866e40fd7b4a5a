"""Float samples to PCM s16le and back, lengths, silences, fades. The only place that quantises."""

import numpy as np
from numpy.typing import NDArray

Samples = NDArray[np.float32]

SAMPLE_BYTES = 2
_FULL_SCALE = 32767


def to_s16le(samples: Samples) -> bytes:
    """Quantise mono audio to PCM s16le: round(clip(x, -1, 1) * 32767).

    Args:
        samples: float32, shape [n], nominally -1..1; values outside are clipped, infinities too; NaN becomes 0.
    Returns:
        2 * n bytes, little-endian.
    Raises:
        ValueError: not one-dimensional float audio (usually samples quantised twice).
    """
    if samples.ndim != 1 or not np.issubdtype(samples.dtype, np.floating):
        raise ValueError(f"expected float samples of shape [n], got {samples.dtype} {samples.shape}")
    clipped = np.clip(np.nan_to_num(samples, nan=0.0, posinf=1.0, neginf=-1.0), -1.0, 1.0)
    return np.round(clipped * _FULL_SCALE).astype("<i2").tobytes()


def from_s16le(pcm: bytes) -> Samples:
    """The inverse of `to_s16le`. Raises ValueError on an odd number of bytes."""
    return np.frombuffer(pcm, dtype="<i2").astype(np.float32) / np.float32(_FULL_SCALE)


def duration_s(samples: int, sample_rate: int) -> float:
    """Seconds that `samples` mono samples last."""
    return samples / sample_rate
