"""AgentCore's data plane for tests: InvokeAgentRuntime on loopback, which answers as a test tells it."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread
from typing import Any

import boto3

from serve_app.client.agent_runtime import patient

REGION = "us-east-1"

Answer = Callable[["DataPlane"], None]


class DataPlane(BaseHTTPRequestHandler):
    """InvokeAgentRuntime. A test's `answer` writes the body: `event`, `piece`, `refuse`."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.requests.append((self.path, dict(self.headers.items()), json.loads(body)))
        try:
            self.server.answer(self)
        except OSError:
            self.server.hung_up.set()

    def start(self, content_type: str = "text/event-stream; charset=utf-8", status: int = 200) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()

    def piece(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))
        self.wfile.flush()

    def event(self, type: str, **fields: Any) -> None:
        self.piece(f"data: {json.dumps({'type': type, 'request_id': 'r', **fields})}\n\n".encode())

    def end(self) -> None:
        self.wfile.write(b"0\r\n\r\n")

    def whole(self, content: bytes, content_type: str = "application/json", status: int = 200, **headers: str) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": content_type, "Content-Length": str(len(content)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        pass


class DataPlaneServer(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, answer: Answer) -> None:
        super().__init__(("127.0.0.1", 0), DataPlane)
        self.answer = answer
        self.requests: list[tuple[str, dict[str, str], Any]] = []
        self.hung_up = Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def client(self) -> Any:
        """Of boto3, as `serve_app.client.agent_runtime` makes its own."""
        return boto3.client(
            "bedrock-agentcore",
            region_name=REGION,
            endpoint_url=self.url,
            aws_access_key_id="testing",
            aws_secret_access_key="testing",
            config=patient(),
        )


@contextmanager
def data_plane(answer: Answer) -> Iterator[DataPlaneServer]:
    """It answers every call with `answer`."""
    with DataPlaneServer(answer) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
