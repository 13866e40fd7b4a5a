"""Word error rate of the official kokoro package and of this engine's ways to speak on a CPU, as Whisper hears them.

    uv run python scripts/wer_table.py [--clips 20] [--voices af_heart am_michael] [--threads 2]

The same phonemes and weights for all; the clips and the reader are those of scripts/codec_table.py, easy on purpose.
"""

import argparse

import numpy as np
import soxr

from scripts.bench_cpu import open_ways
from scripts.codec_table import CLIPS, WHISPER_RATE, edits, open_whisper, words_of
from serve_app.audio.pcm import MODEL_RATE
from serve_app.config import TextSettings
from serve_app.engine.model import available_cores
from serve_app.text.phonemes import FrontEnd
from serve_app.text.vocab import VOCAB

VOICES = ("af_heart", "am_michael")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clips", type=int, default=20, help="only the first so many; %(default)s")
    parser.add_argument("--voices", nargs="+", default=VOICES)
    parser.add_argument("--threads", type=int, default=available_cores())
    options = parser.parse_args()
    symbols = {token: symbol for symbol, token in VOCAB.items()}
    front_end, read = FrontEnd(TextSettings()), open_whisper()
    ways, _, source = open_ways(options.threads, ours=True)
    errors, words = dict.fromkeys(ways, 0), 0
    for text in CLIPS[: options.clips]:
        [piece] = front_end.pieces(text, "a")
        phonemes = "".join(symbols[token] for token in piece.phoneme_ids)
        for voice in options.voices:
            words += len(words_of(text))
            for name, speak in ways.items():
                audio = soxr.resample(speak(phonemes, voice), MODEL_RATE, WHISPER_RATE).astype(np.float32)
                errors[name] += edits(words_of(text), words_of(read(audio)))
    print(f"{options.clips} sentences, {', '.join(options.voices)}; weights: {source}")
    print("| way | words wrong | word error rate |\n|---|--:|--:|")
    for name, count in errors.items():
        print(f"| {name} | {count} of {words} | {count / words:.1%} |")


if __name__ == "__main__":
    main()
