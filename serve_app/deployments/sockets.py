"""The WebSockets of a gateway replica's own server: uvicorn's, but for what they hold, what they pack and how they end.

Ray Serve 2.60 runs uvicorn in the replica, behind HAProxy, and sets nothing of its WebSockets: a message may have
16 MiB and come deflated, 16 kB on the wire, and is held until its last fragment is there. When the server exits, every
session ends there and then, with 1012. With Ray's own proxy in front (RAY_SERVE_ENABLE_HA_PROXY=0) it is that proxy's
server that speaks WebSocket, in a process where nothing of this runs.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import uvicorn.config
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from uvicorn.server import ServerState
from websockets.frames import Frame

TIMES_TOO_LARGE = 2
"""Up to so many times `limits.max_body_bytes` a message is read to its end and answered by the contract's error, and
the session lives on. Past that it is read no further, and the connection ends with 1009 (RFC 6455, section 7.4.1).
"""

MAX_UNREAD_BYTES = 256 * 1024
"""What waits for a client that reads slowly, or nothing, when its pings go unanswered: audio stops far below it."""


def bound_websockets(max_body_bytes: Callable[[], int]) -> None:
    """Have the server of this replica speak by `GatewayWebSocket`. Call it while the replica is constructed.

    `max_body_bytes` is asked for each new connection: limits change while a replica runs.
    """
    # uvicorn takes an imported class there, too; its annotation does not say so.
    uvicorn.config.WS_PROTOCOLS["auto"] = partial(GatewayWebSocket, max_body_bytes)  # type: ignore[assignment]


class GatewayWebSocket(WebSocketsSansIOProtocol):
    """One connection.

    Attributes:
        fragments: of a message that has two or more and is not whole yet.
    """

    def __init__(
        self,
        max_body_bytes: Callable[[], int],
        config: uvicorn.Config,
        server_state: ServerState,
        app_state: dict[str, Any],
    ) -> None:
        config.ws_max_size = TIMES_TOO_LARGE * max_body_bytes()
        config.ws_per_message_deflate = False  # PCM does not shrink, and zlib would run on the loop of all sessions
        super().__init__(config, server_state, app_state)
        self.fragments = bytearray()

    def handle_cont(self, event: Frame) -> None:
        """Fragments are kept as one piece: a list of small or empty ones would weigh many times their bytes."""
        self.fragments += b"".join(self.frames)  # the first one, when the second comes
        self.fragments += event.data
        self.frames = []
        if event.fin:
            self.frames, self.fragments = [bytes(self.fragments)], bytearray()
            self.send_receive_event_to_app()

    def handle_ping(self) -> None:
        """Pongs that nobody reads would pile up; the last pings may go without (RFC 6455, section 5.5.3)."""
        if self.transport.get_write_buffer_size() < MAX_UNREAD_BYTES:
            super().handle_ping()
        else:
            self.conn.data_to_send()

    def handle_parser_exception(self) -> None:
        """Say why, and drop what still comes until the client has heard it: to close on it would take the words back.

        A socket that is closed while something is unread resets its connection, with what the client has not read yet.
        """
        if self.close_sent:
            return
        assert self.conn.close_sent is not None
        self.queue.put_nowait(
            {"type": "websocket.disconnect", "code": self.conn.close_sent.code, "reason": self.conn.close_sent.reason}
        )
        self.close_sent = True
        self.transport.write(b"".join(self.conn.data_to_send()))
        self.transport.write_eof()
        self.close_timer = self.loop.call_later(self.close_timeout, self.transport.close)

    def shutdown(self) -> None:
        """The server exits. It waits for this connection, as it does for one with a request in hand."""
        if self.close_sent:
            super().shutdown()
