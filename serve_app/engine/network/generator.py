"""The vocoder (iSTFTNet, Kaneko et al. 2022, with a harmonic source): features, pitch and noise to audio."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from serve_app.engine.network.blocks import AdaIN, Styles, convolved, norms_of
from serve_app.engine.network.masked import Span
from serve_app.engine.network.source import Source
from serve_app.engine.network.spectrum import Spectrum


class Generator(nn.Module):
    """Each stage multiplies the time resolution, adds the source at that resolution, and averages three blocks.

    Args:
        config: the `istftnet` section of config.json.
    """

    def __init__(self, config: Mapping[str, Any], style: int) -> None:
        super().__init__()
        size, hop = config["gen_istft_n_fft"], config["gen_istft_hop_size"]
        rates, channels = config["upsample_rates"], config["upsample_initial_channel"]
        self.m_source = Source(math.prod(rates) * hop)
        self.noise_convs, self.noise_res, self.ups, self.resblocks = (nn.ModuleList() for _ in range(4))
        for stage, (rate, kernel) in enumerate(zip(rates, config["upsample_kernel_sizes"], strict=True)):
            self.ups.append(
                nn.ConvTranspose1d(channels, channels // 2, kernel, stride=rate, padding=(kernel - rate) // 2)
            )
            channels //= 2
            if below := math.prod(rates[stage + 1 :]) if stage + 1 < len(rates) else 0:
                self.noise_convs.append(
                    nn.Conv1d(size + 2, channels, 2 * below, stride=below, padding=(below + 1) // 2)
                )
                self.noise_res.append(SnakeBlock(channels, 7, (1, 3, 5), style))
            else:
                self.noise_convs.append(nn.Conv1d(size + 2, channels, 1))
                self.noise_res.append(SnakeBlock(channels, 11, (1, 3, 5), style))
            for width, dilations in zip(
                config["resblock_kernel_sizes"], config["resblock_dilation_sizes"], strict=True
            ):
                self.resblocks.append(SnakeBlock(channels, width, dilations, style))
        self.conv_post = nn.Conv1d(channels, size + 2, 7, padding=3)
        self.spectrum = Spectrum(size, hop)
        self._rates: Sequence[int] = rates
        self._hop: int = hop

    def finish(self) -> None:
        self.styles = Styles(norms_of(self))

    def forward(self, x: Tensor, f0: Tensor, style: Tensor, frames: Tensor, seeds: Tensor) -> Tensor:
        """See `serve_app.engine.network.stages`."""
        steps, size = 2 * frames, x.shape[2]
        total = math.prod(self._rates)
        fine = Span(total * steps + 1, total * size + 1, x.dtype)  # the transform has a frame at both ends
        harmonics = fine.zero(self.spectrum(self.m_source(f0, seeds), total * self._hop * steps))
        affines = self.styles(style)
        rate, blocks = 1, len(self.resblocks) // len(self.ups)
        for stage, up in enumerate(self.ups):
            rate *= self._rates[stage]
            last = stage + 1 == len(self.ups)
            span = fine if last else Span(rate * steps, rate * size, x.dtype)
            source = span.zero(self.noise_convs[stage](harmonics))
            source = self.noise_res[stage](source, affines, span)
            x = up(F.leaky_relu(x, 0.1))
            if last:
                x = F.pad(x, (1, 0), mode="reflect")  # to the left alone, where all items begin
            x = span.zero(x.add_(source))
            branches = [block(x, affines, span) for block in self.resblocks[stage * blocks : (stage + 1) * blocks]]
            x = branches[0]
            for branch in branches[1:]:
                x.add_(branch)
            x.div_(blocks)
        x = self.conv_post(F.leaky_relu_(x, 0.01))
        bins = self.spectrum.bins
        return self.spectrum.inverse(torch.exp(x[:, :bins]), torch.sin(x[:, bins:]), fine)


class SnakeBlock(nn.Module):
    """HiFi-GAN's residual block with AdaIN and Snake (Ziyin et al. 2020), AdaINResBlock1 in the official code."""

    def __init__(self, channels: int, kernel: int, dilations: Sequence[int], style: int) -> None:
        super().__init__()

        def convs(widths: Sequence[int]) -> nn.ModuleList:
            return nn.ModuleList(
                nn.Conv1d(channels, channels, kernel, dilation=width, padding=(kernel - 1) * width // 2)
                for width in widths
            )

        def alphas() -> nn.ParameterList:
            return nn.ParameterList(nn.Parameter(torch.ones(1, channels, 1)) for _ in dilations)

        self.convs1, self.convs2 = convs(dilations), convs([1] * len(dilations))
        self.adain1, self.adain2 = (nn.ModuleList(AdaIN(style, channels) for _ in dilations) for _ in range(2))
        self.alpha1, self.alpha2 = alphas(), alphas()

    def forward(self, x: Tensor, affines: Tensor, span: Span) -> Tensor:
        """[B, C, size] to the same, zero beyond each item before and after; `x` itself is left as it is."""
        for first, second, norm1, norm2, alpha1, alpha2 in zip(
            self.convs1, self.convs2, self.adain1, self.adain2, self.alpha1, self.alpha2, strict=True
        ):
            narrow = first.weight.dtype
            h = norm1(x, affines, span, alpha1, narrow)
            h = span.zero(convolved(first, h, x.dtype))
            h = norm2(h, affines, span, alpha2, narrow)
            x = span.zero(convolved(second, h, x.dtype)).add_(x)
        return x
