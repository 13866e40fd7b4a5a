"""Weights of convolutions in the order in which the kernels read them."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

LANES = 32
"""Channels in and out are padded to a multiple of this, which every processor's panels divide."""


@dataclass(frozen=True, slots=True, eq=False)
class Packed:
    """One convolution.

    Attributes:
        weights: transformed, see kernels.cpp: [O / panel, products, C, panel], or [..., C / 2, panel, 2] if narrow.
        bias: float32 [O].
        channels, outputs: padded.
        narrow: weights are bfloat16, and the inputs are rounded to it.
    """

    weights: Tensor
    bias: Tensor
    channels: int
    outputs: int
    taps: int
    narrow: bool


def packed(weight: Tensor, bias: Tensor | None, panel: int, narrow: bool) -> Packed:
    """
    Args:
        weight: float32 [O, C, taps].
        panel: outputs of a tile, `Kernels.panel`.
    """
    outputs, channels, taps = weight.shape
    outputs, channels = lanes(outputs), lanes(channels)
    weight = F.pad(weight, (0, 0, 0, channels - weight.shape[1], 0, outputs - weight.shape[0]))
    padded_bias = torch.zeros(outputs)
    if bias is not None:
        padded_bias[: len(bias)] = bias
    zero = torch.zeros_like(weight[:, :, 0])
    first, plus, minus, last = [], [], [], []
    at = 0
    for size in chunk_sizes(taps):
        g0, g1, g2 = (weight[:, :, at + tap] if tap < size else zero for tap in range(3))
        first.append(g0)
        plus.append((g0 + g1 + g2) / 2)
        minus.append((g0 - g1 + g2) / 2)
        if size == 3:
            last.append(g2)
        at += size
    products = torch.stack(first + plus + minus + last)
    if narrow:
        shaped = products.to(torch.bfloat16).view(len(products), outputs // panel, panel, channels // 2, 2)
        shaped = shaped.permute(1, 0, 3, 2, 4)
    else:
        shaped = products.view(len(products), outputs // panel, panel, channels).permute(1, 0, 3, 2)
    return Packed(shaped.contiguous(), padded_bias, channels, outputs, taps, narrow)


def packed_matrix(weight: Tensor, bias: Tensor, panel: int) -> Packed:
    """Of a plain product, float32.

    Args:
        weight: [O, C], O a multiple of LANES.
    """
    outputs, channels = weight.shape
    panels = weight.view(outputs // panel, panel, channels).transpose(1, 2).contiguous()
    return Packed(panels, bias, channels, outputs, 1, narrow=False)


def chunk_sizes(taps: int) -> list[int]:
    """A filter in threes and pairs, as many threes as leave pairs; threes first."""
    threes = taps // 3
    while (taps - 3 * threes) % 2:
        threes -= 1
    return [3] * threes + [2] * ((taps - 3 * threes) // 2)


def lanes(channels: int) -> int:
    """Padded to whole LANES."""
    return -(-channels // LANES) * LANES
