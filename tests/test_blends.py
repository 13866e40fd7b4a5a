import pytest
from hypothesis import given
from hypothesis import strategies as st

from serve_app.blends import MAX_VOICES, check_voice, parse_blend
from serve_app.errors import BadRequest, UnknownVoice

KNOWN = ("af_bella", "af_heart", "af_sky", "my-voice_2")


@pytest.mark.parametrize(
    ("voice", "shares"),
    [
        ("af_heart", {"af_heart": 1.0}),
        ("af_heart(3)", {"af_heart": 1.0}),
        ("af_bella+af_sky", {"af_bella": 0.5, "af_sky": 0.5}),
        ("af_bella(2)+af_sky(2)", {"af_bella": 0.5, "af_sky": 0.5}),
        ("af_bella(3)+af_sky(1)", {"af_bella": 0.75, "af_sky": 0.25}),
        ("af_bella(3)+af_sky", {"af_bella": 0.75, "af_sky": 0.25}),
        ("af_bella(.75) + af_sky(0.25)", {"af_bella": 0.75, "af_sky": 0.25}),
        ("af_sky(1.)+af_sky+af_bella(2)", {"af_sky": 0.5, "af_bella": 0.5}),
        ("my-voice_2+af_sky", {"my-voice_2": 0.5, "af_sky": 0.5}),
    ],
)
def test_a_blend_is_the_share_of_each_voice(voice, shares):
    assert parse_blend(voice) == shares
    assert list(parse_blend(voice)) == list(shares)
    check_voice(voice, KNOWN)


@pytest.mark.parametrize(
    "voice",
    [
        "",
        " ",
        "+",
        "af_bella+",
        "+af_bella",
        "af_bella++af_sky",
        "af_bella(0)+af_sky",
        "af_bella(0.0)",
        "af_bella(-1)+af_sky",
        "af_bella(nan)+af_sky",
        "af_bella(inf)",
        "af_bella(1e3)",
        "af_bella(1_0)",
        "af_bella(٣)",
        "af_bella()",
        "af_bella(1",
        "af_bella1)",
        "af_bella(1)(2)",
        "af_bella(1)af_sky(1)",
        "(2)",
        "(2)af_bella",
        f"af_bella({'9' * 400})",
        "+".join(["af_bella"] * (MAX_VOICES + 1)),
        "af_bella+" * 50_000,
    ],
)
def test_any_other_form_is_refused_with_the_grammar(voice):
    with pytest.raises(BadRequest, match=r"af_bella\(2\)\+af_sky\(1\)") as caught:
        parse_blend(voice)
    assert caught.value.field == "voice"
    assert len(caught.value.message) < 200


def test_as_many_voices_as_allowed_can_be_blended():
    assert sum(parse_blend("+".join(f"v{n}(0.1)" for n in range(MAX_VOICES))).values()) == pytest.approx(1)


@pytest.mark.parametrize("voice", ["af_hart", "af_sky+af_hart", "af_hart(2)+af_sky(1)", "AF_HEART"])
def test_a_voice_that_is_not_there_is_named_with_near_matches_wherever_it_stands(voice):
    with pytest.raises(UnknownVoice, match=r"^unknown voice '(af_hart|AF_HEART)'; did you mean .*af_heart"):
        check_voice(voice, KNOWN)


@pytest.mark.parametrize("voice", ["../secret", "/etc/passwd", "af_heart.pt", "a b", " af_heart", "<b>", "x" * 100_000])
def test_what_cannot_be_the_name_of_a_voice_is_not_echoed(voice):
    for asked in (voice, f"af_sky+{voice.strip()}"):
        if asked.removeprefix("af_sky+") in KNOWN:
            continue
        with pytest.raises(UnknownVoice) as caught:
            check_voice(asked, KNOWN)
        assert caught.value.message.startswith("unknown voice; ")


@given(st.text(st.sampled_from("af_sky+(). 12"), max_size=30) | st.text(max_size=20))
def test_every_text_is_a_blend_with_shares_or_a_refusal_in_a_short_sentence(voice):
    try:
        check_voice(voice, KNOWN)
    except (BadRequest, UnknownVoice) as exc:
        refusal = exc
    else:
        assert sum(parse_blend(voice).values()) == pytest.approx(1)
        assert min(parse_blend(voice).values()) > 0
        return
    assert len(refusal.message) < 300


@given(
    st.lists(st.tuples(st.sampled_from(KNOWN), st.decimals("0.001", "1000", places=3)), min_size=1, max_size=MAX_VOICES)
)
def test_only_the_ratio_of_the_weights_counts(members):
    once, tenfold = (
        parse_blend("+".join(f"{name}({weight * factor:f})" for name, weight in members)) for factor in (1, 10)
    )
    assert once == pytest.approx(tenfold)
