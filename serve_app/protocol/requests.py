"""What a client may ask for, and the JSON bodies it comes in (wire contract, sections 2 and 3).

Unknown fields are ignored; a known field of the wrong type is refused, never converted. Messages name the field and
what it may hold, never what the client sent.
"""

import json
import re
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NoReturn

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator

from serve_app.errors import BadRequest, NothingToSpeak, RequestStale, SpeechError, TextTooLong
from serve_app.formats import FORMATS, SAMPLE_RATES
from serve_app.text.chunker import is_speakable

UNKNOWN_REQUEST_ID = "unknown"

_HALF_CHARACTER = re.compile("[\ud800-\udfff]")


def _default_rate(fields: dict[str, Any]) -> int:
    return FORMATS[fields["format"]].default_rate


def _known_format(name: str) -> str:
    if name not in FORMATS:
        raise ValueError("unknown")
    return name


def whole_characters(text: str) -> str:
    r"""Drop halves of UTF-16 pairs that stand alone: JSON can say "\ud83c", but it is no character, in no encoding."""
    if _HALF_CHARACTER.search(text) is None:
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "ignore")


class _Refusal(ValueError):
    """Its text is what the client reads."""


def _printable(value: str) -> str:
    if not value.isprintable():  # line breaks would forge log lines
        raise ValueError("not printable")
    return value


RequestId = Annotated[
    str, Field(max_length=128, description="a string of up to 128 printable characters"), AfterValidator(_printable)
]
Text = Annotated[str, Field(description="a string"), AfterValidator(whole_characters)]
FormatName = Annotated[str, Field(description=f"one of {', '.join(FORMATS)}"), AfterValidator(_known_format)]


class Message(BaseModel):
    """A JSON object from a client: strict ("1.0" is no number, true is not 1), finite numbers, unknown fields ignored.

    The `description` of a field is what an error message says the field must be.
    """

    model_config = ConfigDict(frozen=True, strict=True, extra="ignore", allow_inf_nan=False)


class SpeechOptions(Message):
    """How to speak: what /invocations and the WebSocket messages have in common."""

    voice: Annotated[
        str, Field(min_length=1, max_length=200, description="a voice id, such as af_heart"), AfterValidator(_printable)
    ] = "af_heart"
    lang: Annotated[
        str | None, Field(min_length=1, max_length=8, description="a language code, such as a for American English")
    ] = None
    speed: Annotated[float, Field(ge=0.25, le=4.0, description="a number from 0.25 to 4.0")] = 1.0
    format: FormatName = "wav"
    sample_rate: Annotated[
        int,
        Field(description=f"one of {', '.join(map(str, SAMPLE_RATES))}", default_factory=_default_rate),
    ]
    request_id: RequestId = UNKNOWN_REQUEST_ID
    request_timestamp: Annotated[float | None, Field(description="a number, seconds since 1970")] = None
    timestamps: Annotated[bool, Field(description="true or false")] = False

    @field_validator("sample_rate")
    @classmethod
    def _rate_fits_format(cls, rate: int, info: ValidationInfo) -> int:
        audio_format = info.data.get("format")
        if audio_format is not None and rate not in FORMATS[audio_format].sample_rates:
            allowed = ", ".join(map(str, FORMATS[audio_format].sample_rates))
            raise _Refusal(f"sample_rate of {audio_format} must be one of {allowed}")
        return rate


class SpeechRequest(SpeechOptions):
    """One utterance to speak.

    Attributes:
        text: as sent; empty for an utterance that is fed in `text_delta` messages.
        sample_rate: Hz; 24000 unless asked otherwise (8000 for ulaw).
        request_timestamp: epoch seconds at which the client sent.
    """

    text: Text
    stream: Annotated[bool, Field(description="true or false")] = True
    transport: Annotated[Literal["binary", "sse"], Field(description="binary or sse")] = "binary"

    @property
    def language(self) -> str:
        """The language asked for, else the one that the first letter of the voice stands for."""
        return self.lang or self.voice[0]


@dataclass(frozen=True, slots=True)
class RequestLimits:
    """Bounds on one request. Past them: TextTooLong, RequestStale."""

    max_text_chars: int
    max_request_age_s: float


