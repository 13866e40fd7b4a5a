"""The Fourier transform of the source, and the inverse one that gives the audio; each item to its own end."""

import math
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from serve_app.engine.network.masked import Span


class Spectrum(nn.Module):
    """Transforms of one size and hop, centred, with a Hann window. Has no weights."""

    def __init__(self, size: int, hop: int) -> None:
        super().__init__()
        self.bins = size // 2 + 1
        self._size, self._hop = size, hop

    def finish(self) -> None:
        """Make the constants; not in the constructor, which also builds skeletons without memory."""
        window = torch.hann_window(self._size, periodic=True)
        turns = torch.arange(self.bins)[:, None] * torch.arange(self._size)[None].double() / self._size
        weight = torch.full((self.bins, 1), 2.0 / self._size, dtype=torch.float64)  # a bin stands for its mirror, too
        weight[0] = weight[-1] = 1.0 / self._size
        basis = torch.cat([weight * torch.cos(2 * math.pi * turns), -weight * torch.sin(2 * math.pi * turns)])
        self.register_buffer("window", window, persistent=False)
        self.register_buffer("basis", (basis * window)[:, None], persistent=False)  # float64, [2 * bins, 1, size]

    def forward(self, signal: Tensor, samples: Tensor) -> Tensor:
        """Magnitudes and phases, [B, 2 * bins, S / hop + 1], of [B, S]; not zero beyond each item.

        Args:
            samples: int64 [B], length of each item.
        """
        half = self._size // 2
        # The centred transform reflects a signal at its ends. The left end is common; the right one is each item's own.
        last = samples[:, None] - 1
        at = torch.arange(-half, signal.shape[1] + half, device=signal.device).abs()[None]
        at = torch.where(at > last, 2 * last - at, at).clamp_(0, signal.shape[1] - 1)
        window = cast(Tensor, self.window).to(signal.dtype)
        frames = signal.gather(1, at).unfold(1, self._size, self._hop) * window
        spectrum = torch.fft.rfft(frames).transpose(1, 2)
        return torch.cat([spectrum.abs(), spectrum.angle()], dim=1)

    def inverse(self, magnitude: Tensor, phase: Tensor, span: Span) -> Tensor:
        """[B, bins, n] each to audio [B, (n - 1) * hop]. Beyond each item it is not zero.

        Frames overlap, so a sample is divided by the sum of the squared windows over it. Near an item's end fewer
        frames lie over it than in the middle of a longer neighbour: the mask is overlap-added as the frames are.
        """
        parts = torch.cat([magnitude * torch.cos(phase), magnitude * torch.sin(phase)], dim=1)
        window = cast(Tensor, self.window).to(parts.dtype)
        audio = F.conv_transpose1d(span.zero(parts), cast(Tensor, self.basis).to(parts.dtype), stride=self._hop)
        cover = F.conv_transpose1d(span.mask, window.square()[None, None], stride=self._hop)
        half = self._size // 2
        whole = slice(half, audio.shape[2] - half)
        return audio[:, 0, whole] / cover[:, 0, whole].clamp_(min=1e-8)
