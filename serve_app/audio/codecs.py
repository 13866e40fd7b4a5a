"""PCM s16le to the bytes of one format, as a stream: one header, then audio as soon as the codec has it.

Each class codes one answer: `write` any number of times with any whole number of samples, then `end` once. Abandoned
objects need no closing; they hold memory only, no file and no thread.

Encoders are libavcodec's through PyAV, chosen by scripts/bench_encoders.py on 40 s of the model's speech at 24 kHz (ms
of audio taken in before the first audio byte, CPU ms per second of audio, kbit/s; two shared cores):

    mp3   PyAV, no reservoir 50, 3.7, 48.1; with it 100, 3.3, 48.1; lameenc 60, 2.6, 48.1 (cannot switch it off)
    aac   PyAV, mp4.py 90, 9.4, 41.3; libavformat's muxer 175, 7.8, 46.0 or 215, 10.9, 42.7, by the length of fragments
    opus  PyAV, complexity 5 120, 3.0, 39.7; complexity 10 120, 10.9, 33.3
    flac  PyAV 50, 0.8, 190

One library for all four beats a second one that is a millisecond cheaper. It is imported when the first compressed
format is opened, so that a server of wav and pcm starts without it.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from serve_app.audio import mp4
from serve_app.audio.pcm import SAMPLE_BYTES, from_s16le

if TYPE_CHECKING:
    from av.audio.codeccontext import AudioCodecContext
    from av.audio.stream import AudioStream
    from av.packet import Packet

_UNKNOWN_LENGTH = 0xFFFFFFFF
_WAV_HEADER_BYTES = 44
_FLAC_STREAMINFO_BYTES = 34
_AAC_FRAME_SAMPLES = 1024
_AAC_FRAGMENT_S = 0.2
_OGG_PAGE_US = 60_000
_FLAC_BLOCK_S = 0.05


class Codec(Protocol):
    """One answer's bytes in one format."""

    def write(self, pcm: bytes) -> bytes:
        """Code the next samples, s16le at the rate of the constructor; possibly nothing comes out yet."""
        ...

    def end(self) -> bytes:
        """What is still held back. Nothing may be written afterwards."""
        ...

    def completed(self, stream: bytes) -> bytes:
        """The whole ended stream as a file of known length: true sizes where the format has any."""
        ...


class Pcm:
    """The samples themselves."""

    def write(self, pcm: bytes) -> bytes:
        return pcm

    def end(self) -> bytes:
        return b""

    def completed(self, stream: bytes) -> bytes:
        return stream


class Ulaw:
    """G.711 mu-law, one byte a sample, as telephony carries it."""

    def write(self, pcm: bytes) -> bytes:
        return mu_law(np.frombuffer(pcm, dtype="<i2"))

    def end(self) -> bytes:
        return b""

    def completed(self, stream: bytes) -> bytes:
        return stream


class Wav:
    """A RIFF header of unknown length (a stream cannot seek back), then the samples, then nothing."""

    def __init__(self, sample_rate: int) -> None:
        self._sample_rate = sample_rate
        self._pending = wav_header(sample_rate, data_bytes=None)

    def write(self, pcm: bytes) -> bytes:
        header, self._pending = self._pending, b""
        return header + pcm

    def end(self) -> bytes:
        return self.write(b"")

    def completed(self, stream: bytes) -> bytes:
        pcm = stream[_WAV_HEADER_BYTES:]
        return wav_header(self._sample_rate, data_bytes=len(pcm)) + pcm


class Mp3:
    """Bare 48 kbit/s frames: no ID3, no Xing or Info header that a longer stream would make a lie.

    Without the bit reservoir each frame stands alone, so any prefix decodes, and the first frame leaves one frame
    earlier. Decoders start with 1105 samples of priming (576 of the encoder, 529 of the decoder).
    """

    def __init__(self, sample_rate: int) -> None:
        self._encoder = _Encoder(_context("libmp3lame", "s16p", sample_rate, 48_000, {"reservoir": "0"}))

    def write(self, pcm: bytes) -> bytes:
        return b"".join(bytes(packet) for packet in self._encoder.encode(pcm))

    def end(self) -> bytes:
        return b"".join(bytes(packet) for packet in self._encoder.finish())

    def completed(self, stream: bytes) -> bytes:
        return stream


