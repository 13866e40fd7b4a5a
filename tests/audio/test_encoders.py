import gc
import io
import os
import subprocess
import sys
import wave
from itertools import accumulate

import av
import numpy as np
import pytest
import soxr

from serve_app.audio.codecs import mu_law
from serve_app.audio.encoders import check_format, open_encoder
from serve_app.audio.pcm import from_s16le, to_s16le
from serve_app.audio.resample import Resampler
from serve_app.errors import BadRequest
from serve_app.formats import FORMATS
from tests.audio.signals import RATE, cut, voice_like
from tests.audio.test_mp4 import boxes

EVERY = [(name, rate) for name, entry in FORMATS.items() for rate in entry.sample_rates]
CONTAINED = [pair for pair in EVERY if pair[0] not in ("pcm", "ulaw")]
AT_DEFAULT = [(name, entry.default_rate) for name, entry in FORMATS.items()]
MP3_PRIMING = 1105
FRAME_SAMPLES = {"mp3": 1152, "aac": 1024, "opus": 960, "flac": 0, "wav": 0}


def encoded(pieces, format, rate):
    encoder = open_encoder(format, rate)
    return b"".join([*(encoder.encode(piece) for piece in pieces), encoder.finish()])


def decoded(data, format=None):
    """(float samples [n], rate) by libavformat and libavcodec."""
    with av.open(io.BytesIO(data), format=format) as container:
        frames = [frame.to_ndarray() for frame in container.decode(audio=0)]
        rate = container.streams.audio[0].rate
    samples = np.concatenate([frame.reshape(-1) for frame in frames])
    return (samples / 32767.0 if samples.dtype == np.int16 else samples), rate


def resampled(samples, rate):
    resampler = Resampler(RATE, rate)
    return np.concatenate((resampler.resample(samples), resampler.finish()))


@pytest.mark.parametrize(("format", "rate"), CONTAINED)
@pytest.mark.parametrize("pieces", [1, 3, 20])
def test_the_decoded_stream_is_as_long_as_the_pcm_however_it_was_cut(format, rate, pieces):
    samples = voice_like(1.7)
    audio, out_rate = decoded(encoded(cut(samples, pieces), format, rate))
    declared = MP3_PRIMING if format == "mp3" else 0
    assert out_rate == (48_000 if format == "opus" else rate)
    surplus = len(audio) - declared - len(samples) * out_rate / RATE
    assert -1 <= surplus <= FRAME_SAMPLES[format] + 1


