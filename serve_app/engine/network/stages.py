"""Kokoro-82M over batches, in stages of static shapes.

    text      tokens [B, N], lengths [B], style [B, 256], speed [B]
              -> TextStates: hidden [B, N, 640], encoded [B, N, 512], durations [B, N], frames [B]
    (host)    reads frames, the one number of each item that sizes what follows; may regroup the items
    align     hidden or encoded, durations, Cut, size F
              -> [B', F, C]: each phoneme's state at each of its frames
    prosody   hidden, aligned, style, frames       -> f0 [B, 2F] in Hz, energy [B, 2F]
    (host)    cuts the frames that are to be heard out of what was aligned and out of the curves
    decode    encoded, aligned, [B, 512, F]; f0, energy, style, frames -> features [B, 512, 2F]
    generate  features, f0, style, frames, seeds   -> audio [B, 600F]

B items padded to N tokens (the two pads of each included) or F frames of 25 ms. `lengths` and `frames` are int64 and 1
or more, also of rows that pad the batch itself. `style` is a voice's row, 128 numbers for decode and generate before
128 for text and prosody; `seeds` int64. Every tensor between the stages is zero beyond its item, audio alone is not:
item b's are the first 600 * frames[b] samples. Within a stage nothing is read by the host and no shape depends on data,
so that each can be recorded as a CUDA graph.

Text and prosody are computed in float32 always: a duration is a rounded number and the pitch is summed to a phase, so
that small errors become large ones. Decode and generate may keep the weights of their widest convolutions narrower, see
`narrow`.

Another implementation of decode and generate, such as native code for one processor, is a `Vocoder`.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol, Self

import torch
from torch import Tensor, nn

from serve_app.engine.network.albert import Albert
from serve_app.engine.network.blocks import StyledBlock
from serve_app.engine.network.decoder import Decoder
from serve_app.engine.network.generator import SnakeBlock
from serve_app.engine.network.masked import Span
from serve_app.engine.network.prosody import Predictor
from serve_app.engine.network.text import TextEncoder

HIDDEN_SIZE, ENCODED_SIZE, STYLE_SIZE = 640, 512, 256
DECODER_STYLE = slice(0, 128)
PROSODY_STYLE = slice(128, 256)


class TextStates(NamedTuple):
    """What the text stage gives; durations and frames int64."""

    hidden: Tensor
    encoded: Tensor
    durations: Tensor
    frames: Tensor


class Cut(NamedTuple):
    """Frames of some items of a pass, int64 [B'] each: which items, from which frame on, how many."""

    rows: Tensor
    starts: Tensor
    frames: Tensor


class Vocoder(Protocol):
    """Decode and generate: encoded [B, 512, F], f0 and energy [B, 2F], style [B, 256], frames and seeds [B] to audio
    [B, 600F] float32."""

    def __call__(
        self, encoded: Tensor, f0: Tensor, energy: Tensor, style: Tensor, frames: Tensor, seeds: Tensor
    ) -> Tensor: ...


class Kokoro(nn.Module):
    """The network. Names of its tensors are the official checkpoint's, weight norm folded.

    Args:
        config: the official config.json.
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__()
        channels, style, symbols = config["hidden_dim"], config["style_dim"], config["n_token"]
        self.bert = Albert(config["plbert"], symbols)
        self.bert_encoder = nn.Linear(config["plbert"]["hidden_size"], channels)
        self.predictor = Predictor(style, channels, config["n_layer"], config["max_dur"])
        self.text_encoder = TextEncoder(symbols, channels, config["text_encoder_kernel_size"], config["n_layer"])
        self.decoder = Decoder(config["istftnet"], channels, style)

    @classmethod
    def skeleton(cls, config: Mapping[str, Any]) -> Self:
        """The network as shapes without memory: drawing 82 million numbers to overwrite them would cost seconds."""
        with torch.device("meta"):
            return cls(config)

    @classmethod
    def build(cls, config: Mapping[str, Any], state: Mapping[str, Tensor]) -> Self:
        """On the CPU, in float32, sharing the given tensors where it can.

        Args:
            state: the folded state dict; names that the network does not have are an error.
        """
        network = cls.skeleton(config)
        network.load_state_dict(state, strict=True, assign=True)
        network.eval().requires_grad_(False)
        for module in list(network.modules()):
            if finish := getattr(module, "finish", None):
                finish()
        return network

    def narrow(self, dtype: torch.dtype) -> Self:
        """Keep the weights of the residual blocks' convolutions in decode and generate in `dtype`.

        These are nine tenths of the network's products. What is added to them, norms, activations, residuals and the
        convolutions that make and merge the source stay in float32: all in bfloat16 sounds like another sentence
        (log-spectral distance 1.8 dB), this like the same one.
        """
        for block in self.decoder.modules():
            if isinstance(block, StyledBlock):
                block.conv1.to(dtype)
                block.conv2.to(dtype)
            elif isinstance(block, SnakeBlock):
                block.convs1.to(dtype)
                block.convs2.to(dtype)
        return self

    def text(self, tokens: Tensor, lengths: Tensor, style: Tensor, speed: Tensor) -> TextStates:
        span = Span(lengths, tokens.shape[1], style.dtype)
        contexts = self.bert_encoder(self.bert(tokens, span))
        hidden, durations = self.predictor.durations(contexts, style[:, PROSODY_STYLE], speed, span)
        return TextStates(hidden, self.text_encoder(tokens, span), durations, durations.sum(1))

    def prosody(self, hidden: Tensor, style: Tensor, frames: Tensor) -> tuple[Tensor, Tensor]:
        return self.predictor.curves(hidden, style[:, PROSODY_STYLE], frames)

    def decode(self, encoded: Tensor, f0: Tensor, energy: Tensor, style: Tensor, frames: Tensor) -> Tensor:
        features: Tensor = self.decoder(encoded, f0, energy, style[:, DECODER_STYLE], frames)
        return features

    def generate(self, features: Tensor, f0: Tensor, style: Tensor, frames: Tensor, seeds: Tensor) -> Tensor:
        audio: Tensor = self.decoder.generator(features, f0, style[:, DECODER_STYLE], frames, seeds)
        return audio

    def vocode(
        self, encoded: Tensor, f0: Tensor, energy: Tensor, style: Tensor, frames: Tensor, seeds: Tensor
    ) -> Tensor:
        """Decode and generate: the `Vocoder` that runs everywhere."""
        return self.generate(self.decode(encoded, f0, energy, style, frames), f0, style, frames, seeds)


def align(x: Tensor, durations: Tensor, cut: Cut, size: int) -> Tensor:
    """Give each frame the state of the phoneme that is spoken in it.

    Args:
        x, durations: of the text stage, [B, N, C] and [B, N].
        size: frames of the padded batch, at least those of each of the items.
    Returns:
        [B', size, C], zero beyond each item.
    """
    ends = durations[cut.rows].cumsum(1)
    at = torch.arange(size, device=x.device) + cut.starts[:, None]
    # Past an item's end the search points behind its phonemes, at most behind the last column.
    phonemes = torch.searchsorted(ends, at, right=True).clamp_(max=ends.shape[1] - 1)
    drawn_out = x[cut.rows].gather(1, phonemes[:, :, None].expand(-1, -1, x.shape[2]))
    return Span(cut.frames, size, x.dtype).zero_rows(drawn_out)


def cut_curve(curve: Tensor, cut: Cut, size: int) -> Tensor:
    """Pitch or energy of the cut, [B, 2F] to [B', 2 * size], zero beyond each item."""
    at = torch.arange(2 * size, device=curve.device) + 2 * cut.starts[:, None]
    values = curve[cut.rows].gather(1, at.clamp_(max=curve.shape[1] - 1))
    return Span(2 * cut.frames, 2 * size, curve.dtype).zero(values[:, None])[:, 0]
