"""Who hears Ctrl-C. That sessions are then finished is in tests/running/test_changes.py."""

import signal
import sys

import pytest

from serve_app.draining import on_join


@pytest.fixture(autouse=True)
def handler():
    """The tests' own handler, put back."""
    before = signal.getsignal(signal.SIGINT)
    yield before
    signal.signal(signal.SIGINT, before)


def test_serve_run_is_taken_and_what_ray_passes_is_given_back(monkeypatch, handler):
    monkeypatch.setattr(sys, "argv", ["/somewhere/bin/serve", "run", "configs/local.yaml"])
    runtime_env = {"env_vars": {}}
    assert on_join(runtime_env) is runtime_env
    assert signal.getsignal(signal.SIGINT) is not handler


@pytest.mark.parametrize("called", [["serve", "status"], ["python", "run"], ["script.py"]])
def test_any_other_process_keeps_its_own(monkeypatch, handler, called):
    monkeypatch.setattr(sys, "argv", called)
    assert on_join(None) is None
    assert signal.getsignal(signal.SIGINT) is handler


def test_while_ray_is_still_starting_it_ends_at_once(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["serve", "run"])
    on_join(None)
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
