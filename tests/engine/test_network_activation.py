"""The fused kernel against the plain operations, in Triton's interpreter: no GPU, and a process of its own."""

import os
import subprocess
import sys

COMPARE = """
import torch
from serve_app.engine.network.activation import activated
from serve_app.engine.network.kernels import activated_in_one
from serve_app.engine.network.masked import Span

torch.manual_seed(0)
batch, channels, size = 3, 5, 2500
span = Span(torch.tensor([2500, 1, 2048]), size, torch.float32)
x = span.zero(30 + torch.randn(batch, channels, size))
scale, shift = (torch.randn(batch, 2 * channels)[:, :channels, None] for _ in range(2))
for alpha in (None, torch.rand(1, channels, 1) + 0.5):
    for dtype, bound in ((torch.float32, 2e-5), (torch.float16, 5e-3)):
        inputs = x, scale, shift, alpha, span, 1e-5, dtype
        plain, fused = activated(*inputs), activated_in_one(*inputs)
        assert plain.dtype == fused.dtype == dtype
        far = (plain.float() - fused.float()).abs().flatten(1).amax(1)
        assert (far < bound).all(), (alpha is None, dtype, far)
        assert (fused[1, :, 1:] == 0).all()
        assert (fused[2, :, 2048:] == 0).all()
"""


def test_one_kernel_is_what_the_plain_operations_are():
    environment = os.environ | {"TRITON_INTERPRET": "1"}
    ended = subprocess.run(
        [sys.executable, "-c", COMPARE], env=environment, capture_output=True, text=True, timeout=300
    )
    assert ended.returncode == 0, ended.stderr
