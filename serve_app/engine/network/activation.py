"""Adaptive instance norm, the activation behind it and the mask, which always come together: 70 times a pass.

Written plainly they read and write a tensor some ten times. On a GPU that is bound by memory, so there they are one
Triton kernel, which reads it three times, twice of them out of the cache, and writes it once.
"""

import functools
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from serve_app.engine.network.masked import Span

LEAK = 0.2
"""Slope of the leaky ReLU, where there is no Snake."""


def activated(
    x: Tensor, scale: Tensor, shift: Tensor, alpha: Tensor | None, span: Span, epsilon: float, dtype: torch.dtype
) -> Tensor:
    """Normalise each item's channels over its own positions, scale and shift them, activate, and zero the padding.

    Args:
        x: [B, C, size], zero beyond each item; left as it is.
        scale, shift: [B, C, 1].
        alpha: of Snake, h + sin(alpha * h)**2 / alpha (Ziyin et al. 2020), [1, C, 1]; None for a leaky ReLU.
        dtype: of the result, [B, C, size].
    """
    if x.is_cuda:
        return fused()(x, scale, shift, alpha, span, epsilon, dtype)
    centred, inverse_deviation = span.normalized(x, epsilon)
    h = centred.mul_(scale * inverse_deviation).add_(shift)
    h = F.leaky_relu_(h, LEAK) if alpha is None else h.addcmul_((alpha * h).sin_().square_(), 1 / alpha)
    return span.zero(h).to(dtype)


@functools.cache
def fused() -> Callable[..., Tensor]:
    """`activated` as one kernel, compiled at its first run. Not imported where there is no GPU."""
    from serve_app.engine.network.kernels import activated_in_one

    return activated_in_one
