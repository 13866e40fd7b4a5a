"""The real stack under load, short: everybody is served to the end. How fast is not asserted here."""

import asyncio

import pytest

from scripts.loadtest.arrivals import closed_loop
from scripts.loadtest.client import Manner, Server, clock_s
from scripts.loadtest.rounds import Load, run_round
from scripts.loadtest.stats import Outcome, summary
from tests.running.conversation import HANG_S

RUN_S = 400.0
"""Bounds a hang."""


async def one_round(url):
    server = Server("stack", url, Manner(tokens_per_s=40.0, patience_s=HANG_S))
    try:
        load = Load(sentences=4, listening=False, seed=0, ends_at_s=clock_s() + RUN_S)
        return await run_round(server, "websocket-sentences", 0, closed_loop(8, 8), load)
    finally:
        await server.aclose()


def test_eight_answers_at_once_are_all_whole_and_the_servers_account_is_the_same(stack):
    answers = asyncio.run(one_round(stack.http))
    found = summary(answers)
    assert found.reasons == {}
    assert found.outcomes == {Outcome.COMPLETE: 8}
    for answer in answers:
        records = [stack.utterance(f"{answer.request_id}/{number}") for number in range(answer.sentences)]
        assert {record["outcome"] for record in records} == {"complete"}
        assert sum(record["audio_s"] for record in records) == pytest.approx(answer.audio_s, abs=0.01)
