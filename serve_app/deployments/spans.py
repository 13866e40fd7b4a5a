"""Spans through OpenTelemetry, sent over OTLP/HTTP. Imported where tracing is on only: see `open_tracer`."""

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Self

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from serve_app.tracing import Attribute
from serve_app.version import VERSION

SENT_EVERY_MS = 1000
"""A replica that is stopped loses what it has not sent."""

_CONTEXT = "traceparent"
_PROPAGATOR = TraceContextTextMapPropagator()


class OtlpTracer:
    """`Tracer` that sends from a thread of its own, to `endpoint`; a share of all utterances, whole ones."""

    def __init__(self, endpoint: str, share: float, service: str) -> None:
        """`service`: which part of the product this process is."""
        provider = TracerProvider(
            sampler=ParentBased(TraceIdRatioBased(share)),
            resource=Resource.create({"service.name": service, "service.version": VERSION}),
        )
        exporter = OTLPSpanExporter(endpoint)
        provider.add_span_processor(BatchSpanProcessor(exporter, schedule_delay_millis=SENT_EVERY_MS))
        self._tracer = provider.get_tracer("serve_app", VERSION)

    def begin(self, name: str, parent: str = "", /, *, ago_s: float = 0.0, **attributes: Attribute) -> "OtlpSpan":
        """See `Tracer.begin`."""
        context = _PROPAGATOR.extract({_CONTEXT: parent}) if parent else None
        began_ns = time.time_ns() - round(ago_s * 1e9)
        return OtlpSpan(
            self._tracer, self._tracer.start_span(name, context, attributes=attributes, start_time=began_ns)
        )

    def carried(self) -> tuple[str, ...]:
        """See `Tracer.carried`."""
        carrier: dict[str, str] = {}
        _PROPAGATOR.inject(carrier)
        return (carrier[_CONTEXT],) if carrier else ()


class OtlpSpan:
    """`Span` over one of OpenTelemetry's."""

    def __init__(self, tracer: trace.Tracer, span: trace.Span) -> None:
        self._tracer, self._span = tracer, span
        self._inside: AbstractContextManager[None] | None = None

    def __enter__(self) -> Self:
        self._inside = self.current()
        self._inside.__enter__()
        return self

    def __exit__(self, *exc_info: object) -> None:
        assert self._inside is not None
        self._inside.__exit__(None, None, None)
        if isinstance(exc := exc_info[1], BaseException):
            self.set(ended_by=type(exc).__name__)  # its message may hold what a client sent
        self.end()

    @contextmanager
    def current(self) -> Iterator[None]:
        with trace.use_span(self._span, record_exception=False, set_status_on_exception=False):
            yield

    def set(self, **attributes: Attribute) -> None:
        self._span.set_attributes(attributes)

    def past(self, name: str, *, ago_s: float, lasted_s: float) -> None:
        began_ns = time.time_ns() - round(ago_s * 1e9)
        part = self._tracer.start_span(name, self._context(), start_time=began_ns)
        part.end(began_ns + round(lasted_s * 1e9))

    def end(self) -> None:
        self._span.end()

    def _context(self) -> Context:
        return trace.set_span_in_context(self._span)
