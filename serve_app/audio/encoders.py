"""Model audio to the format and rate of one answer: resample, quantise, code, in that order and only here.

CPU per second of audio, in milliseconds (scripts/bench_encoders.py): wav, pcm and ulaw 0.1, flac 1, opus 3, mp3 4,
aac 10; another rate than the model's adds 0.3, mp3 and aac at 44.1 or 48 kHz 3 more. libavcodec works without the
interpreter lock, yet on the calling thread: hand a long segment over in slices of a second, the audio is the same.
"""

from collections.abc import Callable
from dataclasses import dataclass

from serve_app.audio.codecs import Aac, Codec, Flac, Mp3, Opus, Pcm, Ulaw, Wav
from serve_app.audio.pcm import MODEL_RATE, Samples, to_s16le
from serve_app.audio.resample import Resampler
from serve_app.errors import BadRequest

SAMPLE_RATES = (8_000, 16_000, 22_050, 24_000, 44_100, 48_000)


@dataclass(frozen=True, slots=True)
class Format:
    """What a client may ask for.

    Attributes:
        media_type: `{rate}` stands for the sample rate.
        sample_rates: those that the format allows, and that let audio out within 0.2 s of the first samples.
        default_rate: what an answer has when the client names no rate.
    """

    media_type: str
    open_codec: Callable[[int], Codec]
    sample_rates: tuple[int, ...] = SAMPLE_RATES
    default_rate: int = MODEL_RATE


FORMATS: dict[str, Format] = {
    "wav": Format("audio/wav", Wav),
    "mp3": Format("audio/mpeg", Mp3),
    "pcm": Format("audio/pcm;rate={rate}", lambda _: Pcm()),
    # At 8 kHz the two frames that AAC needs are 0.26 s.
    "aac": Format("audio/mp4", Aac, SAMPLE_RATES[1:]),
    "opus": Format("audio/ogg", Opus, (8_000, 16_000, 24_000, 48_000)),
    "flac": Format("audio/flac", Flac),
    "ulaw": Format("audio/basic", lambda _: Ulaw(), (8_000,), default_rate=8_000),
}


class AudioEncoder:
    """One answer's audio as one continuous stream: a single header, no gap between calls.

    Dropping an unfinished encoder frees all that it holds; there is nothing to close.
    """

    def __init__(self, media_type: str, codec: Codec, sample_rate: int) -> None:
        self.media_type = media_type
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
    entry = FORMATS[format]
    return AudioEncoder(entry.media_type.format(rate=rate), entry.open_codec(rate), rate)


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
