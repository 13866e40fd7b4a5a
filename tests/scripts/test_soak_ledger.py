import pytest

from scripts.soak.clients import Counts
from scripts.soak.ledger import Ledger, Outage
from scripts.soak.machine import Growth, Others, Sample, growth, part_of
from scripts.soak.report import MOST_GROWN_BYTES, broken


def spoken(ledger, name, text="Hello.", audio=b"\x01\x02" * 10, said_s=0.0, ttfa_s=0.5, promised_bytes=None):
    ledger.say(name, text, said_s)
    ledger.hear(name, audio, said_s + ttfa_s)
    ledger.end(name, "complete", said_s + 1, len(audio) if promised_bytes is None else promised_bytes)


def told(ledger, outages=(), counts=None, grown=(), left=None, others=(0.0, 0.0), lasted_s=60.0):
    return broken(ledger, counts or Counts(), outages, grown, left or {}, others, lasted_s)


def test_messages_that_ended_once_and_were_whole_break_no_promise():
    ledger = Ledger()
    spoken(ledger, "a")
    spoken(ledger, "b")
    ledger.say("c", "Stop.", 2.0)
    ledger.end("c", "cancelled", 2.1)
    assert told(ledger, left={"kokoro_queue_depth": 0.0}) == []
    assert ledger.ended == {"complete": 2, "cancelled": 1}


def test_a_message_without_an_end_is_lost():
    ledger = Ledger()
    spoken(ledger, "a")
    ledger.say("b", "Hello.", 0.0)
    assert ledger.lost == 1
    assert told(ledger) == ["1 messages lost"]


@pytest.mark.parametrize("how", ["complete", "cancelled", "internal"])
def test_a_second_end_is_doubled(how):
    ledger = Ledger()
    spoken(ledger, "a")
    ledger.end("a", how, 2.0, 20)
    assert ledger.doubled == {how: 1}
    assert told(ledger) == ["1 messages doubled"]


def test_audio_after_the_end_is_doubled():
    ledger = Ledger()
    spoken(ledger, "a")
    ledger.hear("a", b"\x00\x00", 2.0)
    assert told(ledger) == ["1 messages doubled"]


def test_other_audio_for_the_same_text_is_noticed():
    ledger = Ledger()
    spoken(ledger, "a")
    spoken(ledger, "b", text="Another.", audio=b"\x03\x04")
    assert told(ledger) == []
    spoken(ledger, "c", audio=b"\x01\x02" * 9 + b"\x01\x03")
    assert told(ledger) == ["1 messages with other audio than the first time"]


def test_less_audio_than_the_server_counted_is_noticed():
    ledger = Ledger()
    spoken(ledger, "a")
    spoken(ledger, "b", promised_bytes=22)
    assert told(ledger) == ["1 messages without all of their audio"]


def test_failures_are_excused_while_a_part_is_away_and_only_then():
    ledger = Ledger()
    spoken(ledger, "a")
    for number, at_s in enumerate((9.0, 10.0, 14.9, 15.1)):
        ledger.say(f"f{number}", "Hello.", at_s)
        ledger.end(f"f{number}", "engine_unavailable", at_s)
    away = [Outage("Kokoro", 10.0, 15.0)]
    assert ledger.unprovoked(away) == {"engine_unavailable": 2}
    assert told(ledger, away) == ["engine_unavailable 2 times, with nothing killed"]


def test_a_service_that_does_not_come_back_is_noticed():
    ledger = Ledger()
    spoken(ledger, "a")
    assert len(told(ledger, [Outage("Chunker", 10.0, None)])) == 1
    assert len(told(ledger, [Outage("Chunker", 10.0, 71.0)])) == 1


def test_drift_compares_calm_thirds_of_the_run():
    ledger = Ledger()
    for second in range(90):
        spoken(ledger, str(second), said_s=second, ttfa_s=5.0 if 40 <= second <= 50 else 0.2 if second < 60 else 0.4)
    assert ledger.drift([Outage("Kokoro", 40.0, 55.0)]) == pytest.approx(2.0)
    assert told(ledger, [Outage("Kokoro", 40.0, 55.0)]) == []
    assert len(told(ledger, [Outage("Kokoro", 40.0, 55.0)], lasted_s=1800.0)) == 1
    busier = told(ledger, [Outage("Kokoro", 40.0, 55.0)], others=(0.1, 1.1), lasted_s=1800.0)
    assert busier == []


def test_too_few_messages_tell_no_drift():
    ledger = Ledger()
    spoken(ledger, "a")
    assert ledger.drift([]) is None


def test_growth_leaves_out_the_first_part_of_a_life():
    def at(second):
        return Sample("Gateway", 7, float(second), 100 + 10 * min(second, 30), 20 + second // 50)

    assert growth([at(second) for second in range(60)]) == [Growth("Gateway", 7, 29.0, 400, 0, 1)]
    assert growth([at(second) for second in range(35)]) == []


def test_what_has_grown_too_much_or_stays_behind_is_told():
    ledger = Ledger()
    spoken(ledger, "a")
    leak = Growth("Gateway", 7, 1000.0, 1 << 30, MOST_GROWN_BYTES + 1, 0)
    assert len(told(ledger, grown=[leak])) == 1
    assert told(ledger, left={"kokoro_active_sessions": 1.0}) == ["kokoro_active_sessions is 1 when all have gone"]


@pytest.mark.parametrize(
    ("command", "part"),
    [
        (["ray::ServeReplica:kokoro:Kokoro.synthesize"], "Kokoro"),
        (["ray::ServeReplica:kokoro:FakeKokoroReplica"], "FakeKokoro"),
        (["ray::HAProxyManager"], "HAProxyManager"),
        (["ray-dashboard-NodeHead-0 (/usr/bin/python -c x)"], "ray-dashboard-NodeHead-0"),
        (["/opt/ray/raylet/raylet", "--raylet_socket_name=/x"], "raylet"),
        (["/usr/bin/python", "-u", "/opt/ray/log_monitor.py", "--x"], "log_monitor.py"),
    ],
)
def test_a_process_is_named_by_what_it_does(command, part):
    assert part_of(command) == part


def test_what_others_take_of_the_machine_is_what_the_service_does_not_even_if_it_has_been_replaced():
    others = Others()
    for minute, (used_s, busy_s) in enumerate(
        [({1: 10.0}, 100.0), ({1: 40.0}, 136.0), ({1: 70.0}, 172.0), ({2: 30.0}, 232.0), ({2: 60.0}, 292.0)]
    ):
        others.look(used_s, busy_s, minute * 60.0)
    assert others.cores() == pytest.approx((0.1, 0.5))
