"""Gaussian noise that belongs to a position, not to a moment: a function of (seed, harmonic, sample) and nothing else.

Philox 4x32-10 (Salmon, Moraes, Dror, Shaw 2011), a counter-based generator: an item's noise is the same beside whatever
neighbours, in whatever padding, on whichever machine. Its 64-bit integers are the same on every device; the float64
arithmetic behind them differs in last bits that float32 rounds away, but for about one number in a hundred million.
"""

import math

import torch
from torch import Tensor

_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_WEYL = (0x9E3779B9, 0xBB67AE85)
_ROUNDS = 10
_LOW = 0xFFFFFFFF


def philox(counter: tuple[Tensor, Tensor, Tensor, Tensor], key: tuple[Tensor, Tensor]) -> tuple[Tensor, ...]:
    """Four random 32-bit words for each counter.

    Args:
        counter, key: int64 tensors of values below 2**32, of shapes that broadcast.
    """
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(_ROUNDS):
        # Wraps around past 2**63, as C's unsigned product does: the same 64 bits.
        p0, p1 = c0 * _MULTIPLIERS[0], c2 * _MULTIPLIERS[1]
        c0, c1, c2, c3 = _high(p1) ^ c1 ^ k0, p1 & _LOW, _high(p0) ^ c3 ^ k1, p0 & _LOW
        k0, k1 = (k0 + _WEYL[0]) & _LOW, (k1 + _WEYL[1]) & _LOW
    return c0, c1, c2, c3


def _high(product: Tensor) -> Tensor:
    return (product >> 32) & _LOW


def gaussian(seeds: Tensor, channels: int, samples: int) -> Tensor:
    """Standard normal float32 [B, channels, samples].

    Args:
        seeds: int64 [B], one for each item.
        samples: a multiple of 4.
    """
    blocks = torch.arange(samples // 4, device=seeds.device)
    channel = torch.arange(channels, device=seeds.device)[:, None]
    zero = torch.zeros_like(blocks)
    keys = seeds[:, None, None]
    words = philox((blocks, channel, zero, zero), (keys & _LOW, _high(keys)))
    pairs = []
    for radius, angle in (words[:2], words[2:]):  # Box & Muller 1958; + 0.5 keeps the logarithm finite
        r = torch.sqrt(-2 * torch.log((radius.double() + 0.5) * 2.0**-32))
        phi = angle.double() * (2 * math.pi * 2.0**-32)
        pairs += [(r * torch.cos(phi)).float(), (r * torch.sin(phi)).float()]
    return torch.stack(pairs, dim=-1).flatten(-2)
