"""GET /ping: can the whole chain speak right now? Asks, with a deadline; does no inference."""

import asyncio

from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from serve_app.errors import EngineUnavailable, SpeechError
from serve_app.server.responses import error_response
from serve_app.server.speech import Speech

ANSWER_WITHIN_S = 1.0
"""SageMaker allows 2 s under full load; the rest is for the way there and back."""


class Ping:
    """The ASGI endpoint."""

    def __init__(self, speech: Speech) -> None:
        self._speech = speech

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        response: Response
        try:
            async with asyncio.timeout(ANSWER_WITHIN_S):
                await self._speech.ready()
            response = JSONResponse({"status": "ok"})
        except TimeoutError:
            response = error_response(EngineUnavailable("a part of the service does not answer; it may be starting"))
        except SpeechError as exc:
            response = error_response(exc)
        await response(scope, receive, send)