class Aac:
    """AAC-LC, 32 kbit/s, in fragmented MP4. A fragment ends after 0.2 s or where the samples given so far end."""

    _BIT_RATE = 32_000

    def __init__(self, sample_rate: int) -> None:
        context = _context("aac", "fltp", sample_rate, self._BIT_RATE, {"flags": "+global_header"})
        self._encoder = _Encoder(context)
        self._pending = mp4.initialization(
            sample_rate, self._BIT_RATE, context.extradata or b"", priming_samples=_AAC_FRAME_SAMPLES
        )
        self._fragment_frames = int(_AAC_FRAGMENT_S * sample_rate / _AAC_FRAME_SAMPLES)
        self._sequence = 0
        self._position_samples = 0

    def write(self, pcm: bytes) -> bytes:
        return self._fragments(self._encoder.encode(pcm))

    def end(self) -> bytes:
        return self._fragments(self._encoder.finish())

    def completed(self, stream: bytes) -> bytes:
        return stream

    def _fragments(self, packets: list[Packet[AudioStream]]) -> bytes:
        parts, self._pending = [self._pending], b""
        frames = [mp4.Frame(bytes(packet), packet.duration or _AAC_FRAME_SAMPLES) for packet in packets]
        for start in range(0, len(frames), self._fragment_frames):
            group = frames[start : start + self._fragment_frames]
            self._sequence += 1
            parts.append(mp4.fragment(self._sequence, self._position_samples, group))
            self._position_samples += sum(frame.duration_samples for frame in group)
        return b"".join(parts)


class Flac:
    """Native FLAC in blocks of 50 ms. The total is 0 ("unknown") while it streams; `completed` fills it in."""

    def __init__(self, sample_rate: int) -> None:
        block_samples = int(_FLAC_BLOCK_S * sample_rate)
        self._context = _context("flac", "s16", sample_rate, None, {"frame_size": str(block_samples)})
        self._encoder = _Encoder(self._context)
        self._pending = self._header()

    def write(self, pcm: bytes) -> bytes:
        return self._take(self._encoder.encode(pcm))

    def end(self) -> bytes:
        return self._take(self._encoder.finish())

    def completed(self, stream: bytes) -> bytes:
        header = self._header()  # by now the encoder knows frame sizes, the number of samples and their MD5
        return header + stream[len(header) :]

    def _take(self, packets: list[Packet[AudioStream]]) -> bytes:
        header, self._pending = self._pending, b""
        return header + b"".join(bytes(packet) for packet in packets)

    def _header(self) -> bytes:
        """The mark and STREAMINFO as the only, hence last, metadata block (RFC 9639, section 8)."""
        return b"fLaC" + bytes((0x80, 0, 0, _FLAC_STREAMINFO_BYTES)) + (self._context.extradata or b"")


class Opus:
    """Opus at 32 kbit/s in Ogg; to a decoder always 48 kHz. libavformat holds back one page, so pages are short.

    The header declares the pre-skip and the last page the exact end (RFC 7845), so nothing is added to the samples.
    Complexity 5: from 7 on libopus also switches between its speech and music modes in mid-answer, measured as level
    steps of up to 5 dB on real speech, for three times the CPU.
    """

    def __init__(self, sample_rate: int) -> None:
        import av

        self._written = _Written()
        self._container = av.open(
            self._written,
            "w",
            format="ogg",
            options={"page_duration": str(_OGG_PAGE_US), "flush_packets": "1", "fflags": "+bitexact"},
        )
        self._stream = self._container.add_stream(
            "libopus", rate=sample_rate, options={"compression_level": "5"}, layout="mono", format="s16"
        )
        context = self._stream.codec_context
        context.bit_rate = 32_000
        context.thread_count = 1
        self._container.start_encoding()
        self._encoder = _Encoder(context)

    def write(self, pcm: bytes) -> bytes:
        self._mux(self._encoder.encode(pcm))
        return self._written.take()

    def end(self) -> bytes:
        self._mux(self._encoder.finish())
        self._container.close()
        return self._written.take()

    def completed(self, stream: bytes) -> bytes:
        return stream

    def _mux(self, packets: list[Packet[AudioStream]]) -> None:
        for packet in packets:
            packet.stream = self._stream
            self._container.mux_one(packet)


