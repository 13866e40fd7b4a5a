"""The harmonic source (Wang, Takaki, Yamagishi 2019): sines at the pitch and eight overtones, and noise."""

import math

import torch
from torch import Tensor, nn

from serve_app.engine.network.noise import gaussian

SAMPLE_RATE = 24_000
HARMONICS = 9
_SINE_AMPLITUDE = 0.1
_VOICED_NOISE = 0.003
_UNVOICED_NOISE = _SINE_AMPLITUDE / 3
_VOICED_ABOVE_HZ = 10.0


class Source(nn.Module):
    """Pitch to one excitation signal at the sample rate.

    Args:
        step: samples of one value of the pitch curve.
    """

    def __init__(self, step: int) -> None:
        super().__init__()
        self.l_linear = nn.Linear(HARMONICS, 1)
        self._step = step

    def forward(self, f0: Tensor, seeds: Tensor) -> Tensor:
        """[B, n] in Hz, zero beyond each item, to [B, n * step]; what stands beyond an item is not zero.

        The official source draws an initial phase at random too, and then never reads it.
        """
        voiced = (f0 > _VOICED_ABOVE_HZ).float()[:, None, :, None]  # float32 also where all else is float64, as the
        loudness = voiced * _VOICED_NOISE + (1 - voiced) * _UNVOICED_NOISE  # official source does: the same constants
        noise = gaussian(seeds, HARMONICS, f0.shape[1] * self._step).to(f0.dtype)
        by_value = (*noise.shape[:2], f0.shape[1], self._step)
        waves = self.sines(f0).view(by_value).mul_(_SINE_AMPLITUDE).mul_(voiced)
        waves = waves.addcmul_(noise.view(by_value), loudness).flatten(-2)
        return torch.tanh(self.l_linear(waves.transpose(1, 2)))[:, :, 0]

    def sines(self, f0: Tensor) -> Tensor:
        """The pitch and its overtones, [B, HARMONICS, n * step].

        The phase is a sum over the curve, drawn out linearly between the middles of neighbouring values and held at
        both ends. In the padding the frequency is 0: the sum stands still, which holds it at the item's own end.

        The sum is kept in float64 and in turns, of which only the fraction matters: in float32 the official one loses a
        hundredth of a turn within a long sentence.
        """
        orders = torch.arange(1, HARMONICS + 1, device=f0.device, dtype=f0.dtype)[None, :, None]
        turns = (f0[:, None] * orders / SAMPLE_RATE % 1).double().mul_(self._step)  # within each value
        ends = torch.cumsum(turns, dim=-1)
        held = torch.zeros_like(turns[:, :, :1])
        starts = torch.cat([ends[:, :, :1], ends], dim=-1) % 1  # the first half step holds the first value
        slopes = torch.cat([held, turns[:, :, 1:], held], dim=-1)
        way = (torch.arange(self._step, device=f0.device, dtype=f0.dtype) + 0.5) / self._step
        radians = (2 * math.pi * starts).to(f0.dtype), (2 * math.pi * slopes).to(f0.dtype)
        phase = torch.addcmul(radians[0][..., None], radians[1][..., None], way).flatten(-2)
        half = self._step // 2
        return phase[:, :, half : phase.shape[-1] - half].sin()
