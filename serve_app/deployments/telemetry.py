"""What is seen of a Serve replica: log lines go to Serve's files, metrics to Ray's, spans to who gathers them."""

import logging
import threading
import time
from typing import Protocol

from ray.util import metrics as ray_metrics

from serve_app.config import SettingsError, TracingSettings
from serve_app.metrics import ALL, Metric
from serve_app.tracing import NO_TRACER, Tracer

log = logging.getLogger(__name__)
PACKAGE = "serve_app"

GAUGES_EVERY_S = 0.5
"""Twice in the shortest interval that Ray can be told to report in."""


def log_through_serve() -> None:
    """Send the package's log lines where Serve's own go: the replica's log file and its stderr."""
    package = logging.getLogger(PACKAGE)
    package.setLevel(logging.INFO)
    package.handlers = logging.getLogger("ray.serve").handlers
    package.propagate = False


def open_tracer(settings: TracingSettings, service: str) -> Tracer:
    """The tracer of one replica; `service` is its part of the product.

    Where tracing is off, nothing of OpenTelemetry is imported. Raises SettingsError where it is on and not installed.
    """
    if settings.endpoint is None:
        return NO_TRACER
    try:
        from serve_app.deployments.spans import OtlpTracer
    except ModuleNotFoundError as exc:
        raise SettingsError(
            f"tracing.endpoint is set, but {exc.name} is not installed: `uv run --extra tracing ...`, or unset it"
        ) from exc
    return OtlpTracer(settings.endpoint, settings.share, service)


class RayRecorder:
    """Records through Ray's metrics API: exported for Prometheus by every node, shown by the dashboard.

    Ray forgets a gauge that is not set again (two of its report intervals, 20 s by default), so a thread does.
    """

    def __init__(self) -> None:
        self._series = {metric: _series(metric) for metric in ALL}
        self._gauges = Gauges()
        threading.Thread(target=self._set_gauges, name="gauges", daemon=True).start()

    def record(self, metric: Metric, value: float = 1.0, /, **tags: str) -> None:
        series, tags = self._series[metric], metric.bounded(tags)
        match series:
            case ray_metrics.Counter():
                if value > 0:  # Ray refuses to count nothing
                    series.inc(value, tags)
            case ray_metrics.Histogram():
                series.observe(value, tags)
            case ray_metrics.Gauge():
                self._gauges.keep(series, value, tags)

    def _set_gauges(self) -> None:
        while True:
            self._gauges.set_again()
            time.sleep(GAUGES_EVERY_S)


class Settable(Protocol):
    """What is set of a gauge of Ray's."""

    def set(self, value: float, tags: dict[str, str]) -> None: ...


class Gauges:
    """The last value of every gauge."""

    def __init__(self) -> None:
        self._values: dict[tuple[Settable, tuple[tuple[str, str], ...]], float] = {}
        self._failed = False

    def keep(self, gauge: Settable, value: float, tags: dict[str, str]) -> None:
        """Remember it for `set_again`, in its thread's own time."""
        self._values[gauge, tuple(tags.items())] = value

    def set_again(self) -> None:
        """Set all. One that fails is logged the first time, and tried again the next."""
        for (gauge, tags), value in list(self._values.items()):
            try:
                gauge.set(value, dict(tags))
            except Exception:
                if not self._failed:
                    log.exception("a gauge was not set; should others fail, that is not logged")
                self._failed = True


def _series(metric: Metric) -> ray_metrics.Metric:
    tag_keys = tuple(tag.name for tag in metric.tags)
    common = {"name": metric.name, "description": metric.description, "tag_keys": tag_keys}
    match metric.kind:
        case "counter":
            return ray_metrics.Counter(**common)
        case "gauge":
            return ray_metrics.Gauge(**common)
        case "histogram":
            return ray_metrics.Histogram(**common, boundaries=list(metric.buckets))
