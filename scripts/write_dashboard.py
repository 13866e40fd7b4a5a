"""Write the Grafana dashboard: `uv run python scripts/write_dashboard.py`, after a change of serve_app/metrics.py.

First what to look at, then every metric of the table, each in the one way that its kind is read.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from serve_app.metrics import (
    ACTIVE_SESSIONS,
    ALL,
    AUDIO_S,
    BUSY_S,
    FRAMES,
    INFO,
    REFUSALS,
    TTFA_S,
    UTTERANCES,
    UTTERANCES_WITH_GAP,
    Metric,
)

DASHBOARD = Path(__file__).resolve().parent.parent / "configs" / "observability" / "dashboard.json"
PREFIX = "ray_"
"""Ray puts it before every name."""

PER_RATE = "[$__rate_interval]"
COLUMNS, GRID_WIDTH, HEIGHT = 3, 24, 8


@dataclass(frozen=True, slots=True)
class Panel:
    """One graph; `queries` are pairs of a PromQL expression and the legend of its lines."""

    title: str
    description: str
    unit: str
    queries: Sequence[tuple[str, str]]


def glance() -> list[Panel]:
    """What tells in a minute whether listeners are well."""
    busy = f"sum({_rate(BUSY_S)}) / count({_name(INFO)})"
    gaps = f"sum({_rate(UTTERANCES_WITH_GAP)}) / sum({_rate(UTTERANCES)})"
    speech = f'{_name(FRAMES)}{{content="speech"}}{PER_RATE}'
    fill = f"sum(rate({speech})) / sum({_rate(FRAMES)})"
    return [
        Panel("First audio", TTFA_S.description, "s", _quantiles(TTFA_S, tags=())),
        Panel("Utterances with a gap", UTTERANCES_WITH_GAP.description, "percentunit", [(gaps, "share")]),
        Panel("Refused", REFUSALS.description, "ops", [(f"sum({_rate(REFUSALS)})", "a second")]),
        Panel(
            "Open sessions", ACTIVE_SESSIONS.description, "short", [(f"sum({_name(ACTIVE_SESSIONS)})", "all replicas")]
        ),
        Panel("The models at work", "Share of the time, all replicas.", "percentunit", [(busy, "share")]),
        Panel("Batch fill", "Share of the frames in a batch that are speech.", "percentunit", [(fill, "share")]),
        Panel("Speech made", AUDIO_S.description, "none", [(f"sum({_rate(AUDIO_S)})", "seconds a second")]),
    ]


def panel_of(metric: Metric) -> Panel:
    """The metric as its kind is read: rates of counters, quantiles of histograms, sums of gauges."""
    tags = tuple(tag.name for tag in metric.tags)
    unit = _unit(metric)
    legend = " ".join(f"{{{{{tag}}}}}" for tag in tags) or "all replicas"
    match metric.kind:
        case "histogram":
            return Panel(metric.name, metric.description, unit, _quantiles(metric, tags))
        case "counter":
            return Panel(metric.name, metric.description, unit, [(f"sum {_by(tags)}({_rate(metric)})", legend)])
        case "gauge":
            return Panel(metric.name, metric.description, unit, [(f"sum {_by(tags)}({_name(metric)})", legend)])


def dashboard() -> dict[str, Any]:
    """The dashboard in Grafana's model (schema 39); it asks for the Prometheus when it is imported."""
    panels: list[dict[str, Any]] = []
    y = 0
    for row, group in (("At a glance", glance()), ("Every metric", [panel_of(metric) for metric in ALL])):
        panels.append({"id": len(panels) + 1, "type": "row", "title": row, "gridPos": _place(0, y, GRID_WIDTH, 1)})
        y += 1
        for number, panel in enumerate(group):
            width = GRID_WIDTH // COLUMNS
            place = _place(number % COLUMNS * width, y + number // COLUMNS * HEIGHT, width, HEIGHT)
            panels.append(_drawn(panel, len(panels) + 1, place))
        y += -(-len(group) // COLUMNS) * HEIGHT
    return {
        "uid": "kokoro-serve",
        "title": "kokoro-serve",
        "schemaVersion": 39,
        "timezone": "browser",
        "time": {"from": "now-1h", "to": "now"},
        "refresh": "30s",
        "templating": {"list": [{"name": "prometheus", "type": "datasource", "query": "prometheus"}]},
        "panels": panels,
    }


def expressions(model: dict[str, Any]) -> Iterator[str]:
    """Every query of a dashboard."""
    for panel in model["panels"]:
        for target in panel.get("targets", ()):
            yield target["expr"]


def _drawn(panel: Panel, number: int, place: dict[str, int]) -> dict[str, Any]:
    source = {"type": "prometheus", "uid": "${prometheus}"}
    return {
        "id": number,
        "type": "timeseries",
        "title": panel.title,
        "description": panel.description,
        "datasource": source,
        "gridPos": place,
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "targets": [
            {"refId": chr(ord("A") + index), "datasource": source, "expr": expression, "legendFormat": legend}
            for index, (expression, legend) in enumerate(panel.queries)
        ],
    }


def _place(x: int, y: int, width: int, height: int) -> dict[str, int]:
    return {"x": x, "y": y, "w": width, "h": height}


def _quantiles(metric: Metric, tags: Sequence[str]) -> list[tuple[str, str]]:
    legend = "".join(f" {{{{{tag}}}}}" for tag in tags)
    rates = f"sum {_by(('le', *tags))}(rate({_name(metric)}_bucket{PER_RATE}))"
    return [(f"histogram_quantile({share}, {rates})", f"p{share * 100:.0f}{legend}") for share in (0.5, 0.95, 0.99)]


def _rate(metric: Metric) -> str:
    return f"rate({_name(metric)}{PER_RATE})"


def _name(metric: Metric) -> str:
    return PREFIX + metric.name


def _by(tags: Sequence[str]) -> str:
    return f"by ({', '.join(tags)}) " if tags else ""


def _unit(metric: Metric) -> str:
    name = metric.name.removesuffix("_total")
    if name.endswith("_bytes"):
        return "bytes"
    if metric.kind == "counter":
        return "none" if name.endswith("_seconds") else "ops"
    return "s" if name.endswith("_seconds") else "short"


if __name__ == "__main__":
    DASHBOARD.write_text(json.dumps(dashboard(), indent=1) + "\n")
    print(f"{DASHBOARD}: {len(list(expressions(dashboard())))} queries")
