"""What turns phonemes into one hidden state each."""

from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from serve_app.engine.network.albert import unfilled_embedding
from serve_app.engine.network.lstm import PaddedLSTM
from serve_app.engine.network.masked import Span


class TextEncoder(nn.Module):
    """Convolutions and an LSTM over the phonemes: what is to be said, without how."""

    def __init__(self, symbols: int, channels: int, kernel: int, depth: int) -> None:
        super().__init__()
        self.embedding = unfilled_embedding(symbols, channels)
        self.cnn = nn.ModuleList(
            nn.Sequential(nn.Conv1d(channels, channels, kernel, padding=kernel // 2), _ChannelNorm(channels))
            for _ in range(depth)
        )
        self.lstm = PaddedLSTM(channels, channels)

    def forward(self, tokens: Tensor, span: Span) -> Tensor:
        """[B, N] to [B, N, channels], zero beyond each item."""
        x = span.zero(self.embedding(tokens).transpose(1, 2).contiguous())  # the pad's embedding is not zero
        for layer in self.cnn:
            x = span.zero(F.leaky_relu_(layer(x), 0.2))
        return cast(Tensor, self.lstm(x.transpose(1, 2), span))


class _ChannelNorm(nn.Module):
    """Layer norm over the channels of [B, C, N]."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.gamma = nn.Parameter(torch.ones(channels))
        self.beta = nn.Parameter(torch.zeros(channels))

    def forward(self, x: Tensor) -> Tensor:
        normed = F.layer_norm(x.transpose(1, 2), self.gamma.shape, self.gamma, self.beta)
        return normed.transpose(1, 2).contiguous()


class DurationEncoder(nn.Module):
    """LSTMs over ALBERT's states, each told the style again: how it is to be said."""

    def __init__(self, style: int, channels: int, depth: int) -> None:
        super().__init__()
        self.lstms = nn.ModuleList()
        for _ in range(depth):
            self.lstms.append(PaddedLSTM(channels + style, channels))
            self.lstms.append(_StyledLayerNorm(style, channels))

    def forward(self, x: Tensor, style: Tensor, span: Span) -> Tensor:
        """[B, N, channels] to [B, N, channels + style], zero beyond each item."""
        x = _with_style(x, style, span)
        for lstm, norm in zip(self.lstms[::2], self.lstms[1::2], strict=True):
            x = _with_style(norm(lstm(x, span), style), style, span)
        return x


def _with_style(x: Tensor, style: Tensor, span: Span) -> Tensor:
    """Append the style to every position of the item; neither it nor the norm before it is zero in the padding."""
    return span.zero_rows(torch.cat([x, style[:, None].expand(-1, x.shape[1], -1)], dim=-1))


class _StyledLayerNorm(nn.Module):
    def __init__(self, style: int, channels: int) -> None:
        super().__init__()
        self.fc = nn.Linear(style, 2 * channels)
        self._channels = channels

    def forward(self, x: Tensor, style: Tensor) -> Tensor:
        gamma, beta = self.fc(style)[:, None].chunk(2, dim=-1)
        return torch.addcmul(beta, 1 + gamma, F.layer_norm(x, (self._channels,)))
