"""Bidirectional LSTMs over items of different lengths, without packing, sorting or lengths on the host."""

import torch
from torch import Tensor, nn

from serve_app.engine.network.masked import Span

_CLOSED = -1e4
"""Added to an input gate: its sigmoid is exactly 0, in float32 and in float64."""


class PaddedLSTM(nn.LSTM):
    """One layer, both directions, channels halved between them.

    The backward direction walks over an item's padding before it meets the item. A padding flag, one more input
    column, closes the input gate there: with i = 0 and c = 0, c = f * c + i * g stays exactly 0 and h = o * tanh(c)
    too, so the item begins with the state that it has when it is alone.
    """

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(inputs, outputs // 2, batch_first=True, bidirectional=True)

    def finish(self) -> None:
        """Add the flag's column to the loaded weights; once."""
        column = torch.zeros(4 * self.hidden_size, 1, dtype=torch.float32)
        column[: self.hidden_size] = _CLOSED  # torch's order of the gates: i, f, g, o
        for name in ("weight_ih_l0", "weight_ih_l0_reverse"):
            widened = torch.cat([getattr(self, name).detach(), column], dim=1)
            setattr(self, name, nn.Parameter(widened, requires_grad=False))
        self.input_size += 1

    def forward(self, x: Tensor, span: Span) -> Tensor:  # type: ignore[override]
        """[B, size, inputs] to [B, size, outputs], zero beyond each item."""
        flagged = torch.cat([x, (1 - span.rows).expand(x.shape[0], -1, -1)], dim=-1)
        return span.zero_rows(super().forward(flagged)[0])
