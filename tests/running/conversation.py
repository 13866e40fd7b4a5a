"""A client of the WebSocket route that knows nothing of the server's code: what any client would do."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from websockets.sync.client import ClientConnection, connect

from scripts.running import Running

HANG_S = 120.0
"""Bounds a hang."""


class Conversation:
    """One session. Messages go as binary frames, as SageMaker delivers them."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket

    def say(self, text: str, **options: Any) -> None:
        self.send({"text": text, **options})

    def send(self, message: dict[str, Any] | str | bytes) -> None:
        self.socket.send(json.dumps(message).encode() if isinstance(message, dict) else message)

    def receive(self) -> dict[str, Any] | bytes:
        frame = self.socket.recv(timeout=HANG_S)
        if isinstance(frame, bytes):
            return frame
        control: dict[str, Any] = json.loads(frame)
        return control

    def until(self, kind: str) -> tuple[dict[str, Any], bytes]:
        """Read up to a control frame of this type; it, and the audio before it."""
        audio = b""
        while True:
            frame = self.receive()
            if isinstance(frame, bytes):
                audio += frame
            elif frame["type"] == kind:
                return frame, audio

    def end(self) -> None:
        """Send `close` and read what is left; raises unless the server ends the session with 1000."""
        self.send({"type": "close"})
        for _ in self.socket:
            pass

    def spoken(self) -> bytes:
        """The audio of the next utterance."""
        return self.until("synthesis_complete")[1]


@contextmanager
def conversation(running: Running, **options: Any) -> Iterator[Conversation]:
    with connect(running.websocket, compression=None, **options) as socket:
        yield Conversation(socket)
