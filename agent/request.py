"""What a caller asks for: the payload of one invocation, checked (wire contract, section 4)."""

from typing import Annotated, Any, Literal
from uuid import uuid4

from pydantic import AfterValidator, Field

from serve_app.client.types import Options
from serve_app.errors import BadRequest, SpeechError
from serve_app.formats import FORMATS, SAMPLE_RATES
from serve_app.protocol.requests import Message, RequestId, request_id_in, validate, whole_characters

MAX_PROMPT_CHARS = 50_000

MP3_BITS_PER_SECOND = 48_000

FORMAT_NAMES = {"pcm16": "pcm", "mp3": "mp3", "ulaw": "ulaw"}
"""The agent's formats, as the speech server calls them: those in which the audio of sentences, one after the other, is
one stream.
"""


class Request(Message):
    """One prompt. Unknown fields are ignored.

    Attributes:
        endpoint: where speech comes from, if not from where the agent is set to take it.
        heard_s: the caller interrupts: so many seconds of the last answer's audio had been played.
        timestamps: send `audio_words`.
    """

    prompt: Annotated[
        str,
        Field(max_length=MAX_PROMPT_CHARS, description=f"a string of up to {MAX_PROMPT_CHARS} characters"),
        AfterValidator(whole_characters),
    ]
    mode: Annotated[Literal["bidi", "batch"], Field(description="bidi or batch")] = "bidi"
    voice: Annotated[str, Field(min_length=1, max_length=200, description="a voice id, such as af_heart")] = "af_heart"
    lang: Annotated[str | None, Field(min_length=1, max_length=8, description="a language code, such as a")] = None
    speed: Annotated[float, Field(ge=0.25, le=4.0, description="a number from 0.25 to 4.0")] = 1.0
    format: Annotated[Literal["pcm16", "mp3", "ulaw"], Field(description=f"one of {', '.join(FORMAT_NAMES)}")] = "pcm16"
    sample_rate: Annotated[int | None, Field(description=f"one of {', '.join(map(str, SAMPLE_RATES))}")] = None
    timestamps: Annotated[bool, Field(description="true or false")] = False
    endpoint: Annotated[str | None, Field(min_length=1, max_length=200, description="the name of an endpoint")] = None
    heard_s: Annotated[float | None, Field(ge=0, description="a number of seconds")] = None
    request_id: RequestId = Field(default_factory=lambda: uuid4().hex)

    @property
    def sample_rate_hz(self) -> int:
        """Of the audio that is sent."""
        return self.sample_rate or FORMATS[FORMAT_NAMES[self.format]].default_rate

    @property
    def bytes_per_second(self) -> float:
        """Of the audio that is sent."""
        if self.format == "mp3":
            return MP3_BITS_PER_SECOND / 8
        return FORMATS[FORMAT_NAMES[self.format]].sample_bytes * self.sample_rate_hz

    def speech_options(self) -> Options:
        """What the speech server is asked for. Word times always: they tell what was heard when a caller hangs up."""
        options: Options = {
            "voice": self.voice,
            "speed": self.speed,
            "format": FORMAT_NAMES[self.format],
            "sample_rate": self.sample_rate_hz,
            "timestamps": True,
        }
        if self.lang is not None:
            options["lang"] = self.lang
        return options


def parse_request(payload: Any) -> Request:
    """Check an invocation's payload. Raises BadRequest with a sentence for each wrong field, and its request_id."""
    if not isinstance(payload, dict):
        raise BadRequest('the payload must be a JSON object, such as {"prompt": "Hello"}')
    try:
        request = validate(Request, payload)
        if not request.prompt.strip():
            raise BadRequest("prompt is blank")
        if request.sample_rate is not None:
            allowed = FORMATS[FORMAT_NAMES[request.format]].sample_rates
            if request.sample_rate not in allowed:
                raise BadRequest(f"sample_rate of {request.format} must be one of {', '.join(map(str, allowed))}")
    except SpeechError as exc:
        exc.request_id = request_id_in(payload)
        raise
    return request
