"""The ASGI application: routes and what they share. Runs under any ASGI server; Ray Serve is one."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket

from serve_app.access.callers import Callers
from serve_app.access.keys import KeyRing
from serve_app.config import AccessSettings, LimitSettings
from serve_app.errors import EngineUnavailable, SpeechError, Unauthorized
from serve_app.metrics import REFUSALS, Recorder
from serve_app.server import invocations, openai, page, websocket
from serve_app.server.access import KeyGate, KeysFile, OriginGate
from serve_app.server.answers import Answers
from serve_app.server.invocations import Invocations
from serve_app.server.ping import Ping
from serve_app.server.responses import error_response
from serve_app.server.speech import Speech
from serve_app.server.websocket import BidirectionalStream

log = logging.getLogger(__name__)

OPEN_TO_ALL = AccessSettings()

EXPOSED_HEADERS = (
    "retry-after",
    "x-audio-duration",
    "x-characters-processed",
    "x-inference-time-ms",
    "x-request-id",
    "x-rtf",
)
"""What a page of an allowed origin may read of an answer, beside its body and content type."""


class Application(Starlette):
    """The routes of one gateway replica, and an orderly end: `leave`, or `drain` to wait for it too."""

    def __init__(
        self,
        stream: BidirectionalStream,
        answers: Answers,
        routes: Sequence[BaseRoute],
        recorder: Recorder,
        gates: Sequence[Middleware],
        beside: Callable[[], Awaitable[None]] | None,
    ) -> None:
        """`beside` runs as long as the application does."""
        self._loop: asyncio.AbstractEventLoop | None = None

        @asynccontextmanager
        async def lifespan(_: Starlette) -> AsyncIterator[None]:
            self._loop = asyncio.get_running_loop()
            running = None if beside is None else asyncio.ensure_future(beside())
            yield
            if running is not None:
                running.cancel()
            stream.shut_down()

        super().__init__(
            routes=routes, middleware=gates, exception_handlers={HTTPException: _http_error}, lifespan=lifespan
        )
        self._stream, self._answers, self._recorder = stream, answers, recorder
        self._in_hand = 0
        self._refused: frozenset[str] = frozenset()  # kinds of connection
        self._idle = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await super().__call__(scope, receive, send)
        elif scope["type"] in self._refused:
            self._recorder.record(REFUSALS, reason="draining")
            stopping = EngineUnavailable("this server is stopping; another one answers a retry", retry_after_s=1)
            await _refuse(stopping, scope, receive, send)
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
        """`leave`, from any thread."""
        if self._loop is not None:  # else it has not started, and there is nothing to leave
            self._loop.call_soon_threadsafe(self.leave, within_s)

    def leave(self, within_s: float) -> None:
        """Refuse sessions from now on; those there are finish the message in hand, or fail it when the time is up.

        Requests are answered as long as the server that runs this takes any.
        """
        if not self._refused:
            self._refused = frozenset({"websocket"})
            log.info("leaving: %d requests and sessions are in hand", self._in_hand)
            self._stream.shut_down(within_s)

    async def drain(self, within_s: float) -> None:
        """`leave`, refuse requests too, and wait for all that is in hand."""
        self.leave(within_s)
        self._refused = frozenset({"websocket", "http"})
        while self._in_hand:
            self._idle.clear()
            await self._idle.wait()


def create_app(
    speech: Speech,
    limits: LimitSettings,
    recorder: Recorder,
    more_routes: Sequence[BaseRoute] = (),
    access: AccessSettings = OPEN_TO_ALL,
) -> Application:
    """Build the application of one gateway replica; `more_routes` are those of the place where it runs.

    Raises:
        SettingsError: the file of keys cannot be used.
    """
    stream = BidirectionalStream(speech, limits, recorder)
    answers = Answers(speech, limits, recorder)

    gates = [Middleware(OriginGate, allowed=access.allowed_origins, refuse=_refuse, recorder=recorder)]
    if access.allowed_origins:
        gates.append(
            Middleware(
                CORSMiddleware,
                allow_origins=[origin.lower() for origin in access.allowed_origins],
                allow_methods=("GET", "POST"),
                allow_headers=("*",),  # clients in browsers add headers of their own
                expose_headers=EXPOSED_HEADERS,
            )
        )
    beside = None
    if access.keys_file is not None:
        file = KeysFile(access.keys_file)
        callers = Callers(
            file.keys,
            max_sessions=access.sessions_per_key,
            max_requests=access.requests_per_key,
            characters_per_minute=access.characters_per_minute,
        )
        gates.append(Middleware(KeyGate, callers=callers, refuse=_refuse, recorder=recorder))

        def changed(keys: KeyRing) -> None:
            callers.keys = keys
            stream.expel_those_without(keys)

        async def watch_keys() -> None:
            await file.watch(changed)

        beside = watch_keys

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
        gates,
        beside,
    )


async def _refuse(error: SpeechError, scope: Scope, receive: Receive, send: Send) -> None:
    """Answer before any route is asked. An upgrade is refused with the error's status."""
    of_openai = scope["path"].startswith(openai.PREFIX)
    response = openai.refusal(error) if of_openai else error_response(error)
    if isinstance(error, Unauthorized):
        response.headers["WWW-Authenticate"] = "Bearer"  # RFC 6750, section 3
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
