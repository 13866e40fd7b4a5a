"""Audio made of numbers, for the tests of this layer."""

import numpy as np
from numpy.typing import NDArray

RATE = 24_000


def voice_like(seconds: float, seed: int = 0) -> NDArray[np.float32]:
    """A gliding, swelling tone with a little noise: nothing that a codec codes for free."""
    t = np.arange(round(seconds * RATE)) / RATE
    tone = np.sin(2 * np.pi * (170 * t + 25 * np.sin(2 * np.pi * 1.5 * t))) + 0.4 * np.sin(2 * np.pi * 1_400 * t)
    noise = np.random.default_rng(seed).standard_normal(len(t))
    return (0.3 * tone * (0.6 + 0.4 * np.sin(2 * np.pi * 3 * t)) + 0.005 * noise).astype(np.float32)


def silence(seconds: float, level: float = 0.0) -> NDArray[np.float32]:
    """Silence, or noise of the given RMS."""
    return (level * np.random.default_rng(1).standard_normal(round(seconds * RATE))).astype(np.float32)


def cut(samples: NDArray[np.float32], pieces: int) -> list[NDArray[np.float32]]:
    """Pieces of odd, unequal lengths."""
    borders = sorted({(len(samples) * k // pieces) | 1 for k in range(1, pieces)} - {len(samples)})
    return np.split(samples, borders)
