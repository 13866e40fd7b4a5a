"""What can go wrong on the way to a server, and a server's refusals turned back into exceptions."""

import json

from serve_app.errors import TABLE, SpeechError

_BY_CODE = {error.code: error for error in TABLE}


class Unreachable(SpeechError):
    """No connection: nothing listens at the address, the name is unknown, or TLS fails."""

    code = "unreachable"


class NoCredentials(SpeechError):
    """AWS is asked, and nobody here has said as whom."""

    code = "no_credentials"


class BrokenAnswer(SpeechError):
    """The answer ended before its end: audio that was already handed out is not all of it."""

    code = "broken_answer"


class UnexpectedAnswer(SpeechError):
    """What answers is not a speech server, or speaks another protocol."""

    code = "unexpected_answer"


def error_of(code: str, message: str, request_id: str = "unknown") -> SpeechError:
    """The exception for a server's error code; one that this client does not know keeps its code."""
    kind = _BY_CODE.get(code) or type("UnknownError", (SpeechError,), {"code": code})
    error: SpeechError = kind(message)
    error.request_id = request_id
    return error


def refusal(status: int, body: bytes) -> SpeechError:
    """The exception for an HTTP answer that is not 200, with or without the contract's error body."""
    try:
        fields = json.loads(body)
        if isinstance(fields["code"], str) and isinstance(fields["error"], str):
            return error_of(fields["code"], fields["error"], str(fields.get("request_id", "unknown")))
    except (ValueError, TypeError, KeyError, RecursionError):
        pass  # a proxy's page
    return UnexpectedAnswer(f"the server answered with status {status}")
