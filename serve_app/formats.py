"""The audio formats that a client may ask for, each with its rates and media type: one table for wire and encoders."""

from dataclasses import dataclass

SAMPLE_RATES = (8_000, 16_000, 22_050, 24_000, 44_100, 48_000)
DEFAULT_SAMPLE_RATE = 24_000


@dataclass(frozen=True, slots=True)
class Format:
    """What a client may ask for.

    Attributes:
        media_type: `{rate}` stands for the sample rate.
        sample_rates: Hz; those that the format allows, and that let audio out within 0.2 s of the first samples.
        sample_bytes: borders at which a frame of the stream may end; 1 where bytes are a codec's.
    """

    media_type: str
    sample_rates: tuple[int, ...] = SAMPLE_RATES
    sample_bytes: int = 1

    @property
    def default_rate(self) -> int:
        """What an answer has when the client names no rate."""
        return DEFAULT_SAMPLE_RATE if DEFAULT_SAMPLE_RATE in self.sample_rates else self.sample_rates[0]


FORMATS: dict[str, Format] = {
    "wav": Format("audio/wav", sample_bytes=2),
    "mp3": Format("audio/mpeg"),
    "pcm": Format("audio/pcm;rate={rate}", sample_bytes=2),
    # At 8 kHz the two frames that AAC needs are 0.26 s.
    "aac": Format("audio/mp4", SAMPLE_RATES[1:]),
    # RFC 6716, table 1, as far as it overlaps with ours.
    "opus": Format("audio/ogg", (8_000, 16_000, 24_000, 48_000)),
    "flac": Format("audio/flac"),
    # Telephony, ITU-T G.711.
    "ulaw": Format("audio/basic", (8_000,)),
}
