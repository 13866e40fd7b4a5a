"""OpenAI's speech API in this product's terms: its request bodies, names of models and voices, and error objects.

Shapes are those of the official `openai` package (`openai.types.audio.SpeechCreateParams`, `openai.types.Model`).
"""

import re
from collections.abc import Collection
from typing import Annotated, Any, Literal

from pydantic import Field

from serve_app.errors import SpeechError, UnknownModel, UnknownVoice
from serve_app.protocol.requests import (
    FormatName,
    Message,
    RequestLimits,
    SpeechRequest,
    Text,
    build_request,
    load_object,
    validate,
)

MODELS = ("kokoro", "tts-1", "tts-1-hd", "gpt-4o-mini-tts", "gpt-4o-mini-tts-2025-12-15")
"""All of them are Kokoro: existing clients have OpenAI's names built in."""

VOICES = {
    "alloy": "af_alloy",
    "ash": "am_michael",
    "ballad": "bm_george",
    "cedar": "am_fenrir",
    "coral": "af_bella",
    "echo": "am_echo",
    "fable": "bm_fable",
    "marin": "af_heart",
    "nova": "af_nova",
    "onyx": "am_onyx",
    "sage": "af_sarah",
    "shimmer": "af_kore",
    "verse": "am_puck",
}
"""OpenAI's voices and who speaks for them: Kokoro's namesake where there is one, else a voice of its better ones."""

_VOICES_NAMED = re.compile(rf"(?<![^+ ])(?:{'|'.join(VOICES)})(?= *(?:[+(]|$))")


class _SpeechParams(Message):
    """What OpenAI's API names otherwise than a `SpeechRequest` does, or has beyond it."""

    input: Text
    model: Annotated[str, Field(description=f"one of {', '.join(MODELS)}")] = MODELS[0]
    response_format: FormatName = "mp3"
    stream_format: Annotated[Literal["audio", "sse"], Field(description="audio or sse")] = "audio"


def parse_speech(body: bytes, limits: RequestLimits, now_epoch_s: float, *, request_id: str) -> SpeechRequest:
    """Decode and check the body of POST /v1/audio/speech; the voice is still the client's word for it.

    Raises, with `field` set where one is to blame:
        BadRequest: not a JSON object in UTF-8, an ill-typed field, blank input.
        UnknownModel, TextTooLong, NothingToSpeak.
    """
    sent = load_object(body, "the body")
    params = validate(_SpeechParams, sent)
    check_model(params.model)
    fields = {
        "text": params.input,
        "format": params.response_format,
        "transport": "sse" if params.stream_format == "sse" else "binary",
        "request_id": request_id,
    }
    if "speed" in sent:
        fields["speed"] = sent["speed"]
    if "voice" in sent:
        fields["voice"] = _voice_id(sent["voice"])
    try:
        return build_request(fields, limits, now_epoch_s)
    except SpeechError as exc:
        exc.field = exc.field or "input"
        raise


def _voice_id(voice: Any) -> Any:
    """A voice may come as an object with an id: OpenAI's custom voices do, and so does an entry of our own list."""
    return voice.get("id") if isinstance(voice, dict) else voice


def check_model(model: str) -> None:
    """Raises UnknownModel."""
    if model not in MODELS:
        error = UnknownModel(f"there is no such model here; it is called one of {', '.join(MODELS)}")
        error.field = "model"
        raise error


def voice_behind(voice: str, loaded: Collection[str]) -> str:
    """`voice` with the loaded voices that OpenAI's names stand for, also within a blend. Raises UnknownVoice."""

    def stand_in(name: str) -> str:
        if name in loaded:
            return name
        if VOICES[name] not in loaded:
            raise UnknownVoice(f"{name} stands for {VOICES[name]}, which is not loaded here")
        return VOICES[name]

    return _VOICES_NAMED.sub(lambda named: stand_in(named[0]), voice)


def dump_error(error: SpeechError) -> dict[str, Any]:
    """The error object of OpenAI's API."""
    return error_object(error.message, status=error.http_status, param=error.field, code=error.code)


def error_object(message: str, *, status: int, param: str | None, code: str) -> dict[str, Any]:
    """{"error": ...} as every OpenAI client reads it."""
    kind = "server_error" if status >= 500 else "invalid_request_error"
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}
