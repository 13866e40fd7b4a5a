"""Decode and generate on a CPU by the native kernels: the same network, time before channels, one item at a time.

`serve_app.engine.network` says what is computed; this says in which order and where it is kept. Of a tensor between
two convolutions there is one copy, in float32. A convolution reads it, norms and activates it on the way, adds the
residual, and sums what the next norm must know; so each of the network's 70 norms costs no pass over memory.
"""

import logging
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from serve_app.engine.cpu.build import supported_targets
from serve_app.engine.cpu.library import Kernels, Norm, load_kernels
from serve_app.engine.cpu.linear import replace_linears
from serve_app.engine.cpu.packing import Packed, lanes, packed, packed_matrix
from serve_app.engine.network.activation import LEAK
from serve_app.engine.network.blocks import SQRT_HALF, AdaIN, StyledBlock, Styles
from serve_app.engine.network.decoder import Decoder
from serve_app.engine.network.generator import Generator, SnakeBlock
from serve_app.engine.network.masked import Span
from serve_app.engine.network.stages import DECODER_STYLE, Kokoro, Vocoder

log = logging.getLogger(__name__)

_KEPT_BYTES = 256 << 20
"""Buffers up to this size (25 s of audio) are kept for the next item; larger ones are given back."""
_UPS_SLOPE, _POST_SLOPE = 0.1, 0.01


def cpu_vocoder(network: Kokoro) -> Vocoder | None:
    """The fastest decode and generate that this processor has; None where the network's own is all there is.

    The network's convolutions of these stages move into it, in another order: afterwards `network.vocode` is gone. The
    matrix products of its text stage are replaced, too; they stay float32.
    """
    for target in supported_targets()[:1]:
        if kernels := load_kernels(target):
            vocoder = NativeVocoder(network, kernels, target.narrow)
            del network.decoder
            replace_linears(network.bert, kernels)
            log.info("speech is computed by the native kernels for %s", target.name)
            return vocoder
    return None


class NativeVocoder:
    """A `Vocoder`. Not thread-safe.

    Args:
        network: on the CPU, in float32.
        narrow: the residual blocks' convolutions multiply bfloat16, as `Kokoro.narrow` says; their sums are float32.
    """

    def __init__(self, network: Kokoro, kernels: Kernels, narrow: bool) -> None:
        self._decode = _Decode(network.decoder, kernels, narrow)
        self._generate = _Generate(network.decoder.generator, kernels, narrow)

    def __call__(
        self, encoded: Tensor, f0: Tensor, energy: Tensor, style: Tensor, frames: Tensor, seeds: Tensor
    ) -> Tensor:
        """See `Vocoder`. Each item is computed alone, in its own length; beyond it the audio is zero."""
        lengths = frames.tolist()
        spoken = []
        for item, length in enumerate(lengths):
            one, steps = slice(item, item + 1), 2 * length
            own_style = style[one, DECODER_STYLE]
            x = self._decode(encoded[one, :, :length], f0[one, :steps], energy[one, :steps], own_style)
            spoken.append(self._generate(x, f0[one, :steps], own_style, frames[one], seeds[one]))
        if len(spoken) == 1 and lengths[0] == encoded.shape[2]:
            return spoken[0]
        hop = spoken[0].shape[1] // lengths[0]
        return torch.cat([F.pad(audio, (0, encoded.shape[2] * hop - audio.shape[1])) for audio in spoken])


class _Buffers:
    """Memory that outlives a pass, by name."""

    def __init__(self) -> None:
        self._kept: dict[str, Tensor] = {}

    def rows(self, name: str, rows: int, channels: int) -> Tensor:
        """[rows, channels] of whatever was there."""
        size = rows * channels
        if name not in self._kept or len(self._kept[name]) < size:
            self._kept[name] = torch.empty(size)
        return self._kept[name][:size].view(rows, channels)

    def trim(self) -> None:
        if sum(4 * len(buffer) for buffer in self._kept.values()) > _KEPT_BYTES:
            self._kept.clear()


class _Affines:
    """`Styles`, each norm's scale and shift padded to whole lanes."""

    def __init__(self, styles: Styles, norms: Sequence[AdaIN], kernels: Kernels) -> None:
        weight, bias = styles.get_buffer("weight"), styles.get_buffer("bias")
        rows: list[int] = []
        self._starts: dict[AdaIN, int] = {}
        for norm in norms:
            self._starts[norm] = len(rows)
            for start in (norm.start, norm.start + norm.channels):
                rows += range(start, start + norm.channels)
                rows += [-1] * (lanes(norm.channels) - norm.channels)
        index = torch.tensor(rows)
        used = index >= 0
        self._kernels = kernels
        self._weights = packed_matrix(weight[index] * used[:, None], bias[index] * used, kernels.panel)

    def of(self, style: Tensor) -> "_Styled":
        affines = torch.empty(1, self._weights.outputs)
        self._kernels.multiply(style, self._weights, affines)
        return _Styled(affines[0], self._starts)


