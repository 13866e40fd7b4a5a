"""POST /invocations: one complete input, one answer, streamed as audio bytes or as server-sent events."""

import base64
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from uuid import uuid4

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from serve_app.audio.encoders import AudioEncoder, open_encoder
from serve_app.audio.pcm import slices
from serve_app.config import LimitSettings
from serve_app.errors import NothingToSpeak, QueueSaturated, SpeechError
from serve_app.metrics import Recorder
from serve_app.protocol.framing import audio_frames
from serve_app.protocol.requests import RequestLimits, SpeechRequest, parse_invocation
from serve_app.protocol.sse import encode_event
from serve_app.server.account import Account
from serve_app.server.responses import (
    Body,
    ClientGone,
    as_speech_error,
    error_response,
    impatient,
    read_body,
    while_connected,
)
from serve_app.server.speech import Sentences, Speech, Spoken, TimedWord
from serve_app.text.chunker import split_sentences

ROUTE = "/invocations"


class Invocations:
    """The ASGI endpoint. Bounds requests, reads one, and answers it while the client is there."""

    def __init__(self, speech: Speech, limits: LimitSettings, recorder: Recorder) -> None:
        self._speech, self._limits, self._recorder = speech, limits, recorder
        self._active = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        send = impatient(send, self._limits.send_stall_timeout_s)
        try:
            request = await self._request(receive)
        except ClientGone:
            return
        except SpeechError as exc:
            await error_response(exc, exc.request_id)(scope, receive, send)
            return
        self._active += 1
        try:
            await while_connected(receive, self._answer(request, scope, receive, send))
        except ClientGone:
            return
        finally:
            self._active -= 1

    async def _request(self, receive: Receive) -> SpeechRequest:
        if self._active >= self._limits.max_requests:
            raise QueueSaturated(f"{self._active} requests are in hand; retry later")
        body = await read_body(receive, self._limits.max_body_bytes)
        limits = RequestLimits(
            max_text_chars=self._limits.max_text_chars, max_request_age_s=self._limits.max_request_age_s
        )
        return parse_invocation(body, limits, time.time())

    async def _answer(self, request: SpeechRequest, scope: Scope, receive: Receive, send: Send) -> None:
        """Once the body has begun a failure breaks it (binary) or is its last event (SSE): never a polite end."""
        session_id = uuid4().hex
        account = Account(self._recorder, route=ROUTE, session_id=session_id, request_id=request.request_id)
        body = Body(send)
        outcome = "disconnected"
        try:
            encoder = open_encoder(request.format, request.sample_rate)
            sentences = Sentences(split_sentences(request.text), final=True)
            async with aclosing(self._speech.speak(request, sentences, session_id=session_id)) as spoken:
                if request.transport == "sse":
                    await self._speech.check(request)
                    await _send_events(request, body, encoder, spoken, account)
                elif request.stream:
                    await _send_audio(body, encoder, spoken, account)
                else:
                    await _send_whole(request, encoder, spoken, account, scope, receive, send)
            outcome = "complete"
        except ClientGone:
            raise
        except Exception as exc:
            error = as_speech_error(exc, request.request_id)
            outcome = error.code
            if not body.started:
                await error_response(error, request.request_id)(scope, receive, send)
            elif request.transport == "sse":
                await body.write(_event("error", request, message=error.message, code=error.code))
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
    body: Body, encoder: AudioEncoder, spoken: AsyncGenerator[Spoken, None], account: Account
) -> None:
    async for data, _ in _encoded(encoder, spoken, account):
        if not body.started:
            await body.start(encoder.media_type)
        if data:
            await body.write(data)
            account.sent()
    await body.end()


async def _send_events(
    request: SpeechRequest, body: Body, encoder: AudioEncoder, spoken: AsyncGenerator[Spoken, None], account: Account
) -> None:
    await body.start("text/event-stream", {"cache-control": "no-cache"})
    await body.write(
        _event(
            "audio_stream_start", request, format=request.format, voice=request.voice, sample_rate=request.sample_rate
        )
    )
    seq = 0
    async for data, words in _encoded(encoder, spoken, account):
        if words and request.timestamps:
            await body.write(_event("audio_words", request, seq=seq, words=[word.as_json() for word in words]))
        for frame in audio_frames(data, encoder.sample_bytes):
            await body.write(_event("audio_chunk", request, seq=seq, data=base64.b64encode(frame).decode()))
            account.sent()
            seq += 1
    await body.write(_event("audio_stream_end", request, total_chunks=seq, duration_s=round(account.audio_s, 3)))
    await body.end()


async def _send_whole(
    request: SpeechRequest,
    encoder: AudioEncoder,
    spoken: AsyncGenerator[Spoken, None],
    account: Account,
    scope: Scope,
    receive: Receive,
    send: Send,
) -> None:
    data = b"".join([part async for part, _ in _encoded(encoder, spoken, account)])
    headers = {
        "X-Audio-Duration": f"{account.audio_s:.3f}",
        "X-Inference-Time-Ms": f"{account.inference_s * 1000:.1f}",
        "X-RTF": f"{account.rtf:.4f}",
        "X-Characters-Processed": str(len(request.text)),
    }
    await Response(encoder.completed(data), 200, headers, media_type=encoder.media_type)(scope, receive, send)
    account.sent()


def _event(name: str, request: SpeechRequest, **data: object) -> bytes:
    return encode_event(name, {"request_id": request.request_id, **data})