@pytest.mark.parametrize(("format", "rate"), CONTAINED)
def test_the_decoded_audio_is_the_audio_without_a_gap_and_in_its_place(format, rate):
    samples = voice_like(1.7)
    audio, out_rate = decoded(encoded(cut(samples, 20), format, rate))
    if format == "mp3":
        audio = audio[MP3_PRIMING:]
    reference = resampled(samples, rate)
    audio = soxr.resample(audio, out_rate, rate)
    length = min(len(audio), len(reference)) - rate // 100
    window = rate // 50
    levels, expected = (
        np.sqrt((signal[: length // window * window].reshape(-1, window) ** 2).mean(axis=1))
        for signal in (audio, reference)
    )
    assert np.all(np.abs(20 * np.log10(levels / expected)) < 4), "a gap, or a burst"
    likeness = {shift: np.dot(audio[40 + shift : length + shift], reference[40:length]) for shift in range(-40, 41)}
    assert abs(max(likeness, key=likeness.__getitem__)) <= 1


@pytest.mark.parametrize(("format", "rate"), EVERY)
def test_the_first_audio_leaves_within_a_fifth_of_a_second(format, rate):
    encoder, samples, step = open_encoder(format, rate), voice_like(1.0), 120
    headers = {"wav": 44, "flac": 42, "mp3": 0, "pcm": 0, "ulaw": 0}
    sent = b""
    for taken in range(step, len(samples), step):
        sent += encoder.encode(samples[taken - step : taken])
        if format == "aac":
            audible = b"mdat" in sent
        elif format == "opus":
            audible = sent.count(b"OggS") > 2
        else:
            audible = len(sent) > headers[format]
        if audible:
            assert taken <= 0.2 * RATE
            return
    pytest.fail("no audio came out")


@pytest.mark.parametrize(("format", "rate"), AT_DEFAULT)
@pytest.mark.parametrize("pieces", [3, 20])
def test_slicing_changes_nothing_but_where_fragments_end(format, rate, pieces):
    samples = voice_like(1.1)
    whole, sliced = encoded([samples], format, rate), encoded(cut(samples, pieces), format, rate)
    if format == "aac":
        np.testing.assert_array_equal(decoded(whole)[0], decoded(sliced)[0])
    elif format == "opus":  # the muxer draws a serial number
        np.testing.assert_array_equal(decoded(whole)[0], decoded(sliced)[0])
        assert len(whole) == len(sliced)
    else:
        assert whole == sliced


@pytest.mark.parametrize(("format", "rate"), AT_DEFAULT)
def test_every_format_quantises_through_the_one_helper(format, rate):
    samples = np.tile(np.array([0, 1.0, 1.2, -1.0, -1.3, np.nan, np.inf, -np.inf, 0.25], np.float32), 400)
    samples = np.concatenate([samples, voice_like(0.5)])
    raw, quantised = (encoded([source], format, rate) for source in (samples, from_s16le(to_s16le(samples))))
    if format in ("aac", "opus"):
        np.testing.assert_array_equal(decoded(raw)[0], decoded(quantised)[0])
    elif rate == RATE:
        assert raw == quantised
    if format in ("pcm", "wav"):
        assert raw.endswith(to_s16le(samples))
    if format == "flac":
        assert to_s16le(decoded(raw)[0].astype(np.float32)) == to_s16le(samples)


def test_a_streamed_wav_says_that_its_length_is_unknown_and_ends_with_the_pcm():
    samples = voice_like(0.3)
    encoder = open_encoder("wav", 24_000)
    first, rest, end = encoder.encode(samples[:101]), encoder.encode(samples[101:]), encoder.finish()
    assert first[4:8] == first[40:44] == b"\xff\xff\xff\xff"
    assert (first + rest + end).count(b"RIFF") == 1
    assert first[44:] + rest == to_s16le(samples)
    assert end == b""


@pytest.mark.parametrize("rate", FORMATS["wav"].sample_rates)
def test_a_completed_wav_has_true_sizes(rate):
    samples = voice_like(0.3)
    encoder = open_encoder("wav", rate)
    data = encoder.completed(encoder.encode(samples) + encoder.finish())
    assert int.from_bytes(data[4:8], "little") == len(data) - 8
    assert int.from_bytes(data[40:44], "little") == len(data) - 44
    with wave.open(io.BytesIO(data)) as reader:
        assert (reader.getframerate(), reader.getnchannels(), reader.getsampwidth()) == (rate, 1, 2)
        assert reader.getnframes() == len(resampled(samples, rate))


def test_a_completed_flac_knows_its_length():
    samples = voice_like(0.7)
    encoder = open_encoder("flac", 24_000)
    stream = b"".join([*map(encoder.encode, cut(samples, 3)), encoder.finish()])
    data = encoder.completed(stream)
    with av.open(io.BytesIO(stream)) as unknown, av.open(io.BytesIO(data)) as known:
        assert unknown.duration is None
        assert known.duration == pytest.approx(0.7e6, abs=1)
    np.testing.assert_array_equal(decoded(data)[0], decoded(stream)[0])


@pytest.mark.parametrize(("format", "rate"), [pair for pair in AT_DEFAULT if pair[0] not in ("wav", "flac")])
def test_formats_without_sizes_are_complete_as_they_stream(format, rate):
    encoder = open_encoder(format, rate)
    stream = encoder.encode(voice_like(0.3)) + encoder.finish()
    assert encoder.completed(stream) == stream


def test_mp4_is_one_initialization_segment_and_then_fragments():
    kinds = [kind for kind, _ in boxes(encoded(cut(voice_like(3), 3), "aac", 24_000))]
    assert kinds[:2] == [b"ftyp", b"moov"]
    assert kinds[2::2] == [b"moof"] * (len(kinds[2:]) // 2)
    assert kinds[3::2] == [b"mdat"] * (len(kinds[2:]) // 2)


def test_ogg_begins_once_and_ends_once():
    data = encoded(cut(voice_like(3), 20), "opus", 24_000)
    flags = [page[1] for page in data.split(b"OggS")[1:]]
    assert [bool(flag & 2) for flag in flags] == [True] + [False] * (len(flags) - 1)
    assert [bool(flag & 4) for flag in flags] == [False] * (len(flags) - 1) + [True]
    assert data.count(b"OpusHead") == 1


def mp3_frames(data):
    """Lengths of the frames that fill `data` exactly (MPEG-2, layer III, 24 kHz)."""
    lengths, at = [], 0
    while at < len(data):
        assert int.from_bytes(data[at : at + 2]) & 0xFFFE == 0xFFF2
        kbit = (0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160)[data[at + 2] >> 4]
        lengths.append(72 * kbit * 1000 // 24_000 + (data[at + 2] >> 1 & 1))
        at += lengths[-1]
    assert at == len(data)
    return lengths


def test_mp3_is_bare_48_kbit_frames_from_the_first_byte_to_the_last():
    data = encoded(cut(voice_like(3), 20), "mp3", 24_000)
    assert set(mp3_frames(data)) == {144}
    assert not any(mark in data[:2_000] for mark in (b"Xing", b"Info", b"ID3", b"VBRI"))


def test_the_duration_of_a_long_mp3_is_not_a_lie():
    data = encoded([voice_like(3, seed=k) for k in range(10)], "mp3", 24_000)
    audio, rate = decoded(data)
    with av.open(io.BytesIO(data)) as container:
        assert container.duration / 1e6 == pytest.approx(len(audio) / rate, rel=0.05)
    assert len(audio) / rate == pytest.approx(30, rel=0.01)


def test_any_prefix_of_an_mp3_plays():
    data = encoded([voice_like(2)], "mp3", 24_000)
    whole, _ = decoded(data, "mp3")
    for length in (1_000, 3_333, 7_001, len(data) - 1):
        audio, _ = decoded(data[:length], "mp3")
        frames = length // 144
        assert len(audio) >= (frames - 1) * 576
        np.testing.assert_allclose(audio[: (frames - 1) * 576], whole[: (frames - 1) * 576], atol=1e-6)


def test_mu_law_is_g711():
    values = np.arange(-32768, 32768, dtype=np.int32).astype(np.int16)
    context = av.CodecContext.create("pcm_mulaw", "r")
    context.sample_rate, context.layout = 8_000, "mono"
    back = context.decode(av.Packet(mu_law(values)))[0].to_ndarray().reshape(-1).astype(np.int64)
    clipped = np.clip(values.astype(np.int64), -32635, 32635)
    segment_step = 2.0 ** (np.floor(np.log2(np.abs(clipped) + 132)) - 4)
    assert np.all(np.abs(back - clipped) <= segment_step / 2)
    assert mu_law(np.array([0, -1, 32767, -32768], np.int16)) == bytes((0xFF, 0x7F, 0x80, 0x00))


def test_ulaw_is_a_byte_a_sample_at_8_khz():
    assert len(encoded([voice_like(1)], "ulaw", None)) == 8_000


@pytest.mark.parametrize("format", ["WAV", "", "webm", "../wav"])
def test_an_unknown_format_is_refused_with_the_known_ones(format):
    with pytest.raises(BadRequest, match="wav, mp3, pcm, aac, opus, flac, ulaw"):
        open_encoder(format, 24_000)


@pytest.mark.parametrize(
    ("format", "rate"), [("opus", 22_050), ("opus", 44_100), ("ulaw", 24_000), ("aac", 8_000), ("wav", 11_025)]
)
def test_a_rate_that_the_format_lacks_is_refused_with_those_it_has(format, rate):
    allowed = ", ".join(map(str, FORMATS[format].sample_rates))
    with pytest.raises(BadRequest, match=allowed):
        check_format(format, rate)
    with pytest.raises(BadRequest, match=allowed):
        open_encoder(format, rate)


def test_without_a_rate_each_format_has_its_own():
    assert {name: check_format(name) for name in FORMATS} == {
        name: 8_000 if name == "ulaw" else 24_000 for name in FORMATS
    }


def test_media_types_are_those_of_the_contract():
    assert {name: open_encoder(name).media_type for name in FORMATS} == {
        "wav": "audio/wav",
        "mp3": "audio/mpeg",
        "pcm": "audio/pcm;rate=24000",
        "aac": "audio/mp4",
        "opus": "audio/ogg",
        "flac": "audio/flac",
        "ulaw": "audio/basic",
    }
    assert open_encoder("pcm", 8_000).media_type == "audio/pcm;rate=8000"


@pytest.mark.parametrize(("format", "rate"), CONTAINED)
def test_an_answer_of_a_few_samples_is_still_a_stream(format, rate):
    # Four mp3 frames are too few to recognise one by; a player knows the media type.
    audio, out_rate = decoded(encoded([voice_like(0.001)], format, rate), "mp3" if format == "mp3" else None)
    assert len(audio) >= int(0.001 * out_rate)


def test_a_server_of_wav_and_pcm_starts_without_the_codec_library():
    code = (
        "import sys; from serve_app.audio.encoders import open_encoder; open_encoder('wav'); open_encoder('pcm', 8000);"
        "sys.exit('av' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_abandoned_encoders_leave_nothing_behind():
    def abandon():
        for number in range(300):
            format, rate = EVERY[number % len(EVERY)]
            open_encoder(format, rate).encode(samples)
        gc.collect()

    def resident_bytes():
        with open("/proc/self/statm") as statm:
            return int(statm.read().split()[1]) * os.sysconf("SC_PAGESIZE")

    samples = voice_like(0.1)
    abandon()
    handles, threads, resident = (os.listdir("/proc/self/fd"), os.listdir("/proc/self/task"), resident_bytes())
    abandon()
    assert len(os.listdir("/proc/self/fd")) == len(handles)
    assert len(os.listdir("/proc/self/task")) == len(threads)
    assert resident_bytes() - resident < 20e6


def test_the_bytes_of_a_call_are_ready_at_once():
    """What a codec holds back of a sentence waits for the next one: never more than two frames and a page."""
    for format, rate in AT_DEFAULT:
        encoder = open_encoder(format, rate)
        sent = list(accumulate(len(encoder.encode(piece)) for piece in np.split(voice_like(2), 2)))
        assert sent[0] > 0.8 * (sent[1] - sent[0])
