"""StyleTTS 2's decoder: what is said, pitch and energy, to the features that the generator makes audible."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from serve_app.engine.network.blocks import StyledBlock, Styles, norms_of
from serve_app.engine.network.generator import Generator
from serve_app.engine.network.masked import Span

_INNER = 1024
_RESIDUAL = 64
_CURVES = 2


class Decoder(nn.Module):
    """
    Args:
        config: the `istftnet` section of config.json.
    """

    def __init__(self, config: Mapping[str, Any], channels: int, style: int) -> None:
        super().__init__()
        widened, outputs = _INNER + _CURVES + _RESIDUAL, config["upsample_initial_channel"]
        self.encode = StyledBlock(channels + _CURVES, _INNER, style)
        self.decode = nn.ModuleList(StyledBlock(widened, _INNER, style) for _ in range(3))
        self.decode.append(StyledBlock(widened, outputs, style, upsample=True))
        self.F0_conv, self.N_conv = (nn.Conv1d(1, 1, 3, stride=2, padding=1) for _ in range(2))
        self.asr_res = nn.Sequential(nn.Conv1d(channels, _RESIDUAL, 1))
        self.generator = Generator(config, style)

    def finish(self) -> None:
        self.styles = Styles([norm for blocks in (self.encode, self.decode) for norm in norms_of(blocks)])

    def forward(self, encoded: Tensor, f0: Tensor, energy: Tensor, style: Tensor, frames: Tensor) -> Tensor:
        """The stage `decode`, see `serve_app.engine.network.stages`."""
        size = encoded.shape[2]
        whole, halves = Span(frames, size, encoded.dtype), Span(2 * frames, 2 * size, encoded.dtype)
        affines = self.styles(style)
        # Their biases, and taps that reach over an item's end, write into the padding.
        curves = [whole.zero(self.F0_conv(f0[:, None])), whole.zero(self.N_conv(energy[:, None]))]
        residual = whole.zero(self.asr_res(encoded))
        x: Tensor = self.encode(torch.cat([encoded, *curves], dim=1), affines, whole, whole)
        for block in self.decode:
            wide = torch.cat([x, residual, *curves], dim=1)
            x = block(wide, affines, whole, halves if block.upsample else whole)
        return x
