"""Fragmented MP4 for one AAC track: an initialization segment, then `moof` + `mdat` pairs (ISO/IEC 14496-12, -14).

Written here because libavformat's muxer can't be told through PyAV to end a fragment: it holds back a whole fragment
and the frame after it (0.22 s at 24 kHz) until the next sentence has been synthesized, where this holds back nothing.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass

_TRACK_ID = 1
_UNITY_MATRIX = struct.pack(">9I", 0x10000, 0, 0, 0, 0x10000, 0, 0, 0, 0x40000000)
_UNDETERMINED_LANGUAGE = 0x55C4
_SYNC_SAMPLE = 0x02000000
_DEFAULT_BASE_IS_MOOF = 0x020000
_DATA_OFFSET, _SAMPLE_DURATION, _SAMPLE_SIZE = 0x1, 0x100, 0x200


@dataclass(frozen=True, slots=True)
class Frame:
    """One coded AAC frame; its duration is in samples, and shorter than the codec's frame at the end of a stream."""

    data: bytes
    duration_samples: int


def initialization(sample_rate: int, bit_rate: int, audio_specific_config: bytes, priming_samples: int) -> bytes:
    """`ftyp` + `moov`. An edit list declares the priming, so that players drop the encoder's delay."""
    return _box(b"ftyp", b"iso6", struct.pack(">I", 0), b"iso6", b"mp41") + _box(
        b"moov",
        _full(b"mvhd", 0, 0, struct.pack(">4I", 0, 0, sample_rate, 0), _movie_defaults()),
        _box(
            b"trak",
            # Flags: enabled, in movie, in preview.
            _full(b"tkhd", 0, 7, struct.pack(">5I", 0, 0, _TRACK_ID, 0, 0), _track_defaults()),
            # Length 0: to the end of all fragments.
            _box(b"edts", _full(b"elst", 0, 0, struct.pack(">IIiI", 1, 0, priming_samples, 0x10000))),
            _box(
                b"mdia",
                _full(b"mdhd", 0, 0, struct.pack(">4IHH", 0, 0, sample_rate, 0, _UNDETERMINED_LANGUAGE, 0)),
                _full(b"hdlr", 0, 0, struct.pack(">I4s12x", 0, b"soun"), b"SoundHandler\0"),
                _box(
                    b"minf",
                    _full(b"smhd", 0, 0, bytes(4)),
                    _box(b"dinf", _full(b"dref", 0, 0, struct.pack(">I", 1), _full(b"url ", 0, 1))),
                    _box(
                        b"stbl",
                        _full(
                            b"stsd",
                            0,
                            0,
                            struct.pack(">I", 1),
                            _sample_entry(sample_rate, bit_rate, audio_specific_config),
                        ),
                        _full(b"stts", 0, 0, bytes(4)),
                        _full(b"stsc", 0, 0, bytes(4)),
                        _full(b"stsz", 0, 0, bytes(8)),
                        _full(b"stco", 0, 0, bytes(4)),
                    ),
                ),
            ),
        ),
        _box(b"mvex", _full(b"trex", 0, 0, struct.pack(">5I", _TRACK_ID, 1, 0, 0, _SYNC_SAMPLE))),
    )


def fragment(sequence: int, start_samples: int, frames: Sequence[Frame]) -> bytes:
    """`moof` + `mdat` of at least one frame.

    Args:
        sequence: 1 for the first fragment, one more for each after it.
        start_samples: durations of all frames before these, priming included.
    """
    table = b"".join(struct.pack(">II", frame.duration_samples, len(frame.data)) for frame in frames)
    moof_bytes = 8 + 16 + 8 + 16 + 20 + 20 + len(table)
    moof = _box(
        b"moof",
        _full(b"mfhd", 0, 0, struct.pack(">I", sequence)),
        _box(
            b"traf",
            _full(b"tfhd", 0, _DEFAULT_BASE_IS_MOOF, struct.pack(">I", _TRACK_ID)),
            _full(b"tfdt", 1, 0, struct.pack(">Q", start_samples)),
            _full(
                b"trun",
                0,
                _DATA_OFFSET | _SAMPLE_DURATION | _SAMPLE_SIZE,
                struct.pack(">II", len(frames), moof_bytes + 8),
                table,
            ),
        ),
    )
    assert len(moof) == moof_bytes
    return moof + _box(b"mdat", *(frame.data for frame in frames))


def _movie_defaults() -> bytes:
    """The end of `mvhd`: normal rate, full volume, no transformation, the next track's id."""
    return struct.pack(">IH10x", 0x10000, 0x100) + _UNITY_MATRIX + bytes(24) + struct.pack(">I", _TRACK_ID + 1)


def _track_defaults() -> bytes:
    """The end of `tkhd`: layer, group, full volume, no transformation, no picture."""
    return struct.pack(">8xHHHH", 0, 0, 0x100, 0) + _UNITY_MATRIX + bytes(8)


def _sample_entry(sample_rate: int, bit_rate: int, audio_specific_config: bytes) -> bytes:
    """`mp4a` with its `esds` (14496-1, 7.2.6.5): MPEG-4 audio, one channel."""
    decoder = _descriptor(
        0x04,
        struct.pack(">BBBHII", 0x40, 0x15, 0, 0, bit_rate, bit_rate),
        _descriptor(0x05, audio_specific_config),
    )
    stream = _descriptor(0x03, struct.pack(">HB", _TRACK_ID, 0), decoder, _descriptor(0x06, b"\x02"))
    return _box(b"mp4a", struct.pack(">6xH8xHHHHI", 1, 1, 16, 0, 0, sample_rate << 16), _full(b"esds", 0, 0, stream))


def _descriptor(tag: int, *parts: bytes) -> bytes:
    body = b"".join(parts)
    return bytes((tag, len(body))) + body


def _box(kind: bytes, *parts: bytes) -> bytes:
    body = b"".join(parts)
    return struct.pack(">I", 8 + len(body)) + kind + body


def _full(kind: bytes, version: int, flags: int, *parts: bytes) -> bytes:
    return _box(kind, struct.pack(">I", version << 24 | flags), *parts)
