"""The table of metrics: names that Prometheus takes as they are, and no series that a client could multiply."""

import re
import tomllib
from math import prod
from pathlib import Path

import pytest

from serve_app.errors import TABLE
from serve_app.metrics import ALL, INFO, OTHER, OUTCOME, ROUTE, THIS_INSTALLATION, UTTERANCES
from serve_app.server import invocations, openai, websocket
from serve_app.version import VERSION

ROOT = Path(__file__).resolve().parent.parent
MAX_SERIES = 200
"""Of one metric on one replica; a histogram has each of them for every bucket."""


@pytest.mark.parametrize("metric", ALL, ids=lambda metric: metric.name)
def test_a_name_tells_product_and_kind_and_the_series_are_few(metric):
    assert re.fullmatch(r"kokoro_[a-z]+(_[a-z]+)*", metric.name)
    assert metric.name.endswith("_total") == (metric.kind == "counter")
    assert bool(metric.buckets) == (metric.kind == "histogram")
    assert list(metric.buckets) == sorted(set(metric.buckets))
    assert metric.description.endswith(".")
    assert prod(len(tag.values) + 1 for tag in metric.tags) <= MAX_SERIES
    for tag in metric.tags:
        assert tag.values
        assert OTHER not in tag.values


def test_names_are_said_once():
    assert len({metric.name for metric in ALL}) == len(ALL)


def test_a_value_outside_its_list_is_counted_as_other():
    kept = {"route": ROUTE.values[0], "outcome": "complete"}
    assert UTTERANCES.bounded(kept) == kept
    assert UTTERANCES.bounded({"route": "/" + "x" * 99, "outcome": "complete"}) == kept | {"route": OTHER}
    assert UTTERANCES.bounded({}) == {"route": OTHER, "outcome": OTHER}


def test_routes_and_outcomes_are_those_of_the_server():
    assert set(ROUTE.values) == {invocations.ROUTE, openai.SPEECH_ROUTE, websocket.ROUTE}
    assert {error.code for error in TABLE} < set(OUTCOME.values)


def test_the_version_is_that_of_the_package():
    assert tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"] == VERSION
    assert THIS_INSTALLATION["version"] == VERSION
    assert INFO.bounded({"weights": "s3", "device": "cuda", **THIS_INSTALLATION})["torch"] == THIS_INSTALLATION["torch"]


def row(metric):
    """Its line in the document."""
    tags = [f"{tag.name}: {_values(tag)}" for tag in metric.tags]
    return f"| `{metric.name}` | {metric.kind} | {metric.description} | {'; '.join(tags)} |"


def _values(tag):
    if tag is OUTCOME:
        return "`complete`, `cancelled`, `disconnected`, or the code of an [error](api.md#errors)"
    if tag.name in THIS_INSTALLATION:
        return "as installed"
    return ", ".join(f"`{value}`" for value in tag.values)


def test_the_documented_metrics_are_the_real_ones():
    document = (ROOT / "docs" / "operate.md").read_text()
    table = document[document.index("<!-- metrics") : document.index("### Prometheus")]
    shown = [line for line in table.splitlines() if line.startswith("| `")]
    assert shown == [row(metric) for metric in ALL]
