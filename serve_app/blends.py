"""What a client may ask for as a voice: one voice, or a blend of several such as `af_bella(2)+af_sky(1)`."""

import re
from collections.abc import Collection

from serve_app.errors import BadRequest, UnknownVoice

MAX_VOICES = 8

_MEMBER = re.compile(r"([^()+]*[^()+ ])(?:\(([0-9]{1,9}(?:\.[0-9]*)?|\.[0-9]+)\))?")


def parse_blend(voice: str) -> dict[str, float]:
    """Names in the order of their first mention, and the share of each; the shares are positive and add up to 1.

    The grammar is `NAME[(WEIGHT)]`, joined by `+`, blanks allowed beside it; a weight that is left out is 1, and a
    voice named twice counts twice.

    Raises:
        BadRequest: another form, a weight that is not positive, or more than MAX_VOICES voices.
    """
    members = re.split(" *[+] *", voice)
    weights: dict[str, float] = {}
    for member in members:
        form = _MEMBER.fullmatch(member)
        weight = 1.0 if form is None or form[2] is None else float(form[2])
        if form is None or weight == 0.0 or len(members) > MAX_VOICES:
            raise _refusal()
        weights[form[1]] = weights.get(form[1], 0.0) + weight
    total = sum(weights.values())
    return {name: weight / total for name, weight in weights.items()}


def check_voice(voice: str, known: Collection[str]) -> None:
    """Raise UnknownVoice if `voice` is none of the known ones and no blend of them, BadRequest if it is ill-formed."""
    for name in parse_blend(voice):
        if name not in known:
            raise UnknownVoice.among(name, known)


def _refusal() -> BadRequest:
    error = BadRequest(
        f"voice must be a voice id or a blend of up to {MAX_VOICES} of them, joined by + and each with a positive "
        "weight in brackets or none, such as af_bella(2)+af_sky(1)"
    )
    error.field = "voice"
    return error
