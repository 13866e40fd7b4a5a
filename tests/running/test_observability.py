"""A real Prometheus with the rules and the queries of the repository, over the running product."""

import json
import re
import shutil
import subprocess
import threading
import time
from contextlib import contextmanager

import httpx
import pytest
import yaml

from scripts.running import Running, free_port
from scripts.write_dashboard import PREFIX, dashboard, expressions
from serve_app.metrics import (
    ALL,
    DROPPED_SYMBOLS,
    GAP_S,
    GPU_MEMORY_BYTES,
    THIS_INSTALLATION,
    UTTERANCES_WITH_GAP,
)
from tests.observability.test_rules import OBSERVABILITY, RULES, series_of
from tests.running.conversation import HANG_S, conversation

PROVOKED = "KokoroRefuses"
RARE = (DROPPED_SYMBOLS, GAP_S, GPU_MEMORY_BYTES, UTTERANCES_WITH_GAP)
"""Not recorded before something happens that need not: no symbol unknown, no gap, no GPU."""

needs_prometheus = pytest.mark.skipif(
    shutil.which("prometheus") is None,
    reason="prometheus is not installed: apt-get install --no-install-recommends prometheus",
)


class Prometheus:
    """A running one, asked over its HTTP API."""

    def __init__(self, url):
        self._url = url

    def get(self, path, **parameters):
        answer = httpx.get(f"{self._url}/api/v1/{path}", params=parameters, timeout=30).json()
        assert answer["status"] == "success", answer
        return answer["data"]

    def ask(self, expression):
        """The instant vector that an expression comes to."""
        return self.get("query", query=expression)["result"]

    def wait_for(self, expression):
        """Until it comes to something."""
        return asked_until(lambda: self.ask(expression), expression)


def asked_until(ask, what):
    """Ask until something comes; nobody tells when."""
    deadline_s, pause = time.monotonic() + HANG_S, threading.Event()
    while not (answer := ask()):
        assert time.monotonic() < deadline_s, f"nothing came of {what}"
        pause.wait(0.5)
    return answer


def exposed(stack):
    return httpx.get(f"{stack.http}/metrics", timeout=HANG_S).text


@contextmanager
def prometheus(folder, session):
    """The repository's configuration over one of Ray's sessions, the last one or not; a scrape a second, and no delay
    of the alert that is provoked.
    """
    config = yaml.safe_load((OBSERVABILITY / "prometheus.yaml").read_text())
    config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    (discovery,) = config["scrape_configs"][0]["file_sd_configs"]
    (of_last_session,) = discovery["files"]
    assert "session_latest" in of_last_session
    discovery["files"] = [of_last_session.replace("session_latest", session)]
    rules = [rule | ({"for": "0s"} if rule["alert"] == PROVOKED else {}) for rule in RULES]
    (folder / "rules.yaml").write_text(json.dumps({"groups": [{"name": "kokoro", "rules": rules}]}))
    (folder / "prometheus.yaml").write_text(json.dumps(config))
    port = free_port()
    process = subprocess.Popen(
        [
            "prometheus",
            f"--config.file={folder / 'prometheus.yaml'}",
            f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{port}",
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        running = Running(port, process)
        running.line("Server is ready to receive web requests")
        yield Prometheus(running.http)
    finally:
        process.terminate()
        process.wait(60)


@pytest.fixture(scope="module")
def spoken(stack):
    """The stack, when there was something of every kind to record."""
    speak_and_be_refused(stack)
    return stack


def speak_and_be_refused(stack):
    """Something of every kind: answers on all routes, a cancel, and more messages than a session's inbox takes."""
    for path, request in (("/invocations", {"text": "Hello there."}), ("/v1/audio/speech", {"input": "Hello there."})):
        assert httpx.post(f"{stack.http}{path}", json=request, timeout=HANG_S).status_code == 200
    with conversation(stack) as session:
        session.say("Hello there.")
        assert session.spoken()
        for _ in range(1024 + 100):
            session.say("This one is more than a word long.")
        session.send({"type": "ping"})
        session.until("pong")
        session.send({"type": "cancel"})
        session.end()


def left_hand_side(expression):
    """What an alert compares, without the comparison."""
    return re.fullmatch(r"(?s)(.*?)(?:\s*[<>=]=?\s*[\d.]+)?", expression)[1]


def may_be_empty(expression):
    names = set(re.findall(rf"{PREFIX}\w+", expression))
    return any(names & series_of(metric) for metric in RARE) or "absent" in expression or "internal" in expression


def test_the_route_for_cloudwatch_has_every_metric_and_nothing_of_rays(spoken):
    def samples():
        lines = exposed(spoken).splitlines()
        return {re.split(r"[{ ]", line)[0] for line in lines if not line.startswith("#")}

    known = {metric: series_of(metric) for metric in ALL}
    often = set().union(*(series for metric, series in known.items() if metric not in RARE))
    asked_until(lambda: often <= samples(), "the metrics")
    assert samples() <= set().union(*known.values())


@needs_prometheus
def test_every_query_is_answered_and_the_alert_that_was_provoked_rings_alone(spoken, tmp_path):
    session = asked_until(lambda: re.search(r'SessionName="([^"]+)"', exposed(spoken)), "the first metric")[1]
    with prometheus(tmp_path, session) as server:
        server.wait_for(f'{PREFIX}kokoro_refusals_total{{reason="inbox"}}')
        speak_and_be_refused(spoken)
        server.wait_for(f'ALERTS{{alertname="{PROVOKED}", alertstate="firing"}}')
        queries = [expression.replace("$__rate_interval", "5m") for expression in expressions(dashboard())]
        queries += [left_hand_side(rule["expr"]) for rule in RULES]
        assert [query for query in queries if not may_be_empty(query) and not server.ask(query)] == []
        alerts = [one["labels"] for one in server.get("alerts")["alerts"] if one["state"] == "firing"]
        assert [(labels["alertname"], labels["reason"]) for labels in alerts] == [(PROVOKED, "inbox")]
        (info,) = server.ask(f"{PREFIX}kokoro_info")
        assert info["value"][1] == "1"
        assert info["metric"]["weights"] == "packaged int8"
        assert THIS_INSTALLATION.items() <= info["metric"].items()
