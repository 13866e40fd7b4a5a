"""A receiver of spans: OTLP over HTTP on loopback, decoded by OpenTelemetry's own protobuf messages."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

HANG_S = 60.0
"""Bounds a hang."""


@dataclass(frozen=True)
class Seen:
    """One span."""

    service: str
    name: str
    span_id: str
    parent_id: str
    trace_id: str
    begin_s: float
    end_s: float
    attributes: dict[str, Any]


class Receiver:
    """Keeps every span that comes, in order of arrival."""

    def __init__(self) -> None:
        self.spans: list[Seen] = []
        self.url = ""
        self._changed = threading.Condition()

    def take(self, body: bytes) -> None:
        request = ExportTraceServiceRequest.FromString(body)
        with self._changed:
            for of_service in request.resource_spans:
                service = _plain(of_service.resource.attributes)["service.name"]
                self.spans += [
                    Seen(
                        service,
                        span.name,
                        span.span_id.hex(),
                        span.parent_span_id.hex(),
                        span.trace_id.hex(),
                        span.start_time_unix_nano / 1e9,
                        span.end_time_unix_nano / 1e9,
                        _plain(span.attributes),
                    )
                    for scope in of_service.scope_spans
                    for span in scope.spans
                ]
            self._changed.notify_all()

    def wait_for(self, condition: Callable[[list[Seen]], object]) -> list[Seen]:
        """The spans so far, once they fulfil `condition`."""
        with self._changed:
            assert self._changed.wait_for(lambda: condition(self.spans), HANG_S), self.spans
            return list(self.spans)


@contextmanager
def receiving() -> Iterator[Receiver]:
    receiver = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            receiver.take(self.rfile.read(int(self.headers["content-length"])))
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            return None

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    receiver.url = f"http://127.0.0.1:{server.server_port}/v1/traces"
    try:
        yield receiver
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)


def paths(spans: list[Seen]) -> list[str]:
    """Each span as the names from its root down to it, sorted. Raises KeyError if a parent is missing."""
    by_id = {span.span_id: span for span in spans}

    def path(span: Seen) -> str:
        return f"{path(by_id[span.parent_id])} > {span.name}" if span.parent_id else span.name

    return sorted(path(span) for span in spans)


def _plain(attributes: Any) -> dict[str, Any]:
    return {entry.key: getattr(entry.value, entry.value.WhichOneof("value")) for entry in attributes}
