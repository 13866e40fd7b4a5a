"""Model audio to the format and rate of one answer: resample, quantise, code, in that order and only here.

CPU per second of audio, in milliseconds (scripts/bench_encoders.py): wav, pcm and ulaw 0.1, flac 1, opus 3, mp3 4,
aac 10; another rate than the model's adds 0.3, mp3 and aac at 44.1 or 48 kHz 3 more. libavcodec works without the
interpreter lock, yet on the calling thread: hand a long segment over in slices of a second, the audio is the same.
"""

from collections.abc import Callable

from serve_app.audio.codecs import Aac, Codec, Flac, Mp3, Opus, Pcm, Ulaw, Wav
from serve_app.audio.pcm import MODEL_RATE, Samples, to_s16le
from serve_app.audio.resample import Resampler
from serve_app.errors import BadRequest
from serve_app.formats import FORMATS, Format

CODECS: dict[str, Callable[[int], Codec]] = {
    "wav": Wav,
    "mp3": Mp3,
    "pcm": lambda _: Pcm(),
    "aac": Aac,
    "opus": Opus,
    "flac": Flac,
    "ulaw": lambda _: Ulaw(),
}


class AudioEncoder:
    """One answer's audio as one continuous stream: a single header, no gap between calls.

    Dropping an unfinished encoder frees all that it holds; there is nothing to close.
    """

    def __init__(self, format: Format, codec: Codec, sample_rate: int) -> None:
        self.media_type = format.media_type.format(rate=sample_rate)
        self.sample_bytes = format.sample_bytes
        self._codec = codec
        self._resampler = Resampler(MODEL_RATE, sample_rate)

    def encode(self, samples: Samples) -> bytes:
        """Bytes that are ready after `samples`, float32 [n] at 24 kHz; a codec holds back its frame and lookahead."""
        return self._codec.write(to_s16le(self._resampler.resample(samples)))

    def finish(self) -> bytes:
        """All that is still held back; call once, after the last `encode`."""
        return self._codec.write(to_s16le(self._resampler.finish())) + self._codec.end()

    def completed(self, stream: bytes) -> bytes:
        """The finished stream (every `encode` and `finish`, joined) with true sizes in its header, for an answer in
        one piece.
        """
        return self._codec.completed(stream)


def open_encoder(format: str, sample_rate: int | None = None) -> AudioEncoder:
    """Start a stream of one of `FORMATS`; without a rate at the format's own default.

    Raises:
        BadRequest: no such format, or a rate that it does not allow; names what is allowed.
    """
    rate = check_format(format, sample_rate)
    return AudioEncoder(FORMATS[format], CODECS[format](rate), rate)


def check_format(format: str, sample_rate: int | None = None) -> int:
    """The sample rate that an answer will have; opens nothing. Raises BadRequest as `open_encoder` does."""
    if format not in FORMATS:
        raise BadRequest(f"format must be one of {', '.join(FORMATS)}")
    entry = FORMATS[format]
    rate = entry.default_rate if sample_rate is None else sample_rate
    if rate not in entry.sample_rates:
        allowed = ", ".join(map(str, entry.sample_rates))
        raise BadRequest(f"sample_rate of {format} must be one of {allowed}")
    return rate
