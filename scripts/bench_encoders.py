"""Which encoder, and at what price: audio taken in before the first audio comes out, CPU time, size.

    python scripts/bench_encoders.py [SPEECH.wav]

SPEECH.wav is mono 16-bit at 24 kHz; without it a synthetic voice is coded, whose sizes say little. Audio goes in 5 ms
at a time for the first byte, one second at a time for the CPU, as the server does. Rows in brackets are candidates that
the server does not use; lameenc is skipped where it is not installed.
"""

import argparse
import importlib.util
import io
import time
import wave
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

import numpy as np

from serve_app.audio.encoders import open_encoder
from serve_app.audio.pcm import MODEL_RATE, Samples, from_s16le, slices, to_s16le
from serve_app.formats import FORMATS

STEP_SAMPLES = MODEL_RATE // 200
AFTER_HEADER: dict[str, Callable[[bytes], bytes]] = {
    "wav": lambda sent: sent[44:],
    "flac": lambda sent: sent[42:],
    "aac": lambda sent: sent.partition(b"mdat")[2],
    "opus": lambda sent: b"".join(sent.split(b"OggS")[3:]),  # after the pages of OpusHead and OpusTags
}


class Encoder(Protocol):
    def encode(self, samples: Samples) -> bytes: ...
    def finish(self) -> bytes: ...


class Lame:
    """lameenc; always with the bit reservoir."""

    def __init__(self, quality: int) -> None:
        import lameenc

        self._encoder = lameenc.Encoder()
        self._encoder.silence()
        self._encoder.set_bit_rate(48)
        self._encoder.set_in_sample_rate(MODEL_RATE)
        self._encoder.set_channels(1)
        self._encoder.set_quality(quality)

    def encode(self, samples: Samples) -> bytes:
        return bytes(self._encoder.encode(to_s16le(samples)))

    def finish(self) -> bytes:
        return bytes(self._encoder.flush())


class Muxed:
    """PyAV with libavformat's muxer for the container."""

    def __init__(self, container: str, codec: str, bit_rate: int, muxer: dict[str, str], coder: dict[str, str]) -> None:
        import av

        self._written, self._frame, self._fed = io.BytesIO(), av.AudioFrame, 0
        self._written.seekable = lambda: False  # type: ignore[method-assign]
        options = {"flush_packets": "1", **muxer}
        self._container = av.open(self._written, "w", format=container, options=options)
        self._stream = self._container.add_stream(codec, rate=MODEL_RATE, options=coder, layout="mono")
        self._stream.codec_context.bit_rate = bit_rate
        self._taken = 0

    def encode(self, samples: Samples) -> bytes:
        frame = self._frame.from_ndarray(samples[np.newaxis], format="fltp", layout="mono")
        frame.sample_rate, frame.pts = MODEL_RATE, self._fed
        self._fed += len(samples)
        self._container.mux(self._stream.encode(frame))
        return self._take()

    def finish(self) -> bytes:
        self._container.mux(self._stream.encode(None))
        self._container.close()
        return self._take()

    def _take(self) -> bytes:
        data = self._written.getvalue()[self._taken :]
        self._taken += len(data)
        return data


def candidates() -> Iterator[tuple[str, str, Callable[[], Encoder]]]:
    """(row, format, how to start one)"""
    for name, entry in FORMATS.items():
        for rate in (entry.default_rate, *(other for other in entry.sample_rates if other != entry.default_rate)):
            yield f"{name} {rate}", name, lambda name=name, rate=rate: open_encoder(name, rate)
    if importlib.util.find_spec("lameenc"):
        for quality in (2, 5, 7):
            yield f"[lameenc {quality}]", "mp3", lambda quality=quality: Lame(quality)
    mp3 = ("mp3", "libmp3lame", 48_000, {"write_xing": "0", "id3v2_version": "0"})
    yield "[mp3, reservoir]", "mp3", lambda: Muxed(*mp3, {})
    fragmented = "empty_moov+delay_moov+default_base_moof+skip_trailer"
    for fragment_ms in (80, 120):
        muxer = {"movflags": fragmented, "frag_duration": str(fragment_ms * 1000)}
        yield f"[mp4 muxer {fragment_ms} ms]", "aac", lambda muxer=muxer: Muxed("mp4", "aac", 32_000, muxer, {})
    for level, application in ((10, "audio"), (10, "voip"), (5, "lowdelay")):
        coder = {"compression_level": str(level), "application": application}
        yield (
            f"[opus {application} {level}]",
            "opus",
            lambda coder=coder: Muxed("ogg", "libopus", 32_000, {"page_duration": "60000"}, coder),
        )


def first_audio_ms(encoder: Encoder, format: str, speech: Samples) -> float:
    """Milliseconds of audio taken in when the first byte of coded audio, not of a header, is out."""
    sent, after_header = b"", AFTER_HEADER.get(format, lambda sent: sent)
    for number, samples in enumerate(slices(speech, STEP_SAMPLES), 1):
        sent += encoder.encode(samples)
        if after_header(sent):
            return 1000 * number * STEP_SAMPLES / MODEL_RATE
    return float("inf")


def cost(start: Callable[[], Encoder], speech: Samples, repeats: int) -> tuple[float, float, float]:
    """(CPU ms per second of audio, longest call of one second in CPU ms, kbit/s), the best of some repeats."""
    seconds, totals, longest, sent = len(speech) / MODEL_RATE, [], [], 0
    for _ in range(repeats):
        encoder, calls, sent = start(), [], 0
        for samples in slices(speech, MODEL_RATE):
            began = time.process_time()
            sent += len(encoder.encode(samples))
            calls.append(time.process_time() - began)
        began = time.process_time()
        sent += len(encoder.finish())
        totals.append(sum(calls) + time.process_time() - began)
        longest.append(max(calls))
    return 1000 * min(totals) / seconds, 1000 * min(longest), sent * 8 / seconds / 1000


def synthetic_voice(seconds: float) -> Samples:
    t = np.arange(round(seconds * MODEL_RATE)) / MODEL_RATE
    tone = np.sin(2 * np.pi * (170 * t + 25 * np.sin(2 * np.pi * 1.5 * t))) + 0.4 * np.sin(2 * np.pi * 1_400 * t)
    noise = np.random.default_rng(0).standard_normal(len(t))
    return (0.3 * tone * (0.6 + 0.4 * np.sin(2 * np.pi * 3 * t)) + 0.005 * noise).astype(np.float32)


def read_speech(path: Path) -> Samples:
    with wave.open(str(path)) as reader:
        if (reader.getframerate(), reader.getnchannels(), reader.getsampwidth()) != (MODEL_RATE, 1, 2):
            raise SystemExit("expected mono 16-bit audio at 24 kHz")
        return from_s16le(reader.readframes(reader.getnframes()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("speech", type=Path, nargs="?", metavar="SPEECH.wav")
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    speech = read_speech(arguments.speech) if arguments.speech else synthetic_voice(12)
    print(f"{len(speech) / MODEL_RATE:.1f} s of {'speech' if arguments.speech else 'synthetic voice'}")
    print(f"{'encoder':22}{'first audio ms':>15}{'CPU ms/s':>10}{'longest call ms':>17}{'kbit/s':>8}")
    for row, format, start in candidates():
        cpu, longest, size = cost(start, speech, arguments.repeats)
        first = first_audio_ms(start(), format, speech)
        print(f"{row:22}{first:15.0f}{cpu:10.1f}{longest:17.1f}{size:8.1f}")


if __name__ == "__main__":
    main()
