"""One complete input, one spoken answer over HTTP: what every route that speaks shares, whatever API it belongs to."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from contextlib import aclosing
from typing import Protocol
from uuid import uuid4

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from serve_app.access.callers import Caller
from serve_app.audio.encoders import AudioEncoder, open_encoder
from serve_app.audio.pcm import slices
from serve_app.config import LimitSettings
from serve_app.errors import NothingToSpeak, QueueSaturated, RateLimited, RequestStale, SpeechError
from serve_app.metrics import ACTIVE_REQUESTS, REFUSALS, Recorder
from serve_app.protocol.framing import MAX_FRAME_BYTES
from serve_app.protocol.requests import RequestLimits, SpeechRequest
from serve_app.server.access import caller_of
from serve_app.server.account import Account
from serve_app.server.listener import Listener
from serve_app.server.responses import Body, ClientGone, as_speech_error, impatient, read_body, while_connected
from serve_app.server.speech import Sentences, Speech, Spoken, TimedWord
from serve_app.text.chunker import split_sentences


class Events(Protocol):
    """The server-sent events of one answer, ready to be written; b"" where the API has no such event."""

    def start(self) -> bytes:
        """Leaves before inference; without such an event a failure before the first audio still has its own status."""
        ...

    def words(self, words: Sequence[TimedWord]) -> bytes:
        """Precedes the audio that the words are heard in."""
        ...

    def audio(self, data: bytes) -> bytes: ...

    def end(self, account: Account) -> bytes: ...

    def error(self, error: SpeechError) -> bytes:
        """The last event, instead of `end`."""
        ...


class Dialect(Protocol):
    """How one API asks for speech, and how it words what it answers."""

    route: str

    async def read(self, body: bytes, limits: RequestLimits) -> SpeechRequest:
        """The request in a body. Raises SpeechError, with the request's id where it could be read."""
        ...

    def headers(self, request: SpeechRequest) -> dict[str, str]:
        """Headers of an answer in audio or events, beside the content type."""
        ...

    def refusal(self, error: SpeechError, request_id: str) -> Response: ...

    def events(self, request: SpeechRequest) -> Events: ...


