"""POST /invocations: one complete input, one answer, streamed as audio bytes or as server-sent events."""

import base64
import time
from collections.abc import Sequence

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from serve_app.errors import SpeechError
from serve_app.protocol.requests import RequestLimits, SpeechRequest, parse_invocation
from serve_app.protocol.sse import encode_event
from serve_app.server.account import Account
from serve_app.server.answers import Answers
from serve_app.server.responses import error_response
from serve_app.server.speech import TimedWord

ROUTE = "/invocations"


class Invocations:
    """The ASGI endpoint, and the `Dialect` that it answers in."""

    route = ROUTE

    def __init__(self, answers: Answers) -> None:
        self._answers = answers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._answers.serve(self, scope, receive, send)

    async def read(self, body: bytes, limits: RequestLimits) -> SpeechRequest:
        return parse_invocation(body, limits, time.time())

    def headers(self, request: SpeechRequest) -> dict[str, str]:
        return {}

    def refusal(self, error: SpeechError, request_id: str) -> Response:
        return error_response(error, request_id)

    def events(self, request: SpeechRequest) -> "_Events":
        return _Events(request)


class _Events:
    """Section 2 of the contract. `seq` counts chunks of audio; words carry the `seq` of the chunk that follows."""

    def __init__(self, request: SpeechRequest) -> None:
        self._request = request
        self._seq = 0

    def start(self) -> bytes:
        asked = self._request
        return self._event("audio_stream_start", format=asked.format, voice=asked.voice, sample_rate=asked.sample_rate)

    def words(self, words: Sequence[TimedWord]) -> bytes:
        if not self._request.timestamps:
            return b""
        return self._event("audio_words", seq=self._seq, words=[word.as_json() for word in words])

    def audio(self, data: bytes) -> bytes:
        event = self._event("audio_chunk", seq=self._seq, data=base64.b64encode(data).decode())
        self._seq += 1
        return event

    def end(self, account: Account) -> bytes:
        return self._event("audio_stream_end", total_chunks=self._seq, duration_s=round(account.audio_s, 3))

    def error(self, error: SpeechError) -> bytes:
        return self._event("error", message=error.message, code=error.code)

    def _event(self, name: str, **data: object) -> bytes:
        return encode_event(name, {"request_id": self._request.request_id, **data})
