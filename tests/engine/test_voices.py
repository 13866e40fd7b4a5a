import pickle

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from serve_app.engine.files import WeightsError
from serve_app.engine.voices import VoiceStore, read_voice_folder
from serve_app.errors import BadRequest, UnknownVoice


def voice(first: float = 0.0) -> torch.Tensor:
    """Row n - 1 is filled with first + n - 1."""
    rows = torch.arange(510, dtype=torch.float32).reshape(510, 1, 1) + first
    return rows.expand(510, 1, 256).contiguous()


STORE = VoiceStore({"bf_emma": voice(1000), "af_heart": voice(), "af_bella": voice(2000)})


def test_names_are_sorted():
    assert STORE.names == ("af_bella", "af_heart", "bf_emma")


@pytest.mark.parametrize("phonemes", [1, 2, 509, 510])
def test_the_style_row_is_the_number_of_phonemes_minus_one(phonemes):
    style = STORE.style("af_heart", phonemes)
    assert style.shape == (1, 256)
    assert (style == phonemes - 1).all()


@pytest.mark.parametrize("phonemes", [-1, 0, 511])
def test_no_style_for_a_length_that_the_model_cannot_speak(phonemes):
    with pytest.raises(ValueError, match="1..510"):
        STORE.style("af_heart", phonemes)


def test_a_blends_style_is_the_weighted_mean_of_its_voices_styles_for_that_length():
    # 0.75 * (2000 + 9) + 0.25 * 9
    assert (STORE.style("af_bella(3)+af_heart(1)", 10) == 1509).all()
    assert (STORE.style("af_bella+af_heart+bf_emma", 1) == 1000).all()
    assert STORE.style("af_bella+af_heart", 510).shape == (1, 256)


def test_a_blend_sounds_the_same_however_it_is_written():
    store = VoiceStore({name: torch.randn(510, 1, 256) for name in ("a", "b", "c")})
    style = store.style("a(1)+b(2)+c(3)", 7)
    assert torch.equal(style, store.style("c(3)+a+b+b", 7))
    assert torch.equal(store.style("b(2)", 7), store.style("b", 7))
    assert torch.equal(store.style("b", 7), store.pack("b")[6])


@pytest.mark.parametrize("ask", [STORE.check, STORE.pack, lambda voice: STORE.style(voice, 1)])
def test_an_unknown_voice_lists_near_matches(ask):
    with pytest.raises(UnknownVoice, match="unknown voice 'af_hart'; did you mean af_heart"):
        ask("af_hart")


@pytest.mark.parametrize("ask", [STORE.check, lambda voice: STORE.style(voice, 1)])
def test_a_blend_needs_known_voices_and_positive_weights(ask):
    with pytest.raises(UnknownVoice, match="'af_hart'"):
        ask("af_heart+af_hart(2)")
    with pytest.raises(BadRequest):
        ask("af_heart(0)+af_bella")


@given(st.text().filter(lambda name: name not in STORE.names))
def test_any_other_name_is_no_pack_in_a_short_sentence(name):
    with pytest.raises(UnknownVoice) as caught:
        STORE.pack(name)
    assert len(caught.value.message) < 300


@pytest.mark.parametrize("blend", ["af_heart(1)", "af_heart+af_bella"])
def test_a_blend_has_no_pack(blend):
    with pytest.raises(UnknownVoice):
        STORE.pack(blend)


def test_official_voice_files_are_read(tmp_path):
    torch.save(voice(5), tmp_path / "af_heart.pt")
    torch.save(voice(6), tmp_path / "my-voice_2.pt")
    (tmp_path / "notes.txt").write_text("not a voice")
    store = read_voice_folder(tmp_path)
    assert store.names == ("af_heart", "my-voice_2")
    assert torch.equal(store.pack("my-voice_2"), voice(6))


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (voice()[:100], r"float32 \[100, 1, 256\] instead of float32 \[510, 1, 256\]"),
        (voice().squeeze(1), r"float32 \[510, 256\] instead"),
        (voice().half(), "float16"),
        (voice() * float("nan"), "not finite"),
        (voice() + float("inf"), "not finite"),
        ({"a": 1}, "dict instead"),
    ],
)
def test_a_file_that_is_no_voice_is_refused_by_name(tmp_path, content, complaint):
    torch.save(voice(), tmp_path / "af_bella.pt")
    torch.save(content, tmp_path / "af_heart.pt")
    with pytest.raises(WeightsError, match=rf"af_heart\.pt.*{complaint}"):
        read_voice_folder(tmp_path)


def test_a_truncated_voice_is_refused(tmp_path):
    torch.save(voice(), tmp_path / "af_heart.pt")
    whole = (tmp_path / "af_heart.pt").read_bytes()
    (tmp_path / "af_heart.pt").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(WeightsError, match=r"af_heart\.pt is not a voice file"):
        read_voice_folder(tmp_path)


class Trap:
    def __reduce__(self):
        return (raise_trap, ())


def raise_trap():
    pytest.fail("a voice file ran code")


def test_a_voice_file_cannot_run_code(tmp_path):
    torch.save(Trap(), tmp_path / "af_heart.pt")
    (tmp_path / "af_sky.pt").write_bytes(pickle.dumps(Trap()))
    with pytest.raises(WeightsError, match="is not a voice file"):
        read_voice_folder(tmp_path)


def test_a_voice_that_no_client_could_ask_for_is_refused(tmp_path):
    torch.save(voice(), tmp_path / "af heart.pt")
    with pytest.raises(WeightsError, match="no voice name"):
        read_voice_folder(tmp_path)


def test_a_folder_without_voices_is_refused_by_name(tmp_path):
    with pytest.raises(WeightsError, match=f"no voice in {tmp_path}"):
        read_voice_folder(tmp_path)
