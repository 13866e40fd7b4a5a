"""Durations of the phonemes, and the curves of pitch and energy over the frames. Always float32, see docs/engine.md."""

import torch
from torch import Tensor, nn

from serve_app.engine.network.blocks import StyledBlock, Styles, norms_of
from serve_app.engine.network.lstm import PaddedLSTM
from serve_app.engine.network.masked import Span
from serve_app.engine.network.text import DurationEncoder


class Predictor(nn.Module):
    """StyleTTS 2's prosody predictor."""

    def __init__(self, style: int, channels: int, depth: int, max_duration: int) -> None:
        super().__init__()
        self.text_encoder = DurationEncoder(style, channels, depth)
        self.lstm = PaddedLSTM(channels + style, channels)
        self.duration_proj = _Projection(channels, max_duration)
        self.shared = PaddedLSTM(channels + style, channels)
        self.F0, self.N = (
            nn.ModuleList(
                (
                    StyledBlock(channels, channels, style),
                    StyledBlock(channels, channels // 2, style, upsample=True),
                    StyledBlock(channels // 2, channels // 2, style),
                )
            )
            for _ in range(2)
        )
        self.F0_proj, self.N_proj = (nn.Conv1d(channels // 2, 1, 1) for _ in range(2))

    def finish(self) -> None:
        self.styles = Styles(norms_of(self))

    def durations(self, x: Tensor, style: Tensor, speed: Tensor, span: Span) -> tuple[Tensor, Tensor]:
        """
        Args:
            x: ALBERT's states, [B, N, channels].
        Returns:
            hidden: [B, N, channels + style], zero beyond each item.
            durations: int64 [B, N], frames of each phoneme; 1 or more within the item and 0 beyond it.
        """
        hidden = self.text_encoder(x, style, span)
        logits = self.duration_proj.linear_layer(self.lstm(hidden, span))
        frames = torch.round(torch.sigmoid(logits).sum(-1) / speed[:, None]).clamp_(min=1)
        return hidden, frames.mul_(span.mask[:, 0]).long()  # after the clamp, which gives padding a frame

    def curves(self, hidden: Tensor, style: Tensor, frames: Tensor) -> tuple[Tensor, Tensor]:
        """
        Args:
            hidden: one row a frame, [B, F, channels + style], zero beyond each item.
        Returns:
            Pitch in Hz and energy, each [B, 2F], zero beyond each item.
        """
        size = hidden.shape[1]
        whole, halves = Span(frames, size, hidden.dtype), Span(2 * frames, 2 * size, hidden.dtype)
        shared = self.shared(hidden, whole).transpose(1, 2).contiguous()
        affines = self.styles(style)
        curves = []
        for blocks, project in ((self.F0, self.F0_proj), (self.N, self.N_proj)):
            x = blocks[0](shared, affines, whole, whole)
            x = blocks[1](x, affines, whole, halves)
            x = blocks[2](x, affines, halves, halves)
            curves.append(halves.zero(project(x))[:, 0])
        return curves[0], curves[1]


class _Projection(nn.Module):
    """A linear layer under the official code's name for it."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.linear_layer = nn.Linear(inputs, outputs)
