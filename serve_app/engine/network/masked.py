"""Items of different lengths in one batch, each as if alone: the rule of this package.

Every level of the network has its own time resolution, and with it a `Span`: how many of the positions are each item's
own. The rule is that **a tensor that enters a convolution, a norm or a sum is zero beyond its item's span**. For an
item alone, the zeros beyond its end are the convolution's own zero padding; so an item in a wider batch meets the same
numbers. What makes a tensor restores the rule (biases, shifts and the tails of convolutions break it), by `zero`.
The places where padding could leak, and how each is closed, are a table in docs/engine.md.
"""

import torch
from torch import Tensor


class Span:
    """The valid part of each item at one time resolution.

    Args:
        lengths: int64 [B], each 1..size; 0 would divide by zero in the statistics.
        size: positions of the padded batch.
        dtype: of the tensors that it is used on.

    Attributes:
        mask: [B, 1, size], 1 within the item and 0 beyond it.
        count: [B, 1, 1], the lengths.
    """

    def __init__(self, lengths: Tensor, size: int, dtype: torch.dtype) -> None:
        self.lengths = lengths
        self.mask = (torch.arange(size, device=lengths.device) < lengths[:, None]).to(dtype)[:, None]
        self.count = lengths.to(dtype)[:, None, None]

    @property
    def rows(self) -> Tensor:
        """The mask for tensors that hold time before channels, [B, size, 1]."""
        return self.mask.transpose(1, 2)

    def zero(self, x: Tensor) -> Tensor:
        """Set `x` [B, C, size] to zero beyond each item, in place; returns `x`."""
        return x.mul_(self.mask)

    def zero_rows(self, x: Tensor) -> Tensor:
        """Set `x` [B, size, C] to zero beyond each item, in place; returns `x`."""
        return x.mul_(self.rows)

    def normalized(self, x: Tensor, eps: float) -> tuple[Tensor, Tensor]:
        """Centre each channel of each item over its own positions.

        Args:
            x: [B, C, size], zero beyond each item.
        Returns:
            x - mean, [B, C, size], zero beyond each item and free to be written to; and 1 / standard deviation,
            [B, C, 1].
        """
        mean = x.sum(-1, keepdim=True) / self.count
        centred = self.zero(x - mean)  # else each padded position would add its mean**2 to the variance
        # A norm instead of a mean of squares: one pass over the tensor, without another of its size.
        variance = torch.linalg.vector_norm(centred, dim=-1, keepdim=True).square() / self.count
        return centred, torch.rsqrt(variance + eps)
