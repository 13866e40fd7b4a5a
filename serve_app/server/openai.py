"""OpenAI's speech API below /v1: the routes that its clients and chat UIs call."""

import base64
import time
from collections.abc import Sequence
from http import HTTPStatus
from uuid import uuid4

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from serve_app.errors import BadRequest, SpeechError, UnknownModel, UnknownVoice
from serve_app.protocol.openai import MODELS, check_model, dump_error, error_object, parse_speech, voice_behind
from serve_app.protocol.requests import UNKNOWN_REQUEST_ID, RequestLimits, SpeechRequest
from serve_app.protocol.sse import encode_event
from serve_app.server.account import Account
from serve_app.server.answers import Answers
from serve_app.server.responses import as_speech_error
from serve_app.server.speech import Speech, TimedWord

PREFIX = "/v1/"
SPEECH_ROUTE = "/v1/audio/speech"

_MODEL_CREATED = 1_737_936_000  # Kokoro-82M v1.0, 27 January 2025
_FRAMES_PER_S = 40


def routes(speech: Speech, answers: Answers) -> list[Route]:
    """Everything below /v1."""
    lists = _Lists(speech)
    return [
        Route(SPEECH_ROUTE, OpenAISpeech(speech, answers), methods=["POST"]),
        Route("/v1/audio/voices", lists.voices, methods=["GET"]),
        Route("/v1/audio/models", lists.audio_models, methods=["GET"]),
        Route("/v1/models", lists.models, methods=["GET"]),
        Route("/v1/models/{model:path}", lists.model, methods=["GET"]),
    ]


def http_error(exc: HTTPException) -> Response:
    """A path or method that does not exist, with the codes that OpenAI uses for them."""
    code = "method_not_supported" if exc.status_code == HTTPStatus.METHOD_NOT_ALLOWED else "unknown_url"
    error = error_object(exc.detail, status=exc.status_code, param=None, code=code)
    return JSONResponse(error, exc.status_code, headers=exc.headers)


class OpenAISpeech:
    """POST /v1/audio/speech: the ASGI endpoint, and the `Dialect` that it answers in."""

    route = SPEECH_ROUTE

    def __init__(self, speech: Speech, answers: Answers) -> None:
        self._speech, self._answers = speech, answers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._answers.serve(self, scope, receive, send)

    async def read(self, body: bytes, limits: RequestLimits) -> SpeechRequest:
        request_id = uuid4().hex
        try:
            request = parse_speech(body, limits, time.time(), request_id=request_id)
            return await self._with_voice(request)
        except SpeechError as exc:
            exc.request_id = request_id
            raise

    async def _with_voice(self, request: SpeechRequest) -> SpeechRequest:
        """The request with a voice that is loaded. Raises UnknownVoice, with the whole list, and EngineUnavailable."""
        loaded = await self._speech.voices()
        try:
            request = request.model_copy(update={"voice": voice_behind(request.voice, loaded)})
            await self._speech.check(request)
        except UnknownVoice as exc:
            error = UnknownVoice(f"{exc.message} (voices: {', '.join(loaded)})")
            error.field = "voice"
            raise error from exc
        return request

    def headers(self, request: SpeechRequest) -> dict[str, str]:
        return {"x-request-id": request.request_id}

    def refusal(self, error: SpeechError, request_id: str) -> Response:
        return refusal(error, {} if request_id == UNKNOWN_REQUEST_ID else {"x-request-id": request_id})

    def events(self, request: SpeechRequest) -> "_Events":
        return _Events(request)


class _Events:
    """`speech.audio.delta` with audio, then one `speech.audio.done`; the type is in the name and in the data.

    Its usage counts characters in and frames of the model, 25 ms each, out: Kokoro has no tokens like OpenAI's.
    """

    def __init__(self, request: SpeechRequest) -> None:
        self._request = request

    def start(self) -> bytes:
        return b""

    def words(self, words: Sequence[TimedWord]) -> bytes:
        return b""

    def audio(self, data: bytes) -> bytes:
        return _event("speech.audio.delta", audio=base64.b64encode(data).decode())

    def end(self, account: Account) -> bytes:
        characters, frames = len(self._request.text), round(account.audio_s * _FRAMES_PER_S)
        usage = {"input_tokens": characters, "output_tokens": frames, "total_tokens": characters + frames}
        return _event("speech.audio.done", usage=usage)

    def error(self, error: SpeechError) -> bytes:
        return _event("error", **dump_error(error))


class _Lists:
    """What can be asked for. The shapes are OpenAI's where it has the route, else those that chat UIs read."""

    def __init__(self, speech: Speech) -> None:
        self._speech = speech

    async def voices(self, request: Request) -> Response:
        """Objects with id and name, or with `?format=ids` bare ids, as older clients expect."""
        shape = request.query_params.get("format", "objects")
        try:
            if shape not in ("objects", "ids"):
                error = BadRequest("format must be objects or ids")
                error.field = "format"
                raise error
            voices = await self._speech.voices()
        except Exception as exc:
            return refusal(as_speech_error(exc, "unknown"))
        return JSONResponse({"voices": list(voices) if shape == "ids" else [{"id": v, "name": v} for v in voices]})

    async def audio_models(self, _: Request) -> Response:
        return JSONResponse({"models": [{"id": model, "name": model} for model in MODELS]})

    async def models(self, _: Request) -> Response:
        return JSONResponse({"object": "list", "data": [_model(model) for model in MODELS]})

    async def model(self, request: Request) -> Response:
        name = request.path_params["model"]
        try:
            check_model(name)
        except UnknownModel as exc:
            return refusal(exc)
        return JSONResponse(_model(name))


def _model(name: str) -> dict[str, str | int]:
    return {"id": name, "object": "model", "created": _MODEL_CREATED, "owned_by": "hexgrad"}


def refusal(error: SpeechError, headers: dict[str, str] | None = None) -> Response:
    """An error in OpenAI's shape."""
    retry = {} if error.retry_after_s is None else {"Retry-After": str(error.retry_after_s)}
    return JSONResponse(dump_error(error), error.http_status, headers=(headers or {}) | retry)


def _event(kind: str, **data: object) -> bytes:
    return encode_event(kind, {"type": kind, **data})