class _Styled:
    """The affines of one style."""

    def __init__(self, affines: Tensor, starts: dict[AdaIN, int]) -> None:
        self._affines, self._starts = affines, starts

    def norm(self, norm: AdaIN, sums: Tensor) -> Norm:
        start, size = self._starts[norm], lanes(norm.channels)
        scale, shift = self._affines[start : start + size], self._affines[start + size : start + 2 * size]
        return Norm(sums, scale, shift, norm.eps)


def _sums(channels: int) -> Tensor:
    return torch.empty(2, channels, dtype=torch.float64)


class _Block:
    """A `StyledBlock`."""

    def __init__(self, block: StyledBlock, kernels: Kernels, narrow: bool) -> None:
        self._kernels = kernels
        self._conv1 = packed(block.conv1.weight, block.conv1.bias, kernels.panel, narrow)
        self._conv2 = packed(block.conv2.weight, block.conv2.bias, kernels.panel, narrow)
        self.norm1, self.norm2 = block.norm1, block.norm2
        self._shortcut: Packed | None = None
        if block.conv1x1 is not None:
            weight = block.conv1x1.weight[:, :, 0]
            self._shortcut = packed_matrix(weight, torch.zeros(len(weight)), kernels.panel)
        self._pool: tuple[Tensor, Tensor] | None = None
        if block.upsample:
            assert block.pool.bias is not None
            self._pool = block.pool.weight[:, 0], block.pool.bias

    def __call__(self, x: Tensor, styled: _Styled, out: Tensor, buffers: _Buffers) -> None:
        """x: [rows, lanes(inputs)], zero in what pads the channels, to out: [rows, or twice as many, outputs]."""
        sums = _sums(x.shape[1])
        self._kernels.add_and_sum(x, None, sums)
        norm = styled.norm(self.norm1, sums)
        inner = buffers.rows("styled inner", out.shape[0], self._conv1.outputs)
        added = x
        if self._shortcut is not None:
            added = buffers.rows("shortcut", len(x), self._shortcut.outputs)
            self._kernels.multiply(x[:, : self._shortcut.channels], self._shortcut, added)
        inner_sums = _sums(inner.shape[1])
        if self._pool is None:
            self._kernels.convolve(x, self._conv1, inner, norm=norm, slope=LEAK, sums=inner_sums)
        else:
            self._kernels.convolve(self._pooled(x, norm), self._conv1, inner, sums=inner_sums)
            added = added.repeat_interleave(2, dim=0)
        self._kernels.convolve(
            inner,
            self._conv2,
            out,
            norm=styled.norm(self.norm2, inner_sums),
            slope=LEAK,
            addends=(added,),
            gain=SQRT_HALF,
        )

    def _pooled(self, x: Tensor, norm: Norm) -> Tensor:
        """Norm, activation and the depthwise transposed convolution that doubles the rows."""
        assert self._pool is not None
        weight, bias = self._pool
        channels = len(bias)
        x = x[:, :channels]
        mean = (norm.sums[0, :channels] / len(x)).float()
        centred = x - mean
        factor = torch.rsqrt(centred.square().mean(0) + norm.epsilon) * norm.scale[:channels]
        x = F.leaky_relu(torch.addcmul(norm.shift[:channels], centred, factor), LEAK)
        pooled = torch.zeros(2 * len(x), lanes(channels))
        pooled[0::2, :channels] = torch.addcmul(bias, x, weight[:, 1])
        pooled[1::2, :channels] = torch.addcmul(bias, x, weight[:, 2])
        pooled[1:-1:2, :channels] += x[1:] * weight[:, 0]
        return pooled


