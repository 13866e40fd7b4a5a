"""The service is changed, grows and shrinks, is overloaded and ends, with clients there.

Short forms of scripts/check_changes.py.
"""

import asyncio
import signal

import psutil
import pytest
from websockets.exceptions import ConnectionClosed

from scripts.changes.overload import ROOM, check_overload
from scripts.changes.service import Service, takes, until
from scripts.changes.tide import AUTOSCALING, check_tide
from scripts.changes.update import OTHER_ARGUMENTS, check_update
from scripts.promises import Promises
from scripts.running import local_config, serve_running
from tests.running.conversation import HANG_S, conversation

QUICK = {**AUTOSCALING, "max_replicas": 2, "downscale_delay_s": 3}
ARGUMENTS = {"kokoro": {"num_cpus": 0.1, "autoscaling": QUICK}, "engine": {"max_wait_s": 2.0}}
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


def test_a_surplus_is_refused_at_once_and_those_let_in_hear_nothing_of_it(timed_stack):
    promises = Promises(timed=False)

    async def overload() -> None:
        service = Service(CONFIG)
        service.deploy(args=OTHER_ARGUMENTS, Gateway={"user_config": ROOM})  # what runs since the update, narrowed
        await until(lambda: not takes(timed_stack, ROOM["max_sessions"] + 1), HANG_S, "the limit")
        await check_overload(timed_stack, promises, rounds=1, answers=2, sentences=2, burst=80)

    asyncio.run(overload())
    assert promises.broken == 0


def test_sigterm_lets_a_session_finish_the_message_in_hand_and_leaves_no_process(timed_stack):
    """Last in the file: the stack is gone afterwards. Ctrl-C takes the same way (tests/test_draining.py)."""
    processes = psutil.Process(timed_stack.process.pid).children(recursive=True)
    with conversation(timed_stack) as speaking, conversation(timed_stack) as idle:
        speaking.say("A sentence of many tones that last for a while. " * 20)
        speaking.until("synthesis_start")
        timed_stack.process.send_signal(signal.SIGTERM)
        assert speaking.until("synthesis_complete")
        for session in (speaking, idle):
            with pytest.raises(ConnectionClosed) as ended:
                session.receive()
            assert ended.value.rcvd.code == 1001
    assert timed_stack.process.wait(HANG_S) == 0
    _, left = psutil.wait_procs(processes, HANG_S)
    assert left == []
