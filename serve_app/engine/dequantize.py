"""The 8-bit ONNX export of Kokoro-82M v1.0 back into the official model's tensors (folded, float32).

The export (ONNX Runtime dynamic quantization) keeps module paths as node names. Quantised weights are
(q - zero_point) * scale; biases, norms and Snake alphas are stored as floats under their own names.
"""

import re

import onnx
import torch
from onnx import numpy_helper
from torch import Tensor

from serve_app.engine.checkpoint import PARTS, checked, folded_shapes
from serve_app.engine.files import WeightsError

_LAYER_COPY = re.compile(r"_\d+$")


def dequantize(onnx_file: bytes) -> dict[str, Tensor]:
    """Read the export into a folded state dict, complete and checked.

    Raises:
        WeightsError: the file is no such export.
    """
    try:
        graph = onnx.load_from_string(onnx_file).graph
    except Exception as exc:  # protobuf's own error types are not public
        raise WeightsError(f"the 8-bit model is not an ONNX file ({type(exc).__name__})") from exc
    constants = {item.name: item for item in graph.initializer}

    def stored(name: str) -> Tensor:
        return torch.from_numpy(numpy_helper.to_array(constants[name]).copy())

    def dequantized(name: str, zero_point: str) -> Tensor:
        scale = stored(name.removesuffix("_quantized") + "_scale")
        return (stored(name).float() - stored(zero_point)) * scale

    state: dict[str, Tensor] = {}
    for node in graph.node:
        module, inputs = module_path(node.name), node.input
        match node.op_type:
            case "ConvInteger":
                state[f"{module}.weight"] = dequantized(inputs[1], inputs[3])
            case "MatMulInteger":
                # ALBERT's twelve layers are one module: its later nodes repeat the first one's weight.
                if f"{module}.weight" not in state:
                    state[f"{module}.weight"] = dequantized(inputs[1], inputs[3]).T.contiguous()
            case "DequantizeLinear":  # an embedding's rows, looked up before they are scaled
                weight = inputs[1].removesuffix("_scale") + "_quantized"
                state[f"{module}.weight"] = dequantized(weight, inputs[2])
            case "DynamicQuantizeLSTM":
                w, r = (
                    (stored(weight).float() - stored(zero)[:, None, None]) * stored(scale)[:, None, None]
                    for weight, scale, zero in ((inputs[1], inputs[8], inputs[9]), (inputs[2], inputs[10], inputs[11]))
                )
                state |= {f"{module}.{name}": tensor for name, tensor in _lstm(w, r, stored(inputs[3])).items()}
            case "Conv" | "ConvTranspose" if inputs[1] in constants:
                state[f"{module}.weight"] = stored(inputs[1])
            case "MatMul" if inputs[1] in constants:
                state[f"{module}.weight"] = stored(inputs[1]).T.contiguous()
    for name in constants:
        key = name.partition(".")[2]  # after `encoder.` or `decoder.`, the wrapper that was exported
        if key in folded_shapes() and key not in state:
            state[key] = stored(name)
    return checked(state, "the 8-bit model")


def module_path(node_name: str) -> str:
    """`/encoder/F0.0/conv1/Conv_quant` -> `predictor.F0.0.conv1`; the official model's name of the module."""
    wrapper, *parts = node_name.strip("/").split("/")[:-1] or [""]
    if wrapper == "encoder" and parts and parts[0] not in PARTS:
        parts.insert(0, "predictor")
    path: list[str] = []
    for part in parts:
        if path and part.startswith(f"{path[-1]}."):  # a Sequential repeats its own name: cnn.0/cnn.0.1
            path.pop()
        path.append(part)
    if path and path[0] == "bert":
        path[-1] = _LAYER_COPY.sub("", path[-1])
    return ".".join(path)


def _lstm(w: Tensor, r: Tensor, bias: Tensor) -> dict[str, Tensor]:
    """A bidirectional LSTM's tensors under torch's names.

    Args:
        w: input weights, [2, in, 4H], gates in ONNX's order i, o, f, c.
        r: recurrent weights, [2, H, 4H].
        bias: input then recurrent bias, [2, 8H].
    """
    named: dict[str, Tensor] = {}
    for direction, suffix in enumerate(("", "_reverse")):
        bias_ih, bias_hh = bias[direction].chunk(2)
        for name, tensor in (
            ("weight_ih", w[direction].T),
            ("weight_hh", r[direction].T),
            ("bias_ih", bias_ih),
            ("bias_hh", bias_hh),
        ):
            i, o, f, c = tensor.chunk(4)
            named[f"{name}_l0{suffix}"] = torch.cat([i, f, c, o])  # torch's order: i, f, g (= ONNX's c), o
    return named