class Answers:
    """Bounds requests over all routes, reads one, and answers it while the client is there.

    Attributes:
        limits: of requests; others may be set at any time.
    """

    def __init__(self, speech: Speech, limits: LimitSettings, recorder: Recorder) -> None:
        self._speech, self.limits, self._recorder = speech, limits, recorder
        self._in_hand = Counter[str | None]()  # by the name of who asks
        recorder.record(ACTIVE_REQUESTS, 0)

    async def serve(self, dialect: Dialect, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request as an ASGI application."""
        send = impatient(send, self.limits.send_stall_timeout_s)
        caller = caller_of(scope)
        self._count(caller, +1)  # from the first byte: bodies that never end would pass the bound
        try:
            try:
                request = await self._read(dialect, receive, caller)
            except ClientGone:
                raise
            except Exception as exc:
                error = as_speech_error(exc, "unknown")
                await dialect.refusal(error, error.request_id)(scope, receive, send)
            else:
                await while_connected(receive, self._answer(dialect, request, caller, scope, receive, send))
        except ClientGone:
            return
        finally:
            self._count(caller, -1)

    def _count(self, caller: Caller, change: int) -> None:
        self._in_hand[caller.name] += change
        self._recorder.record(ACTIVE_REQUESTS, self._in_hand.total())

    def _check_room(self, caller: Caller) -> None:
        """For the request that was counted last. Raises QueueSaturated, RateLimited."""
        others = self._in_hand.total() - 1
        if others >= self.limits.max_requests:
            self._recorder.record(REFUSALS, reason="requests")
            raise QueueSaturated(f"{others} requests are in hand; retry later", bound="requests")
        try:
            caller.check_requests(self._in_hand[caller.name] - 1)
        except RateLimited:
            self._recorder.record(REFUSALS, reason="key")
            raise

    async def _read(self, dialect: Dialect, receive: Receive, caller: Caller) -> SpeechRequest:
        self._check_room(caller)
        within_s = self.limits.send_stall_timeout_s
        try:
            async with asyncio.timeout(within_s):
                body = await read_body(receive, self.limits.max_body_bytes)
        except TimeoutError as exc:
            raise RequestStale(f"the body did not arrive within {within_s:g} s") from exc
        limits = RequestLimits(self.limits.max_text_chars, self.limits.max_request_age_s)
        request = await dialect.read(body, limits)
        try:
            caller.allowance.check(now_s := time.monotonic())
        except SpeechError as exc:
            self._recorder.record(REFUSALS, reason="key")
            exc.request_id = request.request_id
            raise
        caller.allowance.spend(len(request.text), now_s)
        return request

    async def _answer(
        self, dialect: Dialect, request: SpeechRequest, caller: Caller, scope: Scope, receive: Receive, send: Send
    ) -> None:
        """Once the body has begun a failure breaks it (binary) or is its last event (SSE): never a polite end."""
        session_id = uuid4().hex
        account = Account(
            self._recorder,
            self._speech.tracer,
            route=dialect.route,
            session_id=session_id,
            request_id=request.request_id,
            streamed=request.stream or request.transport == "sse",
            caller=caller,
        )
        body, headers = Body(send), dialect.headers(request)
        events = dialect.events(request) if request.transport == "sse" else None
        outcome = "disconnected"
        try:
            encoder = open_encoder(request.format, request.sample_rate)
            sentences = Sentences(split_sentences(request.text), final=True)
            spoken = self._speech.speak(request, sentences, listener=Listener(session_id))
            with account.span.current():
                async with aclosing(spoken):
                    if events is not None:
                        await self._speech.check(request)
                        await _send_events(body, headers, events, encoder, spoken, account)
                    elif request.stream:
                        await _send_audio(body, headers, encoder, spoken, account)
                    else:
                        whole = await _whole(request, headers, encoder, spoken, account)
                        await whole(scope, receive, send)
                        account.sent()
            outcome = "complete"
        except ClientGone:
            raise
        except Exception as exc:
            error = as_speech_error(exc, request.request_id)
            outcome = error.code
            if not body.started:
                await dialect.refusal(error, request.request_id)(scope, receive, send)
            elif events is not None:
                await body.write(events.error(error))
                await body.end()
            else:
                raise
        finally:
            account.close(outcome, characters=len(request.text))


async def _encoded(
    encoder: AudioEncoder, spoken: AsyncGenerator[Spoken, None], account: Account
) -> AsyncIterator[tuple[bytes, tuple[TimedWord, ...]]]:
    """Encoded audio, and the words that begin with it.

    Encodes in slices of a second, so that one long segment does not hold the event loop. Raises NothingToSpeak.
    """
    async for segment in spoken:
        account.spoke(segment)
        words = segment.words
        for samples in slices(segment.samples, segment.sample_rate):
            yield encoder.encode(samples), words
            words = ()
    if not account.audio_s:
        raise NothingToSpeak("the text has no speakable character")
    yield encoder.finish(), ()


async def _send_audio(
    body: Body,
    headers: dict[str, str],
    encoder: AudioEncoder,
    spoken: AsyncGenerator[Spoken, None],
    account: Account,
) -> None:
    async for data, _ in _encoded(encoder, spoken, account):
        if not body.started:
            await body.start(encoder.media_type, headers)
        if data:
            await body.write(data)
            account.sent()
    await body.end()


async def _send_events(
    body: Body,
    headers: dict[str, str],
    events: Events,
    encoder: AudioEncoder,
    spoken: AsyncGenerator[Spoken, None],
    account: Account,
) -> None:
    async def write(event: bytes) -> None:
        if event and not body.started:
            await body.start("text/event-stream", headers | {"cache-control": "no-cache"})
        await body.write(event)

    await write(events.start())
    async for data, words in _encoded(encoder, spoken, account):
        if words:
            await write(events.words(words))
        for part in _parts(data):
            await write(events.audio(part))
            account.sent()
    await write(events.end(account))
    await body.end()


async def _whole(
    request: SpeechRequest,
    headers: dict[str, str],
    encoder: AudioEncoder,
    spoken: AsyncGenerator[Spoken, None],
    account: Account,
) -> Response:
    data = b"".join([part async for part, _ in _encoded(encoder, spoken, account)])
    costs = {
        "X-Audio-Duration": f"{account.audio_s:.3f}",
        "X-Inference-Time-Ms": f"{account.inference_s * 1000:.1f}",
        "X-RTF": f"{account.rtf:.4f}",
        "X-Characters-Processed": str(len(request.text)),
    }
    return Response(encoder.completed(data), 200, headers | costs, media_type=encoder.media_type)


def _parts(data: bytes) -> Iterator[bytes]:
    """Audio in events of a size that any client's line buffer takes; whole samples, where a format has samples."""
    for start in range(0, len(data), MAX_FRAME_BYTES):
        yield data[start : start + MAX_FRAME_BYTES]
