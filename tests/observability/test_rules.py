"""The alert rules, by Prometheus' own tool, and against the table of metrics and the document that explains them."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from scripts.running import DEPLOYMENTS
from scripts.write_dashboard import PREFIX
from serve_app.metrics import ALL, Metric, Tag

ROOT = Path(__file__).resolve().parents[2]
OBSERVABILITY = ROOT / "configs" / "observability"
CASES = Path(__file__).with_name("rules.yaml")
RULES = yaml.safe_load((OBSERVABILITY / "rules.yaml").read_text())["groups"][0]["rules"]

OF_SERVE = Metric(
    "serve_deployment_status", "gauge", "", (Tag("application", ("kokoro",)), Tag("deployment", DEPLOYMENTS))
)
"""Ray Serve's own that an alert asks for. That it is there is seen in the running stack: tests/running."""

needs_promtool = pytest.mark.skipif(
    shutil.which("promtool") is None,
    reason="promtool is not installed: apt-get install --no-install-recommends prometheus",
)


def series_of(metric):
    """Names that Prometheus knows a metric by."""
    name = PREFIX + metric.name
    return {f"{name}_bucket", f"{name}_sum", f"{name}_count"} if metric.kind == "histogram" else {name}


def strangers(expression):
    """Names of series in an expression that no metric has, and label names and values that it cannot have."""
    known = {series: metric for metric in (*ALL, OF_SERVE) for series in series_of(metric)}
    found = []
    for series, selector in re.findall(rf"\b({PREFIX}\w+)(?:\{{([^}}]*)\}})?", expression):
        if series not in known:
            found.append(series)
            continue
        values = {tag.name: tag.values for tag in known[series].tags}
        for label, operator, value in re.findall(r'(\w+)(=~|!=|!~|=)"([^"]*)"', selector):
            wanted = value.split("|") if "~" in operator else [value]
            found += [f"{series}{{{label}={one}}}" for one in wanted if one not in values.get(label, ())]
    return found


@needs_promtool
def test_promtool_takes_the_configuration_with_its_rules():
    done = subprocess.run(
        ["promtool", "check", "config", "prometheus.yaml"], cwd=OBSERVABILITY, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr


@needs_promtool
def test_promtool_takes_the_other_way_to_scrape_that_is_in_the_comments(tmp_path):
    head, _, nodes = (OBSERVABILITY / "prometheus.yaml").read_text().partition("scrape_configs:\n")
    own_port = re.findall(r"^  # ((?:- |  ).*)$", nodes, re.MULTILINE)
    config = yaml.safe_load(head) | {"scrape_configs": yaml.safe_load("\n".join(own_port))}
    assert [set(job) for job in config["scrape_configs"]] == [{"job_name", "static_configs", "authorization"}]
    shutil.copy(OBSERVABILITY / "rules.yaml", tmp_path)
    (tmp_path / "scrape.key").write_text("kokoro_key")
    (tmp_path / "prometheus.yaml").write_text(yaml.safe_dump(config))
    done = subprocess.run(
        ["promtool", "check", "config", "prometheus.yaml"], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_alerts_name_the_application_as_the_configurations_do():
    texts = [file.read_text() for file in (ROOT / "configs").glob("*.yaml")]
    named = {name for text in texts for name in re.findall(r"applications:\n *- name: (\w+)", text)}
    asked = {name for rule in RULES for name in re.findall(r'application="(\w+)"', rule["expr"])}
    assert named == asked


@needs_promtool
def test_each_alert_rings_when_it_should_and_not_otherwise():
    done = subprocess.run(["promtool", "test", "rules", CASES], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_each_alert_has_a_case_in_which_it_rings_and_one_in_which_it_does_not():
    cases = [case for group in yaml.safe_load(CASES.read_text())["tests"] for case in group["alert_rule_test"]]
    names = {rule["alert"] for rule in RULES}
    assert {case["alertname"] for case in cases if case.get("exp_alerts")} == names
    assert {case["alertname"] for case in cases if not case.get("exp_alerts")} == names


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_an_alert_asks_for_metrics_that_there_are_and_has_its_section_in_the_runbook(rule):
    assert strangers(rule["expr"]) == []
    document, _, anchor = rule["annotations"]["runbook"].partition("#")
    headings = re.findall(r"^#+ (.*)$", (ROOT / document).read_text(), re.MULTILINE)
    assert anchor in [heading.lower() for heading in headings]
    assert anchor == rule["alert"].lower()
