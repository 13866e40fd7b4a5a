"""The ASGI application: routes and what they share. Runs under any ASGI server; Ray Serve is one."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route, WebSocketRoute

from serve_app.config import LimitSettings
from serve_app.metrics import Recorder
from serve_app.protocol.requests import RequestLimits
from serve_app.server import invocations, openai, page, websocket
from serve_app.server.answers import Answers
from serve_app.server.invocations import Invocations
from serve_app.server.ping import Ping
from serve_app.server.speech import Speech
from serve_app.server.websocket import BidirectionalStream


def create_app(speech: Speech, limits: LimitSettings, recorder: Recorder) -> Starlette:
    """Build the application of one gateway replica."""
    stream = BidirectionalStream(speech, limits, recorder)
    answers = Answers(speech, limits, recorder)
    request_limits = RequestLimits(limits.max_text_chars, limits.max_request_age_s)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        yield
        stream.shut_down()

    return Starlette(
        routes=[
            Route("/ping", Ping(speech), methods=["GET"]),
            Route(invocations.ROUTE, Invocations(answers, request_limits), methods=["POST"]),
            *openai.routes(speech, answers, request_limits),
            *page.routes(),
            WebSocketRoute(websocket.ROUTE, stream),
        ],
        exception_handlers={HTTPException: _http_error},
        lifespan=lifespan,
    )


async def _http_error(request: Request, exc: Exception) -> Response:
    """A path or method that does not exist, in the shape of every other error."""
    assert isinstance(exc, HTTPException)
    if request.url.path.startswith(openai.PREFIX):
        return openai.http_error(exc)
    body = {"error": exc.detail, "code": "bad_request", "request_id": "unknown"}
    return JSONResponse(body, exc.status_code, headers=exc.headers)
