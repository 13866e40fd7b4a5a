"""Who hears SIGINT and SIGTERM. That sessions are then finished is in tests/running/test_changes.py."""

import signal
import sys

import pytest
from ray._private import worker

from serve_app.draining import on_join

SIGNALS = (signal.SIGINT, signal.SIGTERM)


@pytest.fixture(autouse=True)
def handlers():
    """The tests' own handlers, put back, and Ray's list of what it calls once a process has joined."""
    before, hooks = {number: signal.getsignal(number) for number in SIGNALS}, list(worker._post_init_hooks)
    yield before
    worker._post_init_hooks[:] = hooks
    for number, handler in before.items():
        signal.signal(number, handler)


def join() -> None:
    """What `ray.init` does with the hook, in its order."""
    hooks = len(worker._post_init_hooks)
    on_join(None)
    for hook in worker._post_init_hooks[hooks:]:
        hook()


@pytest.mark.parametrize("number", SIGNALS)
def test_serve_run_is_taken_once_it_has_joined_and_what_ray_passes_is_given_back(monkeypatch, handlers, number):
    monkeypatch.setattr(sys, "argv", ["/somewhere/bin/serve", "run", "configs/local.yaml"])
    runtime_env = {"env_vars": {}}
    assert on_join(runtime_env) is runtime_env
    assert signal.getsignal(number) is handlers[number]
    join()
    assert signal.getsignal(number) is not handlers[number]


@pytest.mark.parametrize("called", [["serve", "status"], ["python", "run"], ["script.py"]])
def test_any_other_process_keeps_its_own(monkeypatch, handlers, called):
    monkeypatch.setattr(sys, "argv", called)
    join()
    assert {number: signal.getsignal(number) for number in SIGNALS} == handlers


@pytest.mark.parametrize("number", SIGNALS)
def test_while_serve_is_still_starting_it_ends_at_once(monkeypatch, number):
    monkeypatch.setattr(sys, "argv", ["serve", "run"])
    join()
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(number)


def test_a_second_ctrl_c_does_not_wait_and_a_second_sigterm_changes_nothing(monkeypatch):
    """A signal to a group comes twice where one of the group passes it on."""
    monkeypatch.setattr(sys, "argv", ["serve", "run"])
    join()
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGTERM)
    signal.raise_signal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
