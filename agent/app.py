"""The agent on AgentCore's two routes: POST /invocations streams one turn, GET /ping tells whether one goes on."""

import logging
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, aclosing
from typing import Any

from bedrock_agentcore.runtime import BedrockAgentCoreApp, RequestContext
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send
from strands import Agent
from strands.agent.conversation_manager import SlidingWindowConversationManager
from strands.models import Model

from agent.conversation import Conversations
from agent.events import Event
from agent.request import Request, parse_request
from agent.settings import AgentSettings
from agent.speaker import Speech
from agent.turn import run_turn
from serve_app.errors import SpeechError
from serve_app.protocol.sse import encode_event
from serve_app.server.responses import Body, ClientGone, error_response, impatient, while_connected

log = logging.getLogger(__name__)

OpenSpeech = Callable[[Request], AbstractAsyncContextManager[Speech]]
"""A session with the speech server for one answer, not connected yet. Raises SpeechError."""

SEND_STALL_TIMEOUT_S = 60.0
"""A caller who takes nothing for so long has gone."""


class Activity:
    """How many turns are going on, and since when it is so that there are some, or none."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._turns = 0
        self._changed_s = clock()

    def __enter__(self) -> None:
        self._turns += 1
        if self._turns == 1:
            self._changed_s = self._clock()

    def __exit__(self, *_: object) -> None:
        self._turns -= 1
        if not self._turns:
            self._changed_s = self._clock()

    def state(self) -> dict[str, str | int]:
        """AgentCore's health answer: it does not take a busy session for an idle one."""
        return {"status": "HealthyBusy" if self._turns else "Healthy", "time_of_last_update": int(self._changed_s)}


class EventStream(Response):
    """Events as server-sent events, for as long as the caller listens.

    Not the SDK's own streaming, which leaves a generator running, unclosed, when its caller hangs up.
    """

    def __init__(self, events: AsyncGenerator[Event, None], activity: Activity) -> None:
        super().__init__()
        self._events, self._activity = events, activity

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the events; a caller who hangs up ends them."""
        try:
            with self._activity:
                await while_connected(receive, self._write(impatient(send, SEND_STALL_TIMEOUT_S)))
        except ClientGone:
            log.info("the caller hung up")

    async def _write(self, send: Send) -> None:
        body = Body(send)
        async with aclosing(self._events) as events:
            await body.start("text/event-stream; charset=utf-8", {"Cache-Control": "no-cache"})
            async for event in events:
                await body.write(encode_event(None, event.dump()))
        await body.end()


class SameOrigin:
    """Refuses requests that a web page makes from an origin that is not allowed: a page elsewhere could otherwise have
    the agent of whoever looks at it speak, at their cost.
    """

    def __init__(self, app: ASGIApp, origins: tuple[str, ...]) -> None:
        self._app, self._origins = app, {origin.encode() for origin in origins}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on what does not come from a page, or comes from one that may."""
        origin = dict(scope.get("headers", ())).get(b"origin")
        if scope["type"] != "http" or origin is None or origin in self._origins:
            await self._app(scope, receive, send)
        else:
            await JSONResponse({"error": "this origin may not talk to the agent"}, 403)(scope, receive, send)


def create_app(settings: AgentSettings, model: Model, open_speech: OpenSpeech) -> BedrockAgentCoreApp:
    """The agent as an ASGI application. `model` is shared by all conversations."""
    _agent(settings, model)  # a tool that cannot be loaded is told now, and the first caller need not wait for imports
    activity = Activity()
    conversations = Conversations(lambda: _agent(settings, model), settings.max_conversations)
    app = BedrockAgentCoreApp(
        middleware=[
            Middleware(SameOrigin, origins=settings.cors_origins),
            Middleware(
                CORSMiddleware,
                allow_origins=settings.cors_origins,
                allow_methods=["GET", "POST"],
                allow_headers=["content-type", "x-amzn-bedrock-agentcore-runtime-session-id"],
            ),
        ]
    )

    async def ping(_: HttpRequest) -> Response:
        return JSONResponse(activity.state())

    # The SDK's own needs a thread, of which streams may hold all, and tells the time at which it was last asked.
    app.router.routes.insert(0, Route("/ping", ping, methods=["GET"]))

    @app.entrypoint
    async def invoke(payload: Any, context: RequestContext) -> Response:
        """One turn; see the wire contract, section 4."""
        try:
            request = parse_request(payload)
            speech = open_speech(request)
        except SpeechError as exc:
            return error_response(exc, exc.request_id)
        conversation = conversations.of(context.session_id)
        return EventStream(run_turn(request, conversation, speech, settings.filler), activity)

    return app


def _agent(settings: AgentSettings, model: Model) -> Agent:
    return Agent(
        model=model,
        system_prompt=settings.system_prompt,
        tools=list(settings.tools),
        callback_handler=None,
        conversation_manager=SlidingWindowConversationManager(window_size=settings.max_messages),
        retry_strategy=None,  # its pauses are silence in a call
    )
