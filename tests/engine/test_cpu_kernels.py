"""The kernels alone, each build that this processor can run, against torch in float64."""

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from serve_app.engine.cpu.build import supported_targets
from serve_app.engine.cpu.library import Kernels, Norm, load_kernels
from serve_app.engine.cpu.linear import NativeLinear, replace_linears
from serve_app.engine.cpu.packing import chunk_sizes, packed, packed_matrix

BUILDS = [(target, narrow) for target in supported_targets() for narrow in (False, True)[: 1 + target.narrow]]
BOUND = {False: 2e-5, True: 3e-2}
"""Largest difference for outputs of about 1: float32, and products of bfloat16."""


@pytest.fixture(scope="module", params=BUILDS, ids=lambda build: f"{build[0].name}-{'bf16' if build[1] else 'fp32'}")
def build(request: pytest.FixtureRequest) -> tuple[Kernels, bool]:
    target, narrow = request.param
    kernels = load_kernels(target)
    if kernels is None:
        pytest.skip("no compiler")
    return kernels, narrow


@pytest.fixture(autouse=True)
def threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.manual_seed(0)
    yield
    torch.set_num_threads(before)


def sums_of(x: Tensor) -> Tensor:
    return torch.stack([x.double().sum(0), x.double().square().sum(0)])


def normed(x: Tensor, norm: Norm) -> Tensor:
    x = x.double()
    deviation = (x.var(0, correction=0) + norm.epsilon).sqrt()
    return (x - x.mean(0)) / deviation * norm.scale + norm.shift


def convolved(x: Tensor, weight: Tensor, bias: Tensor, dilation: int, left: int, rows: int) -> Tensor:
    reach = (weight.shape[2] - 1) * dilation
    padded = F.pad(x.double().t()[None], (left, max(0, rows + reach - left - len(x))))
    return F.conv1d(padded, weight.double(), bias.double(), dilation=dilation)[0].t()[:rows]


def test_filters_are_cut_into_threes_and_pairs() -> None:
    assert {taps: chunk_sizes(taps) for taps in (2, 3, 5, 7, 11)} == {
        2: [2],
        3: [3],
        5: [3, 2],
        7: [3, 2, 2],
        11: [3, 3, 3, 2],
    }


