import json

import pytest

from scripts.write_dashboard import DASHBOARD, PREFIX, dashboard, expressions
from serve_app.metrics import ALL
from tests.observability.test_rules import strangers


def test_the_dashboard_in_the_repository_is_the_one_that_the_script_writes():
    assert json.loads(DASHBOARD.read_text()) == dashboard(), "run: uv run python scripts/write_dashboard.py"


@pytest.mark.parametrize("metric", ALL, ids=lambda metric: metric.name)
def test_every_metric_is_shown(metric):
    assert any(PREFIX + metric.name in expression for expression in expressions(dashboard()))


def test_every_query_asks_for_series_that_there_are():
    assert [stranger for expression in expressions(dashboard()) for stranger in strangers(expression)] == []


def test_panels_are_told_apart_and_none_covers_another():
    panels = dashboard()["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    cells = [
        (x, y)
        for place in (panel["gridPos"] for panel in panels)
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(set(cells)) == len(cells)
    assert max(x for x, _ in cells) < 24
