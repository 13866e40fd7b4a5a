"""Bedrock's ConverseStream on loopback, so that the real botocore and Strands' own provider are what is tested."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote

from scripts.local_endpoint.eventstream import encode


def event(kind: str, payload: dict[str, Any]) -> bytes:
    head = {":message-type": "event", ":event-type": kind, ":content-type": "application/json"}
    return encode(head, json.dumps(payload).encode())


def exception(kind: str) -> bytes:
    head = {":message-type": "exception", ":exception-type": kind, ":content-type": "application/json"}
    return encode(head, json.dumps({"message": "told by the fake"}).encode())


def delta(text: str) -> bytes:
    return event("contentBlockDelta", {"contentBlockIndex": 0, "delta": {"text": text}})


START = event("messageStart", {"role": "assistant"})
USAGE = {"usage": {"inputTokens": 1, "outputTokens": 1, "totalTokens": 2}, "metrics": {"latencyMs": 1}}


def stop(reason: str = "end_turn") -> bytes:
    ends = ("contentBlockStop", {"contentBlockIndex": 0}), ("messageStop", {"stopReason": reason}), ("metadata", USAGE)
    return b"".join(event(kind, payload) for kind, payload in ends)


def tool_call(name: str, arguments: dict[str, Any]) -> bytes:
    start = {"contentBlockIndex": 0, "start": {"toolUse": {"toolUseId": "t1", "name": name}}}
    use = {"contentBlockIndex": 0, "delta": {"toolUse": {"input": json.dumps(arguments)}}}
    return event("contentBlockStart", start) + event("contentBlockDelta", use) + stop("tool_use")


class Bedrock:
    """What to answer, by model id, and what was asked.

    An answer is a list of pieces that are sent one by one: bytes; an Event to wait for; None, which cuts the
    connection. A number is the status of a refusal, whose kind follows. Answers are taken in turn; the last one stays.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self.answers: dict[str, list[list[Any]]] = {}
        self.asked: list[dict[str, Any]] = []
        self.sent = 0
        self.gone = threading.Event()
        """The caller closed the connection while an answer was being sent."""

    def answer(self, model_id: str) -> list[Any]:
        answers = self.answers[model_id]
        return answers.pop(0) if len(answers) > 1 else answers[0]


@contextmanager
def bedrock() -> Iterator[Bedrock]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: Any) -> None: ...

        def do_POST(self) -> None:
            fake.asked.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            model_id = unquote(self.path).split("/")[2]
            answer = fake.answer(model_id)
            if isinstance(answer[0], int):
                self._refuse(*answer)
                return
            self.send_response(200)
            self.send_header("Content-Type", "application/vnd.amazon.eventstream")
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            try:
                for piece in answer:
                    if piece is None:
                        self.close_connection = True
                        return
                    if isinstance(piece, threading.Event):
                        piece.wait(10)
                        continue
                    self.wfile.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
                    fake.sent += 1
                self.wfile.write(b"0\r\n\r\n")
            except OSError:
                fake.gone.set()

        def _refuse(self, status: int, kind: str) -> None:
            body = json.dumps({"message": "told by the fake"}).encode()
            self.send_response(status)
            self.send_header("x-amzn-ErrorType", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    fake = Bedrock(f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield fake
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
