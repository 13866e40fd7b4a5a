"""The ASGI application: routes and what they share. Runs under any ASGI server; Ray Serve is one."""

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket

from serve_app.config import LimitSettings
from serve_app.errors import EngineUnavailable
from serve_app.metrics import REFUSALS, Recorder
from serve_app.server import invocations, openai, page, websocket
from serve_app.server.answers import Answers
from serve_app.server.invocations import Invocations
from serve_app.server.ping import Ping
from serve_app.server.responses import error_response
from serve_app.server.speech import Speech
from serve_app.server.websocket import BidirectionalStream

log = logging.getLogger(__name__)


class Application(Starlette):
    """The routes of one gateway replica, and an orderly end: `leave`, or `drain` to wait for it too."""

    def __init__(
        self, stream: BidirectionalStream, answers: Answers, routes: Sequence[BaseRoute], recorder: Recorder
    ) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None

        @asynccontextmanager
        async def lifespan(_: Starlette) -> AsyncIterator[None]:
            self._loop = asyncio.get_running_loop()
            yield
            stream.shut_down()

        super().__init__(routes=routes, exception_handlers={HTTPException: _http_error}, lifespan=lifespan)
        self._stream, self._answers, self._recorder = stream, answers, recorder
        self._in_hand = 0
        self._leaving = False
        self._idle = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await super().__call__(scope, receive, send)
        elif self._leaving:
            self._recorder.record(REFUSALS, reason="draining")
            await _refuse(scope, receive, send)
        else:
            self._in_hand += 1
            try:
                await super().__call__(scope, receive, send)
            finally:
                self._in_hand -= 1
                if not self._in_hand:
                    self._idle.set()

    def limit(self, limits: LimitSettings) -> None:
        """Other limits from now on. Open sessions keep those that they began with."""
        self._stream.limits = self._answers.limits = limits

    def leave_soon(self, within_s: float) -> None:
        """`leave`, from any thread, once the application has started."""
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self.leave, within_s)

    def leave(self, within_s: float) -> None:
        """Refuse what comes from now on; sessions finish the message in hand, or fail it when the time is up."""
        if not self._leaving:
            self._leaving = True
            log.info("leaving: %d requests and sessions are in hand", self._in_hand)
            self._stream.shut_down(within_s)

    async def drain(self, within_s: float) -> None:
        """`leave`, and wait for all that is in hand."""
        self.leave(within_s)
        while self._in_hand:
            self._idle.clear()
            await self._idle.wait()


def create_app(
    speech: Speech, limits: LimitSettings, recorder: Recorder, more_routes: Sequence[BaseRoute] = ()
) -> Application:
    """Build the application of one gateway replica; `more_routes` are those of the place where it runs."""
    stream = BidirectionalStream(speech, limits, recorder)
    answers = Answers(speech, limits, recorder)
    return Application(
        stream,
        answers,
        [
            Route("/ping", Ping(speech), methods=["GET"]),
            Route(invocations.ROUTE, Invocations(answers), methods=["POST"]),
            *openai.routes(speech, answers),
            *page.routes(),
            *more_routes,
            WebSocketRoute(websocket.ROUTE, stream),
        ],
        recorder,
    )


async def _refuse(scope: Scope, receive: Receive, send: Send) -> None:
    response = error_response(EngineUnavailable("this server is stopping; another one answers a retry"))
    if scope["type"] == "websocket":
        await WebSocket(scope, receive, send).send_denial_response(response)
    else:
        await response(scope, receive, send)


async def _http_error(request: Request, exc: Exception) -> Response:
    """A path or method that does not exist, in the shape of every other error."""
    assert isinstance(exc, HTTPException)
    if request.url.path.startswith(openai.PREFIX):
        return openai.http_error(exc)
    body = {"error": exc.detail, "code": "bad_request", "request_id": "unknown"}
    return JSONResponse(body, exc.status_code, headers=exc.headers)
