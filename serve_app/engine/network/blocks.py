"""What prosody, decoder and generator are built of: style-driven instance norms, and the residual block around two."""

from collections.abc import Iterable
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from serve_app.engine.network.activation import activated
from serve_app.engine.network.masked import Span

SQRT_HALF = 0.5**0.5


class AdaIN(nn.Module):
    """Adaptive instance norm (Huang & Belongie 2017) and its activation: statistics of the item's own positions, affine
    from its style.

    The affine of all the norms of a stage is one product with the style, see `Styles`; this norm reads its own part.
    """

    def __init__(self, style: int, channels: int) -> None:
        super().__init__()
        self.norm = nn.InstanceNorm1d(channels, affine=True)
        self.fc = nn.Linear(style, 2 * channels)
        self.channels = channels
        self.eps = self.norm.eps
        self.start = 0
        """Where this norm's scale begins among the stage's affines; its shift follows."""

    def affine(self, affines: Tensor) -> tuple[Tensor, Tensor]:
        """Scale and shift, each [B, C, 1], out of what `Styles` gave."""
        middle = self.start + self.channels
        scale, shift = affines[:, self.start : middle], affines[:, middle : middle + self.channels]
        return scale[:, :, None], shift[:, :, None]

    def forward(
        self, x: Tensor, affines: Tensor, span: Span, alpha: Tensor | None = None, dtype: torch.dtype | None = None
    ) -> Tensor:
        """[B, C, size] to the same shape, zero beyond each item before and after.

        Args:
            alpha: of the Snake that follows; None for a leaky ReLU.
            dtype: of the result; None for that of `x`.
        """
        return activated(x, *self.affine(affines), alpha, span, self.eps, dtype or x.dtype)


class Styles(nn.Module):
    """The affines of many AdaINs as one linear layer: [B, style] to [B, sum of 2 * channels].

    With instance norm's own affine (w, b) and fc's (gamma, beta), AdaIN is (1 + gamma) * (w * x + b) + beta; both are
    linear in the style, so the scale (1 + gamma) * w and the shift (1 + gamma) * b + beta are one product.
    """

    def __init__(self, norms: Iterable[AdaIN]) -> None:
        """
        Args:
            norms: with their loaded weights, which move here; each is told its place.
        """
        super().__init__()
        weights, biases, start = [], [], 0
        for norm in norms:
            gamma, beta = norm.fc.weight.chunk(2)
            gamma_bias, beta_bias = norm.fc.bias.chunk(2)
            w, b = norm.norm.weight, norm.norm.bias
            weights += [gamma * w[:, None], beta + gamma * b[:, None]]
            biases += [(1 + gamma_bias) * w, beta_bias + (1 + gamma_bias) * b]
            norm.start = start
            start += 2 * norm.channels
            del norm.fc, norm.norm
        self.register_buffer("weight", torch.cat(weights), persistent=False)
        self.register_buffer("bias", torch.cat(biases), persistent=False)

    def forward(self, style: Tensor) -> Tensor:
        return F.linear(style, cast(Tensor, self.weight), cast(Tensor, self.bias))


def norms_of(module: nn.Module) -> list[AdaIN]:
    """The AdaINs within, in a fixed order."""
    return [norm for norm in module.modules() if isinstance(norm, AdaIN)]


class StyledBlock(nn.Module):
    """StyleTTS 2's residual block (AdainResBlk1d): twice norm, leaky ReLU and convolution, beside a shortcut.

    Args:
        upsample: double the time resolution.
    """

    def __init__(self, inputs: int, outputs: int, style: int, upsample: bool = False) -> None:
        super().__init__()
        self.upsample = upsample
        if upsample:
            self.pool = nn.ConvTranspose1d(inputs, inputs, 3, stride=2, groups=inputs, padding=1, output_padding=1)
        self.conv1 = nn.Conv1d(inputs, outputs, 3, padding=1)
        self.conv2 = nn.Conv1d(outputs, outputs, 3, padding=1)
        self.norm1 = AdaIN(style, inputs)
        self.norm2 = AdaIN(style, outputs)
        self.conv1x1 = nn.Conv1d(inputs, outputs, 1, bias=False) if inputs != outputs else None

    def forward(self, x: Tensor, affines: Tensor, before: Span, after: Span) -> Tensor:
        """[B, inputs, size] to [B, outputs, size, or twice it]; zero beyond each item, before and after.

        Args:
            before: span of x.
            after: span of the result; the same without up-sampling.
        """
        narrow = self.conv1.weight.dtype
        h = self.norm1(x, affines, before, dtype=x.dtype if self.upsample else narrow)
        if self.upsample:
            h = after.zero(self.pool(h))  # the output padding and the bias reach beyond the item
            x = F.interpolate(x, scale_factor=2, mode="nearest")
        h = after.zero(convolved(self.conv1, h, x.dtype))
        h = convolved(self.conv2, self.norm2(h, affines, after, dtype=narrow), x.dtype)
        return after.zero(h.add_(x if self.conv1x1 is None else self.conv1x1(x)).mul_(SQRT_HALF))


def convolved(conv: nn.Conv1d, x: Tensor, dtype: torch.dtype) -> Tensor:
    """Convolve in the precision that the weights are kept in, and give the result in `dtype`.

    Norms, activations and residuals stay in float32: only the products may be narrower.
    """
    return cast(Tensor, conv(x.to(conv.weight.dtype))).to(dtype)
