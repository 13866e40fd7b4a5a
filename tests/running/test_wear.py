"""A long life in short. Last of this folder, because it kills replicas of the stack that all others share."""

import asyncio

from scripts.soak.__main__ import soak

RUN_S = 120.0


def test_two_minutes_of_junk_hang_ups_and_killed_replicas_lose_double_and_leak_nothing(stack, capsys):
    assert asyncio.run(soak(stack.http, RUN_S)) == 0, capsys.readouterr().out
