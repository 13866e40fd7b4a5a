import pytest
import torch

from serve_app.engine.checkpoint import folded_shapes, normed_names
from serve_app.engine.dequantize import _lstm, dequantize, module_path
from serve_app.engine.files import WeightsError
from serve_app.engine.packaged import _joined_parts


@pytest.mark.parametrize(
    ("node", "module"),
    [
        ("/encoder/F0.0/conv1/Conv_quant", "predictor.F0.0.conv1"),
        ("/encoder/N_proj/Conv_quant", "predictor.N_proj"),
        ("/encoder/shared/LSTM_quant", "predictor.shared"),
        ("/encoder/predictor/text_encoder/lstms.0/LSTM_quant", "predictor.text_encoder.lstms.0"),
        ("/encoder/text_encoder/cnn.0/cnn.0.0/Conv_quant", "text_encoder.cnn.0.0"),
        ("/encoder/bert_encoder/MatMul_quant", "bert_encoder"),
        ("/encoder/bert/encoder/x.0/attention/query/MatMul_quant", "bert.encoder.x.0.attention.query"),
        ("/encoder/bert/encoder/x.0/attention/query_11/MatMul_quant", "bert.encoder.x.0.attention.query"),
        ("/decoder/decoder/asr_res/asr_res.0/Conv_quant", "decoder.asr_res.0"),
        ("/decoder/decoder/decode.3/norm2/fc/Gemm_MatMul_quant", "decoder.decode.3.norm2.fc"),
        ("FastGelu_token_144", ""),
        ("", ""),
    ],
)
def test_node_names_are_module_paths(node, module):
    assert module_path(node) == module


def test_lstm_gates_are_put_into_torchs_order():
    """One unit, one input: the gates i, o, f, c of ONNX are 1, 2, 3, 4 and become i, f, g (= c), o."""
    gates = torch.tensor([1.0, 2, 3, 4])
    w = torch.stack([gates, 10 * gates]).reshape(2, 1, 4)
    bias = torch.stack([torch.cat([gates, -gates]), torch.cat([7 * gates, -7 * gates])])
    named = _lstm(w, 100 * w, bias)
    torch.nn.LSTM(1, 1, bidirectional=True).load_state_dict(named, strict=True)
    order = torch.tensor([1.0, 3, 4, 2])
    assert torch.equal(named["weight_ih_l0"].flatten(), order)
    assert torch.equal(named["weight_ih_l0_reverse"].flatten(), 10 * order)
    assert torch.equal(named["weight_hh_l0_reverse"].flatten(), 1000 * order)
    assert torch.equal(named["bias_ih_l0"], order)
    assert torch.equal(named["bias_hh_l0_reverse"], -7 * order)


def test_the_packaged_file_becomes_the_whole_official_model():
    state = dequantize(_joined_parts())
    assert {name: tensor.shape for name, tensor in state.items()} == folded_shapes()
    assert all(tensor.dtype == torch.float32 for tensor in state.values())
    grid = state["decoder.generator.resblocks.0.convs1.0.weight"].unique()
    assert 2 < len(grid) <= 256  # 8 bit, one scale
    zero_filters = sum(int((state[name].flatten(1) == 0).all(1).sum()) for name in normed_names())
    assert zero_filters == 94


@pytest.mark.parametrize("junk", [b"junk", b""])
def test_what_is_no_export_is_refused(junk):
    with pytest.raises(WeightsError, match="8-bit model"):
        dequantize(junk)
