"""`activated` as a Triton kernel: a program for each channel of each item."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from serve_app.engine.network.activation import LEAK
from serve_app.engine.network.masked import Span

_BLOCK = 2048


def activated_in_one(
    x: Tensor, scale: Tensor, shift: Tensor, alpha: Tensor | None, span: Span, epsilon: float, dtype: torch.dtype
) -> Tensor:
    """See `serve_app.engine.network.activation.activated`."""
    x = x.contiguous()
    batch, channels, size = x.shape
    y = torch.empty(x.shape, dtype=dtype, device=x.device)
    _activate[(batch * channels,)](
        x,
        y,
        scale.contiguous(),
        shift.contiguous(),
        x if alpha is None else alpha,  # not read without Snake, but a pointer it must be
        span.lengths,
        channels,
        size,
        epsilon,
        SNAKE=alpha is not None,
        LEAK=LEAK,
        BLOCK=_BLOCK,
    )
    return y


@triton.jit  # type: ignore[untyped-decorator]
def _activate(  # type: ignore[no-untyped-def]
    x,
    y,
    scale,
    shift,
    alpha,
    lengths,
    channels,
    size,
    epsilon,
    SNAKE: tl.constexpr,
    LEAK: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0)
    length = tl.load(lengths + row // channels).to(tl.int32)
    first = row.to(tl.int64) * size
    total = tl.zeros([BLOCK], dtype=tl.float32)
    for start in range(0, length, BLOCK):
        at = start + tl.arange(0, BLOCK)
        total += tl.load(x + first + at, mask=at < length, other=0.0)
    mean = tl.sum(total) / length
    # A second reading instead of a sum of squares in the first: their difference would lose a small variance beside a
    # large mean.
    squares = tl.zeros([BLOCK], dtype=tl.float32)
    for start in range(0, length, BLOCK):
        at = start + tl.arange(0, BLOCK)
        centred = tl.where(at < length, tl.load(x + first + at, mask=at < length, other=0.0) - mean, 0.0)
        squares += centred * centred
    factor = tl.load(scale + row) / tl.sqrt(tl.sum(squares) / length + epsilon)
    offset = tl.load(shift + row)
    if SNAKE:
        a = tl.load(alpha + row % channels)
    for start in range(0, size, BLOCK):
        at = start + tl.arange(0, BLOCK)
        h = (tl.load(x + first + at, mask=at < length, other=0.0) - mean) * factor + offset
        if SNAKE:
            sine = tl.sin(a * h)
            h += sine * sine / a
        else:
            h = tl.where(h > 0, h, LEAK * h)
        tl.store(y + first + at, tl.where(at < length, h, 0.0).to(y.dtype.element_ty), mask=at < size)
