"""How the server of a gateway replica ends its WebSockets when Serve stops the replica: as the application wants.

With HAProxy in front, Ray Serve 2.60 tells the replica's own server (uvicorn) to exit before the application hears of
anything. The server then closes its listener, so that HAProxy takes new connections elsewhere, and lets requests
finish; but open WebSockets it ends there and then, with 1012. Here they are the application's to end, within the
deployment's graceful_shutdown_timeout_s, for which Serve waits.
"""

from collections.abc import Callable

import uvicorn.config
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

_end_sessions: Callable[[], None] | None = None


def end_sessions_by(end: Callable[[], None]) -> None:
    """Have servers that this process starts from now on call `end` instead of cutting their WebSockets.

    It is called once for each of them, on the server's thread.
    """
    global _end_sessions
    _end_sessions = end
    uvicorn.config.WS_PROTOCOLS["auto"] = f"{__name__}:LeavingWebSocket"


class LeavingWebSocket(WebSocketsSansIOProtocol):
    """uvicorn's own protocol but for its end."""

    def shutdown(self) -> None:
        """The server exits. It waits for this connection, as it does for one with a request in hand."""
        if self.close_sent or _end_sessions is None:
            super().shutdown()
        else:
            _end_sessions()
