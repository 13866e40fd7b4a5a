import struct

from serve_app.audio.mp4 import Frame, fragment, initialization

CONFIG = bytes.fromhex("130856e500")


def boxes(data):
    """(kind, payload) of the boxes that fill `data` exactly."""
    found, at = [], 0
    while at < len(data):
        size, kind = struct.unpack_from(">I4s", data, at)
        assert 8 <= size <= len(data) - at
        found.append((kind, data[at + 8 : at + size]))
        at += size
    return found


def inside(data, *path):
    for kind in path:
        data = dict(boxes(data))[kind]
    return data


def test_the_initialization_segment_declares_rate_priming_and_codec():
    init = initialization(24_000, 32_000, CONFIG, priming_samples=1024)
    assert [kind for kind, _ in boxes(init)] == [b"ftyp", b"moov"]
    edit = inside(init, b"moov", b"trak", b"edts", b"elst")
    assert struct.unpack(">IIIiI", edit) == (0, 1, 0, 1024, 0x10000)
    assert struct.unpack_from(">I", inside(init, b"moov", b"trak", b"mdia", b"mdhd"), 12) == (24_000,)
    sample_entry = inside(init, b"moov", b"trak", b"mdia", b"minf", b"stbl", b"stsd")[8:]
    assert sample_entry[4:8] == b"mp4a"
    assert CONFIG in sample_entry


def test_a_fragment_points_at_its_own_frames():
    frames = [Frame(b"first", 1024), Frame(b"second", 320)]
    data = fragment(3, 5_000, frames)
    (moof, _), (mdat, payload) = boxes(data)
    assert (moof, mdat, payload) == (b"moof", b"mdat", b"firstsecond")
    assert struct.unpack(">II", inside(data, b"moof", b"mfhd")) == (0, 3)
    assert struct.unpack_from(">Q", inside(data, b"moof", b"traf", b"tfdt"), 4) == (5_000,)
    run = inside(data, b"moof", b"traf", b"trun")
    count, offset = struct.unpack_from(">II", run, 4)
    assert data[offset:].startswith(b"firstsecond")
    assert (count, struct.unpack_from(">4I", run, 12)) == (2, (1024, 5, 320, 6))
