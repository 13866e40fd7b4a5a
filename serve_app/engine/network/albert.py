"""ALBERT (Lan et al. 2019), the encoder of the text: one layer's weights, applied twelve times.

Names of modules are those of the official checkpoint, which are Hugging Face's.
"""

from collections.abc import Mapping
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from serve_app.engine.network.masked import Span

_EMBEDDING_SIZE = 128
_TOKEN_TYPES = 2
_EPS = 1e-12
"""What the checkpoint's configuration leaves to ALBERT's defaults."""


class Albert(nn.Module):
    """Phoneme ids to hidden states.

    Args:
        config: the `plbert` section of config.json.
    """

    def __init__(self, config: Mapping[str, Any], symbols: int) -> None:
        super().__init__()
        hidden = config["hidden_size"]
        self.embeddings = _Embeddings(symbols, config["max_position_embeddings"])
        self.encoder = nn.Module()
        self.encoder.embedding_hidden_mapping_in = nn.Linear(_EMBEDDING_SIZE, hidden)
        group = nn.Module()
        group.albert_layers = nn.ModuleList(
            [_Layer(hidden, config["num_attention_heads"], config["intermediate_size"])]
        )
        self.encoder.albert_layer_groups = nn.ModuleList([group])
        self._depth: int = config["num_hidden_layers"]

    def forward(self, tokens: Tensor, span: Span) -> Tensor:
        """[B, N] to [B, N, hidden]; whatever stands beyond an item is not zero and nobody's.

        Padding is closed out of attention by an additive mask on its keys; nothing else here mixes positions.
        """
        closed = torch.zeros_like(span.mask).masked_fill_(span.mask == 0, -torch.inf)[:, None]  # [B, 1, 1, N]
        layer = cast(Any, self.encoder).albert_layer_groups[0].albert_layers[0]
        x: Tensor = cast(Any, self.encoder).embedding_hidden_mapping_in(self.embeddings(tokens))
        for _ in range(self._depth):
            x = layer(x, closed)
        return x


def unfilled_embedding(rows: int, size: int) -> nn.Embedding:
    """Without the normal numbers that the constructor draws: on the meta device they alone make torch import 900 of its
    modules, seconds of a start."""
    return nn.Embedding(rows, size, _weight=torch.empty(rows, size))


class _Embeddings(nn.Module):
    def __init__(self, symbols: int, positions: int) -> None:
        super().__init__()
        self.word_embeddings = unfilled_embedding(symbols, _EMBEDDING_SIZE)
        self.position_embeddings = unfilled_embedding(positions, _EMBEDDING_SIZE)
        self.token_type_embeddings = unfilled_embedding(_TOKEN_TYPES, _EMBEDDING_SIZE)
        self.LayerNorm = nn.LayerNorm(_EMBEDDING_SIZE, eps=_EPS)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.word_embeddings(tokens) + self.token_type_embeddings.weight[0]
        return cast(Tensor, self.LayerNorm(x + self.position_embeddings.weight[: tokens.shape[1]]))


class _Attention(nn.Module):
    def __init__(self, hidden: int, heads: int) -> None:
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(hidden, hidden) for _ in range(3))
        self.dense = nn.Linear(hidden, hidden)
        self.LayerNorm = nn.LayerNorm(hidden, eps=_EPS)
        self._heads = heads

    def forward(self, x: Tensor, closed: Tensor) -> Tensor:
        batch, size, hidden = x.shape
        query, key, value = (
            project(x).view(batch, size, self._heads, -1).transpose(1, 2)
            for project in (self.query, self.key, self.value)
        )
        mixed = F.scaled_dot_product_attention(query, key, value, attn_mask=closed)
        mixed = mixed.transpose(1, 2).reshape(batch, size, hidden)
        return cast(Tensor, self.LayerNorm(x + self.dense(mixed)))


class _Layer(nn.Module):
    def __init__(self, hidden: int, heads: int, intermediate: int) -> None:
        super().__init__()
        self.attention = _Attention(hidden, heads)
        self.ffn = nn.Linear(hidden, intermediate)
        self.ffn_output = nn.Linear(intermediate, hidden)
        self.full_layer_layer_norm = nn.LayerNorm(hidden, eps=_EPS)

    def forward(self, x: Tensor, closed: Tensor) -> Tensor:
        x = self.attention(x, closed)
        inner = F.gelu(self.ffn(x), approximate="tanh")
        return cast(Tensor, self.full_layer_layer_norm(x + self.ffn_output(inner)))