def wav_header(sample_rate: int, data_bytes: int | None) -> bytes:
    """44 bytes of RIFF header for mono s16le; both sizes are 0xFFFFFFFF when the length is not known."""
    riff_bytes = _UNKNOWN_LENGTH if data_bytes is None else _WAV_HEADER_BYTES - 8 + data_bytes
    return struct.pack(
        "<4sI4s4sIHHIIHH4sI",
        b"RIFF",
        riff_bytes,
        b"WAVE",
        b"fmt ",
        16,
        1,  # PCM
        1,  # channel
        sample_rate,
        sample_rate * SAMPLE_BYTES,
        SAMPLE_BYTES,
        8 * SAMPLE_BYTES,
        b"data",
        _UNKNOWN_LENGTH if data_bytes is None else data_bytes,
    )


def mu_law(samples: NDArray[np.int16]) -> bytes:
    """G.711 mu-law of 16-bit samples, shape [n]: n bytes of inverted sign, 3 bits of segment, 4 bits of step."""
    biased = np.minimum(np.abs(samples.astype(np.int32)), 32635) + 132
    segment = np.searchsorted(2 ** np.arange(8, 15), biased, side="right")
    step = biased >> (segment + 3) & 0x0F
    sign = np.where(samples < 0, 0x80, 0)
    coded: NDArray[np.uint8] = (~(sign | segment << 4 | step) & 0xFF).astype(np.uint8)
    return coded.tobytes()


class _Encoder:
    """One libavcodec audio encoder fed with PCM s16le in pieces of any length."""

    def __init__(self, context: AudioCodecContext) -> None:
        self._context = context
        self._fed_samples = 0

    def encode(self, pcm: bytes) -> list[Packet[AudioStream]]:
        if not pcm:
            return []
        from av.audio.frame import AudioFrame

        sample_format = self._context.format.name
        samples = from_s16le(pcm) if sample_format == "fltp" else np.frombuffer(pcm, dtype="<i2")
        frame = AudioFrame.from_ndarray(samples[np.newaxis], format=sample_format, layout="mono")
        frame.sample_rate = self._context.sample_rate
        frame.pts = self._fed_samples
        self._fed_samples += len(samples)
        return self._context.encode(frame)

    def finish(self) -> list[Packet[AudioStream]]:
        return self._context.encode(None)


class _Written:
    """Where a muxer writes; without a `seek`, so that it never goes back to a header."""

    def __init__(self) -> None:
        self._data = bytearray()

    def write(self, data: bytes) -> int:
        self._data += data
        return len(data)

    def take(self) -> bytes:
        data = bytes(self._data)
        self._data.clear()
        return data


def _context(
    name: Literal["aac", "flac", "libmp3lame"],
    sample_format: str,
    sample_rate: int,
    bit_rate: int | None,
    options: dict[str, str],
) -> AudioCodecContext:
    """An opened mono encoder of libavcodec on the calling thread."""
    import av

    context = av.CodecContext.create(name, "w")
    context.sample_rate = sample_rate
    context.layout = "mono"
    context.format = sample_format
    if bit_rate is not None:
        context.bit_rate = bit_rate
    context.thread_count = 1
    context.options = options
    context.open()
    return context