@pytest.mark.parametrize("rows", [1, 2, 27, 29, 113, 700])
@pytest.mark.parametrize(
    ("taps", "dilation"), [(3, 1), (3, 3), (3, 5), (7, 1), (7, 3), (7, 5), (11, 1), (11, 3), (11, 5)]
)
def test_a_snake_block_s_convolution_of_any_length(
    build: tuple[Kernels, bool], rows: int, taps: int, dilation: int
) -> None:
    kernels, narrow = build
    channels = 64
    x, addend = torch.randn(rows, channels) * 3 + 1, torch.randn(rows, channels)
    weight, bias = torch.randn(channels, channels, taps) / (channels * taps) ** 0.5, torch.randn(channels)
    norm = Norm(sums_of(x), torch.rand(channels) + 0.5, torch.randn(channels), 1e-5)
    alpha = torch.rand(channels) * 4 + 0.2
    out, sums = torch.full((rows, channels), torch.nan), torch.full((2, channels), torch.nan, dtype=torch.float64)
    weights = packed(weight, bias, kernels.panel, narrow)
    kernels.convolve(x, weights, out, norm=norm, alpha=alpha, dilation=dilation, addends=(addend,), sums=sums)
    h = normed(x, norm)
    h = h + (alpha * h).sin().square() / alpha
    expected = convolved(h, weight, bias, dilation, (taps - 1) * dilation // 2, rows) + addend
    assert (out - expected).abs().max() < BOUND[narrow] * (1 + 2 * narrow)
    assert torch.allclose(sums, sums_of(out), rtol=1e-6, atol=1e-4)


@pytest.mark.parametrize(
    ("inputs", "outputs", "taps", "left", "rows"),
    [
        (256, 256, 11, None, 300),
        (128, 128, 11, None, 300),
        (514, 96, 3, None, 40),
        (64, 320, 2, 1, 31),
        (128, 22, 7, None, 65),
    ],
)
def test_leaky_convolutions_of_the_other_shapes(
    build: tuple[Kernels, bool], inputs: int, outputs: int, taps: int, left: int | None, rows: int
) -> None:
    """Channels that are no multiple of anything, strided rows, gains, two addends of which one is the output."""
    kernels, narrow = build
    weight, bias = torch.randn(outputs, inputs, taps) / (inputs * taps) ** 0.5, torch.randn(outputs)
    weights = packed(weight, bias, kernels.panel, narrow)
    x = torch.zeros(rows, weights.channels + 32)[:, : weights.channels]
    x[:, :inputs] = torch.randn(rows, inputs)
    out_rows = rows + (left or 0)
    out, first = torch.randn(out_rows, weights.outputs + 64)[:, 32:-32], torch.randn(out_rows, weights.outputs)
    expected = convolved(
        F.leaky_relu(x[:, :inputs] / 3, 0.1), weight, bias, 1, (taps - 1) // 2 if left is None else left, out_rows
    )
    expected = (expected + first[:, :outputs] + out[:, :outputs]) * 0.7
    kernels.convolve(x, weights, out, in_gain=1 / 3, slope=0.1, left=left, addends=(first, out), gain=0.7)
    assert (out[:, :outputs] - expected).abs().max() < BOUND[narrow]


def test_the_sine_stays_exact_far_from_zero(build: tuple[Kernels, bool]) -> None:
    kernels, _ = build
    x = torch.linspace(-3000, 3000, 32 * 500).view(500, 32)
    centre = torch.zeros(32, 32, 3)
    centre[:, :, 1] = torch.eye(32)
    out = torch.empty_like(x)
    kernels.convolve(x, packed(centre, None, kernels.panel, narrow=False), out, alpha=torch.ones(32))
    expected = x.double() + x.double().sin().square()
    assert (out - expected).abs().max() < 1e-3  # float32 of 3 000 itself rounds by 1e-4, and differences of such more


@pytest.mark.parametrize("rows", [1, 511, 513, 1500])
def test_adding_and_summing(build: tuple[Kernels, bool], rows: int) -> None:
    kernels, _ = build
    x, y = torch.randn(rows, 64) + 100, torch.randn(rows, 96)[:, :64]
    expected = x + y
    sums = torch.empty(2, 64, dtype=torch.float64)
    kernels.add_and_sum(x, y, sums)
    assert torch.equal(x, expected)
    assert torch.allclose(sums, sums_of(x), rtol=1e-7)
    before = sums.clone()
    kernels.add_and_sum(x, None, sums)
    assert torch.equal(x, expected)
    assert torch.equal(sums, before)


def test_a_large_mean_does_not_drown_the_variance(build: tuple[Kernels, bool]) -> None:
    kernels, _ = build
    x = torch.randn(600, 32) * 0.01
    zero = torch.zeros(32, 32, 3)
    out, sums = torch.empty_like(x), torch.empty(2, 32, dtype=torch.float64)
    kernels.convolve(
        x, packed(zero, torch.full((32,), 50.0), kernels.panel, narrow=False), out, addends=(x,), sums=sums
    )
    variance = sums[1] / 600 - (sums[0] / 600).square()
    assert torch.allclose(variance, out.double().var(0, correction=0), rtol=1e-3)


def test_neither_threads_nor_what_ran_before_change_a_bit(build: tuple[Kernels, bool]) -> None:
    kernels, narrow = build
    x = torch.randn(1000, 128)
    weights = packed(torch.randn(128, 128, 11) / 40, torch.randn(128), kernels.panel, narrow)
    answers = []
    for threads in (1, 3, 1):
        torch.set_num_threads(threads)
        out, sums = torch.empty_like(x), torch.empty(2, 128, dtype=torch.float64)
        kernels.convolve(x, weights, out, dilation=3, sums=sums)
        answers.append((out, sums))
        kernels.convolve(torch.full((3000, 128), torch.nan), weights, torch.empty(3000, 128), dilation=5)
    for out, sums in answers[1:]:
        assert torch.equal(out, answers[0][0])
        assert torch.equal(sums, answers[0][1])


@pytest.mark.parametrize("rows", [1, 5, 14, 15, 101])
def test_linear_layers_of_any_number_of_rows(build: tuple[Kernels, bool], rows: int) -> None:
    kernels, _ = build
    linear = nn.Linear(48, 96).requires_grad_(False)
    holder = nn.Sequential(linear, nn.Linear(96, 50), nn.Linear(50, 32, bias=False)).requires_grad_(False)
    x = torch.randn(1, rows, 48)
    expected = linear.double()(x.double())
    linear.float()
    replace_linears(holder, kernels)
    assert [type(module) for module in holder] == [NativeLinear, nn.Linear, nn.Linear]
    assert (holder[0](x) - expected).abs().max() < 1e-5


def test_tensors_that_the_kernels_would_misread_are_refused(build: tuple[Kernels, bool]) -> None:
    kernels, _ = build
    weights = packed(torch.randn(32, 32, 3), None, kernels.panel, narrow=False)
    x, out = torch.zeros(8, 32), torch.zeros(8, 32)
    for wrong in (x.double(), x.t(), torch.zeros(8, 64)[:, ::2], torch.zeros(8, 64), torch.zeros(256)):
        with pytest.raises(ValueError):
            kernels.convolve(wrong, weights, out)
    with pytest.raises(ValueError):
        kernels.convolve(x, weights, x)
    with pytest.raises(ValueError):
        kernels.convolve(x, weights, out, addends=(torch.zeros(7, 32),))
    with pytest.raises(ValueError):
        kernels.convolve(x, weights, out, sums=torch.zeros(2, 32))
    with pytest.raises(ValueError):
        kernels.convolve(x, weights, out, alpha=torch.ones(31))
    with pytest.raises(ValueError):
        kernels.multiply(x, weights, out)
    with pytest.raises(ValueError):
        kernels.convolve(x, packed_matrix(torch.zeros(32, 32), torch.zeros(32), kernels.panel), out)
