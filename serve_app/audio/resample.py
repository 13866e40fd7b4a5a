"""From the model's sample rate to the one that was asked for, chunk by chunk, without a seam."""

import numpy as np
import soxr

from serve_app.audio.pcm import Samples, bounded


class Resampler:
    """One stream of audio from one rate to another. Equal rates pass through untouched and uncopied.

    The soxr "HQ" recipe: a linear-phase filter whose output does not depend on how the input is cut, and is as long as
    a one-shot conversion's. It holds back 25-65 ms until more audio or `finish` comes, and costs less than 1 ms of
    CPU per second of audio.
    """

    def __init__(self, source_rate: int, target_rate: int) -> None:
        self._stream = (
            None
            if source_rate == target_rate
            else soxr.ResampleStream(source_rate, target_rate, 1, dtype="float32", quality="HQ")
        )

    def resample(self, samples: Samples) -> Samples:
        """The next samples at the target rate, float32 [m]; possibly none."""
        if self._stream is None:
            return samples
        # A NaN would otherwise spread over the filter's whole length.
        resampled: Samples = self._stream.resample_chunk(np.ascontiguousarray(bounded(samples), dtype=np.float32))
        return resampled

    def finish(self) -> Samples:
        """What the filter still holds; all calls together give round(n * target / source) samples, give or take one."""
        if self._stream is None:
            return np.zeros(0, np.float32)
        resampled: Samples = self._stream.resample_chunk(np.zeros(0, np.float32), last=True)
        return resampled