def parse_invocation(body: bytes, limits: RequestLimits, now_epoch_s: float) -> SpeechRequest:
    """Decode and check the body of POST /invocations.

    Raises, with `request_id` set to the one in the body:
        BadRequest: not a JSON object in UTF-8, an ill-typed field, blank text, `timestamps` without SSE.
        TextTooLong, RequestStale, NothingToSpeak.
    """
    fields = load_object(body, "the body")
    try:
        request = build_request(fields, limits, now_epoch_s)
        if request.timestamps and request.transport != "sse":
            raise BadRequest("timestamps need transport sse; a binary answer has no place for them")
    except SpeechError as exc:
        exc.request_id = request_id_in(fields)
        raise
    return request


def build_request(fields: dict[str, Any], limits: RequestLimits, now_epoch_s: float) -> SpeechRequest:
    """Check the fields of one request, wherever they come from.

    Raises BadRequest, TextTooLong, RequestStale, NothingToSpeak.
    """
    request = validate(SpeechRequest, fields)
    check_text(request.text, limits)
    check_age(request, limits, now_epoch_s)
    if not is_speakable(request.text):
        raise NothingToSpeak("text has no speakable character")
    return request


def check_text(text: str, limits: RequestLimits) -> None:
    """Raises BadRequest on blank text, TextTooLong past `max_text_chars`."""
    if not text.strip():
        raise BadRequest("text is blank")
    if len(text) > limits.max_text_chars:
        raise too_long(limits)


def too_long(limits: RequestLimits) -> TextTooLong:
    """The refusal of a text past `max_text_chars`."""
    return TextTooLong(f"text is too long; at most {limits.max_text_chars} characters are accepted")


def check_age(options: SpeechOptions, limits: RequestLimits, now_epoch_s: float) -> None:
    """Raises RequestStale. A time stamp from the future is a clock that runs fast, not an error."""
    sent_s = options.request_timestamp
    if sent_s is not None and now_epoch_s - sent_s > limits.max_request_age_s:
        raise RequestStale(f"the request was sent more than {limits.max_request_age_s:g} s ago")


def load_object(raw: str | bytes, subject: str) -> dict[str, Any]:
    """Decode a JSON object. `subject` begins the message of the BadRequest, such as "the body"."""
    try:
        text = raw if isinstance(raw, str) else raw.decode("utf-8")
    except UnicodeDecodeError as exc:
        raise BadRequest(f"{subject} is not UTF-8 (byte {exc.start})") from exc
    try:
        value = json.loads(text, parse_constant=_refuse_constant)
    except json.JSONDecodeError as exc:
        raise BadRequest(f"{subject} is not JSON (line {exc.lineno}, column {exc.colno})") from exc
    except ValueError as exc:  # NaN; an integer of thousands of digits
        raise BadRequest(f"{subject} holds a number that is not allowed, such as NaN or Infinity") from exc
    except RecursionError as exc:
        raise BadRequest(f"{subject} is nested too deeply") from exc
    if not isinstance(value, dict):
        raise BadRequest(f"{subject} is not a JSON object")
    return value


def request_id_in(fields: dict[str, Any]) -> str:
    """The `request_id` of a refused request, for the error to echo; "unknown" if there is no valid one."""
    try:
        return validate(_Identified, fields).request_id
    except BadRequest:
        return UNKNOWN_REQUEST_ID


class _Identified(Message):
    request_id: RequestId = UNKNOWN_REQUEST_ID


def validate[M: Message](model: type[M], fields: dict[str, Any]) -> M:
    """Check decoded JSON against a model. Raises BadRequest with a sentence for each wrong field."""
    try:
        return model.model_validate(fields)
    except ValidationError as exc:
        refusal = BadRequest(_sentences(model, exc))
        refusal.field = str(exc.errors(include_input=False, include_url=False)[0]["loc"][0])
        raise refusal from exc


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(name)


def _sentences(model: type[Message], exc: ValidationError) -> str:
    """One sentence a field. Pydantic's own wording is for programmers, and may quote what was sent."""
    sentences = []
    for error in exc.errors(include_input=False, include_url=False):
        cause = error.get("ctx", {}).get("error")
        if isinstance(cause, _Refusal):
            sentences.append(str(cause))
        elif error["type"] != "default_factory_not_called":  # follows from another field's error
            name = str(error["loc"][0])
            missing = error["type"] == "missing"
            sentences.append(f"{name} is missing" if missing else f"{name} must be {_allowed(model, name)}")
    return "; ".join(sentences)


def _allowed(model: type[Message], name: str) -> str:
    return model.model_fields[name].description or "something else"