class _Decode:
    """A `Decoder` without its generator."""

    def __init__(self, decoder: Decoder, kernels: Kernels, narrow: bool) -> None:
        parts: Any = decoder  # nn.ModuleList and nn.Sequential give their items no type
        blocks: list[StyledBlock] = [parts.encode, *parts.decode]
        self._blocks = [_Block(block, kernels, narrow) for block in blocks]
        self._affines = _Affines(
            decoder.styles, [norm for block in blocks for norm in (block.norm1, block.norm2)], kernels
        )
        self._curves = decoder.F0_conv, decoder.N_conv
        residual: Any = parts.asr_res[0]
        self._kernels = kernels
        self._residual = packed_matrix(residual.weight[:, :, 0], residual.bias, kernels.panel)
        self._inner, self._outputs = blocks[0].conv2.out_channels, blocks[-1].conv2.out_channels
        self._wide = blocks[1].conv1.in_channels
        self._buffers = _Buffers()

    def __call__(self, encoded: Tensor, f0: Tensor, energy: Tensor, style: Tensor) -> Tensor:
        """One item: encoded [1, C, F], curves [1, 2F], to features [2F, outputs]."""
        channels, frames = encoded.shape[1:]
        states = encoded[0].t().contiguous()
        curves = [conv(curve[:, None])[0, 0] for conv, curve in zip(self._curves, (f0, energy), strict=True)]
        styled = self._affines.of(style)
        x = torch.zeros(frames, lanes(channels + len(curves)))
        wide = torch.zeros(frames, lanes(self._wide))
        x[:, :channels] = states
        self._kernels.multiply(states, self._residual, wide[:, self._inner : self._wide - len(curves)])
        for number, curve in enumerate(curves):
            x[:, channels + number] = curve
            wide[:, self._wide - len(curves) + number] = curve
        features = torch.empty(2 * frames, self._outputs)
        self._blocks[0](x, styled, wide[:, : self._inner], self._buffers)
        for block in self._blocks[1:-1]:
            block(wide, styled, wide[:, : self._inner], self._buffers)
        self._blocks[-1](wide, styled, features, self._buffers)
        self._buffers.trim()
        return features


class _Snakes:
    """A `SnakeBlock`."""

    def __init__(self, block: SnakeBlock, kernels: Kernels, narrow: bool) -> None:
        parts: Any = block

        def pack(convs: Iterable[torch.nn.Conv1d]) -> list[Packed]:
            return [packed(conv.weight, conv.bias, kernels.panel, narrow) for conv in convs]

        self._kernels = kernels
        self._pairs: list[tuple[Packed, Packed, int, AdaIN, AdaIN, Tensor, Tensor]] = list(
            zip(
                pack(parts.convs1),
                pack(parts.convs2),
                [conv.dilation[0] for conv in parts.convs1],
                parts.adain1,
                parts.adain2,
                [alpha.flatten() for alpha in parts.alpha1],
                [alpha.flatten() for alpha in parts.alpha2],
                strict=True,
            )
        )

    def __call__(
        self, x: Tensor, sums: Tensor, styled: _Styled, inner: Tensor, kept: Tensor, out: Tensor, add: bool = False
    ) -> None:
        """
        Args:
            x, sums: [rows, C] and its sums over time.
            inner, kept: scratch like x; `kept` may be x itself, which is then overwritten.
            out: like x, may be `kept`; is given the result, or with `add` it is added.
        """
        inner_sums, kept_sums = torch.empty_like(sums), torch.empty_like(sums)
        for number, (conv1, conv2, dilation, norm1, norm2, alpha1, alpha2) in enumerate(self._pairs):
            last = number + 1 == len(self._pairs)
            self._kernels.convolve(
                x, conv1, inner, norm=styled.norm(norm1, sums), alpha=alpha1, dilation=dilation, sums=inner_sums
            )
            self._kernels.convolve(
                inner,
                conv2,
                out if last else kept,
                norm=styled.norm(norm2, inner_sums),
                alpha=alpha2,
                addends=(x, out) if last and add else (x,),
                sums=None if last else kept_sums,
            )
            x, sums = kept, kept_sums


