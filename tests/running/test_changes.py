"""The service is changed, grows and shrinks, and ends, with clients there; short forms of scripts/check_changes.py."""

import asyncio
import signal

import pytest
from websockets.exceptions import ConnectionClosed

from scripts.changes.tide import AUTOSCALING, check_tide
from scripts.changes.update import check_update
from scripts.promises import Promises
from scripts.running import local_config, serve_running
from tests.running.conversation import HANG_S, conversation

QUICK = {**AUTOSCALING, "max_replicas": 2, "downscale_delay_s": 3}
ARGUMENTS = {"kokoro": {"num_cpus": 0.1, "autoscaling": QUICK}}
CONFIG = local_config(import_path="scripts.cluster.app:build", args=ARGUMENTS)


@pytest.fixture(scope="module")
def timed_stack():
    """An engine that only takes its time, in the mode that the product sets."""
    with serve_running(CONFIG) as running:
        yield running


def test_limits_change_without_a_restart_and_everything_else_without_a_gap(timed_stack):
    promises = Promises(timed=False)
    asyncio.run(check_update(timed_stack, CONFIG, promises, ["limits", "arguments"], talkers=2, silent=2))
    assert promises.broken == 0


def test_engines_come_and_go_with_the_tide_and_every_answer_is_whole(timed_stack):
    promises = Promises(timed=False)
    asyncio.run(check_tide(timed_stack, CONFIG, promises, period_s=20.0, tides=1))
    assert promises.broken == 0


def test_ctrl_c_lets_a_session_finish_the_message_in_hand(timed_stack):
    """Last in the file: the stack is gone afterwards."""
    with conversation(timed_stack) as speaking, conversation(timed_stack) as idle:
        speaking.say("A sentence of many tones that last for a while. " * 20)
        speaking.until("synthesis_start")
        timed_stack.process.send_signal(signal.SIGINT)
        assert speaking.until("synthesis_complete")
        for session in (speaking, idle):
            with pytest.raises(ConnectionClosed) as ended:
                session.receive()
            assert ended.value.rcvd.code == 1001
    assert timed_stack.process.wait(HANG_S) == 0
