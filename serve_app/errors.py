"""The one table of failures: stable code, HTTP status, what a WebSocket client gets, when a retry makes sense.

Raised where the failure is known; turned into a status, an event or a frame in one place per edge. A message is
written for a person: never a Python repr, a traceback, a path or a token.
"""

import re
from collections.abc import Iterable
from difflib import get_close_matches
from typing import ClassVar, Self

_VOICE_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")


class SpeechError(Exception):
    """A failure that a client is told about. Over a WebSocket it becomes an `error` frame and the session lives on,
    unless `close_code` says that the session ends with it.
    """

    code: ClassVar[str] = "internal"
    http_status: ClassVar[int] = 500
    retry_after_s: int | None = None
    close_code: ClassVar[int | None] = None

    def __init__(self, message: str, retry_after_s: int | None = None) -> None:
        """`retry_after_s`: where it is known better than for every failure of this kind."""
        super().__init__(message)
        self.message = message
        if retry_after_s is not None:
            self.retry_after_s = retry_after_s
        self.request_id = "unknown"  # of the refused request, where it could be read
        self.field: str | None = None  # of the request, where one is to blame


class BadRequest(SpeechError):
    code, http_status = "bad_request", 400


class NothingToSpeak(SpeechError):
    """Text without a speakable character. Over the WebSocket this is a `synthesis_complete` of 0 s instead."""

    code, http_status = "nothing_to_speak", 400


class UnknownVoice(SpeechError):
    code, http_status = "unknown_voice", 400

    @classmethod
    def among(cls, voice: str, known: Iterable[str]) -> Self:
        """The refusal of `voice`, with near matches from `known`, or a few of them where nothing is near."""
        names = sorted(known)
        near = get_close_matches(voice[:64].lower(), names, n=5, cutoff=0.5)
        hint = f"did you mean {', '.join(near)}?" if near else f"known voices include {', '.join(names[:8])}"
        # Echoed only if it could be a voice: anything else is the client's free text.
        shown = f" '{voice}'" if _VOICE_ID.fullmatch(voice) else ""
        return cls(f"unknown voice{shown}; {hint}")


class UnknownModel(SpeechError):
    """On the OpenAI routes, whose clients name a model."""

    code, http_status = "model_not_found", 404


class UnsupportedLanguage(SpeechError):
    code, http_status = "unsupported_language", 400


class RequestStale(SpeechError):
    code, http_status = "request_stale", 408


class TextTooLong(SpeechError):
    code, http_status = "text_too_long", 413


class QueueSaturated(SpeechError):
    """A bound was reached; nothing of the refused message was kept."""

    code, http_status, retry_after_s = "queue_saturated", 503, 1

    def __init__(self, message: str, retry_after_s: int | None = None, *, bound: str = "queue") -> None:
        """`bound`: which one, as kokoro_refusals_total counts it (serve_app/metrics.py)."""
        super().__init__(message, retry_after_s)
        self.bound = bound


class Unauthorized(SpeechError):
    """No API key where one is asked for, or one that does not count, or no longer: then an open session ends too."""

    code, http_status, close_code = "unauthorized", 401, 1008


class ForbiddenOrigin(SpeechError):
    """A web page of another host, which is not allowed."""

    code, http_status = "forbidden_origin", 403


class RateLimited(SpeechError):
    """The caller's key has used up its characters, and `retry_after_s` holds; or it has as many requests in hand as it
    may, and there is room when one of them is answered.
    """

    code, http_status, retry_after_s = "rate_limited", 429, 1


class TooManySessions(SpeechError):
    """The caller's key has as many sessions open as it may; there is room when one of them ends."""

    code, http_status = "too_many_sessions", 429


class EngineUnavailable(SpeechError):
    code, http_status, retry_after_s = "engine_unavailable", 503, 5


class Internal(SpeechError):
    """Anything that is a defect of ours; the cause is in the log under the request's id."""


class IdleTimeout(SpeechError):
    """A WebSocket session without text or a ping for `session_idle_timeout_s`."""

    code, http_status, close_code = "idle_timeout", 408, 1001


TABLE: tuple[type[SpeechError], ...] = (
    BadRequest,
    NothingToSpeak,
    UnknownVoice,
    UnknownModel,
    UnsupportedLanguage,
    RequestStale,
    TextTooLong,
    QueueSaturated,
    Unauthorized,
    ForbiddenOrigin,
    RateLimited,
    TooManySessions,
    EngineUnavailable,
    Internal,
    IdleTimeout,
)
