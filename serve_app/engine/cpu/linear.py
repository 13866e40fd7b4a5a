"""Linear layers by the native kernels, in float32: for the text stage, whose products are matrices of few rows."""

import torch
from torch import Tensor, nn

from serve_app.engine.cpu.library import Kernels
from serve_app.engine.cpu.packing import LANES, packed_matrix


class NativeLinear(nn.Module):
    """An `nn.Linear` of which each sum is taken in one order, whatever the number of rows and threads."""

    def __init__(self, linear: nn.Linear, kernels: Kernels) -> None:
        super().__init__()
        self._kernels = kernels
        self._weights = packed_matrix(linear.weight, linear.bias, kernels.panel)

    def forward(self, x: Tensor) -> Tensor:
        out = torch.empty(*x.shape[:-1], self._weights.outputs)
        self._kernels.multiply(
            x.reshape(-1, self._weights.channels), self._weights, out.view(-1, self._weights.outputs)
        )
        return out


def replace_linears(module: nn.Module, kernels: Kernels) -> None:
    """Let the kernels compute the linear layers within `module` that they can."""
    for parent in list(module.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, nn.Linear) and child.bias is not None and child.out_features % LANES == 0:
                setattr(parent, name, NativeLinear(child, kernels))