class _Generate:
    """A `Generator`."""

    def __init__(self, generator: Generator, kernels: Kernels, narrow: bool) -> None:
        parts: Any = generator
        self._kernels = kernels
        self._source, self._spectrum = generator.m_source, generator.spectrum
        self._sources = [_Downsample(conv, kernels) for conv in parts.noise_convs]
        self._source_blocks = [_Snakes(block, kernels, narrow) for block in parts.noise_res]
        self._ups = [_Upsample(up, kernels) for up in parts.ups]
        blocks = [_Snakes(block, kernels, narrow) for block in parts.resblocks]
        each = len(blocks) // len(self._ups)
        self._blocks = [blocks[start : start + each] for start in range(0, len(blocks), each)]
        norms = [module for module in generator.modules() if isinstance(module, AdaIN)]
        self._affines = _Affines(generator.styles, norms, kernels)
        self._post = packed(generator.conv_post.weight, generator.conv_post.bias, kernels.panel, narrow=False)
        self._buffers = _Buffers()

    def __call__(self, x: Tensor, f0: Tensor, style: Tensor, frames: Tensor, seeds: Tensor) -> Tensor:
        """One item: features [2F, C], pitch [1, 2F], to audio [1, samples]."""
        excitation = self._source(f0, seeds)
        harmonics = self._spectrum(excitation, torch.tensor([excitation.shape[1]]))[0]
        styled = self._affines.of(style)
        gain = 1.0
        for number, up in enumerate(self._ups):
            last = number + 1 == len(self._ups)
            rows = len(x) * up.rate + last  # the transform has a frame at both ends
            mixed, inner, kept, out = (
                self._buffers.rows(name, rows, up.channels) for name in ("mixed", "inner", "kept", "out")
            )
            sums = _sums(up.channels)
            self._sources[number](harmonics, mixed)
            self._kernels.add_and_sum(mixed, None, sums)
            self._source_blocks[number](mixed, sums, styled, inner, mixed, mixed)
            raised = up(x, gain, last, self._kernels, self._buffers)
            self._kernels.add_and_sum(mixed, raised, sums)
            for branch, block in enumerate(self._blocks[number]):
                block(mixed, sums, styled, inner, kept, out, add=branch > 0)
            x, gain = out, 1 / len(self._blocks[number])  # the branches' mean, taken by what reads it
        parts = self._buffers.rows("inner", len(x), self._post.outputs)
        self._kernels.convolve(x, self._post, parts, in_gain=gain, slope=_POST_SLOPE)
        bins = self._spectrum.bins
        magnitude, phase = parts[:, :bins].t()[None].exp(), parts[:, bins : 2 * bins].t()[None].sin()
        audio = self._spectrum.inverse(magnitude, phase, Span(torch.tensor([len(x)]), len(x), torch.float32))
        self._buffers.trim()
        return audio


class _Downsample:
    """The convolution that brings the source to a stage's resolution, as one matrix product."""

    def __init__(self, conv: torch.nn.Conv1d, kernels: Kernels) -> None:
        assert conv.bias is not None
        self._kernels = kernels
        self._weights = packed_matrix(conv.weight.flatten(1), conv.bias, kernels.panel)
        self._taps, self._stride, self._padding = conv.kernel_size[0], conv.stride[0], int(conv.padding[0])

    def __call__(self, harmonics: Tensor, out: Tensor) -> None:
        """[C, n] to [rows, outputs]."""
        rows = harmonics.t()
        if self._taps > 1:
            windows = F.pad(harmonics, (self._padding, self._padding)).unfold(1, self._taps, self._stride)
            rows = windows.transpose(0, 1).flatten(1)
        self._kernels.multiply(rows.contiguous(), self._weights, out)


class _Upsample:
    """A transposed convolution whose kernel is twice its stride: each row of the input, and the one before it, give
    `rate` rows of the output; so a convolution of two taps."""

    def __init__(self, up: torch.nn.ConvTranspose1d, kernels: Kernels) -> None:
        self.rate, self.channels, taps = up.stride[0], up.out_channels, up.kernel_size[0]
        if taps != 2 * self.rate:
            raise ValueError("only transposed convolutions with kernels of twice the stride are known here")
        self._padding = int(up.padding[0])
        halves = up.weight.view(up.in_channels, self.channels, 2, self.rate)  # [C, O, (this, before), rate]
        weight = halves.permute(3, 1, 0, 2).flip(3).reshape(self.rate * self.channels, up.in_channels, 2)
        assert up.bias is not None
        self._weights = packed(weight, up.bias.repeat(self.rate), kernels.panel, narrow=False)

    def __call__(self, x: Tensor, gain: float, reflect: bool, kernels: Kernels, buffers: _Buffers) -> Tensor:
        """[n, C] to [n * rate, channels], with `reflect` one row more before them, the second of them."""
        out = buffers.rows("inner", (len(x) + 1) * self.rate, self.channels)
        by_input = out.view(len(x) + 1, -1)
        kernels.convolve(x, self._weights, by_input, left=1, in_gain=gain, slope=_UPS_SLOPE)
        first = self._padding
        end = first + len(x) * self.rate
        if reflect:
            out[first - 1] = out[first + 1]
            first -= 1
        return out[first:end]
