"""What runs in front of the application, in Ray Serve's proxy and in its direct ingress: quiet ends of WebSockets.

Ray reads RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH, set in serve_app/ray_environment.py, and calls `middlewares`.
"""

from starlette.middleware import Middleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send


class DropLateFrames:
    """Drops what is sent over a WebSocket whose client has left.

    Frames in flight cannot be avoided; in Ray 2.60's proxy each one ends in a traceback ("async generator ignored
    GeneratorExit") in the log of a healthy service.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "websocket":
            await self._app(scope, receive, send)
            return
        gone = False

        async def watched_receive() -> Message:
            nonlocal gone
            message = await receive()
            gone = gone or message["type"] == "websocket.disconnect"
            return message

        async def watched_send(message: Message) -> None:
            nonlocal gone
            if gone:
                return
            try:
                await send(message)
            except (OSError, RuntimeError):  # the server's ways to say that the connection is closed
                gone = True

        await self._app(scope, watched_receive, watched_send)


def middlewares() -> list[Middleware]:
    """The hook that Ray Serve calls."""
    return [Middleware(DropLateFrames)]
