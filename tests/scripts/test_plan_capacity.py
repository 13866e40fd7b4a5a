import json
import math
from dataclasses import asdict, replace

import pyarrow as pa
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from deploy.settings import Autoscaling, load_settings
from scripts import plan_capacity
from scripts.capacity.fleet import simulate
from scripts.capacity.ladder import LadderError, Rung, q_max, read_ladder
from scripts.capacity.planning import Traffic, TrafficError, busy, instances_at, kept_at, plan
from scripts.capacity.queue import ServiceCurve, closed_load, ladder_of, percentile
from scripts.capacity.startup import STAGES, StartupError, stages_in, stages_of

LADDER = [Rung(1, 0.065), Rung(5, 0.286), Rung(10, 0.568)]
MODEL = (
    "(ServeController pid=8070) INFO {} controller 8070 -- Adding 1 replica to Deployment(name='Kokoro', app='kokoro')."
)
LOG = f"""\
2026-11-30 00:45:31,390\tINFO scripts.py:489 -- Running config file: 'sagemaker.yaml'.
(ServeController pid=8070)   no time in this line
INFO 2026-11-30 00:45:56,764 serve 7275 -- Started Serve in namespace "serve".
{MODEL.format("2026-11-30 00:46:01,377")}
INFO 2026-11-30 00:46:29,877 serve 7275 -- Application 'kokoro' is ready at http://0.0.0.0:8080/.
{MODEL.format("2026-11-30 01:46:01,377")}
""".splitlines()
TRAFFIC = Traffic(trough=5, peak=60, surge=40, surge_over_s=1800, session_s=8)

loads = st.floats(0, 120)
traffics = st.builds(
    lambda trough, more, surge, over_s: Traffic(trough, trough + more, surge, over_s, 8.0),
    loads,
    st.floats(0.5, 120),
    loads,
    st.floats(0, 3600),
)


def test_the_one_lock_model_gives_the_published_ladder():
    ladder = ladder_of(plan_capacity.ONE_LOCK, list(plan_capacity.PUBLISHED_MS))
    measured_ms = {rung.concurrency: 1000 * rung.p95_ttfa_s for rung in ladder}
    assert measured_ms == pytest.approx(plan_capacity.PUBLISHED_MS, rel=0.02)


def test_batches_carry_more_at_the_same_promise():
    one_lock, batches = (
        q_max(ladder_of(curve, plan_capacity.RUNGS), 0.3) for curve in (plan_capacity.ONE_LOCK, plan_capacity.BATCHES)
    )
    assert (one_lock, batches) == (5, 16)


def test_a_lone_client_waits_for_one_pass_whatever_the_batches():
    for curve in (plan_capacity.ONE_LOCK, plan_capacity.BATCHES):
        assert closed_load(curve, 1, way_s=0.01, variation=0.0, answers=3, seed=0) == pytest.approx([0.066] * 3)


def test_everybody_who_waits_goes_into_the_next_pass():
    curve = ServiceCurve({1: 0.1, 4: 0.1})
    assert closed_load(curve, 4, way_s=0.0, variation=0.0, answers=8, seed=0) == pytest.approx([0.1] * 8)
    assert max(closed_load(curve, 5, way_s=0.0, variation=0.0, answers=10, seed=0)) == pytest.approx(0.2)


@given(st.integers(1, 60), st.integers(1, 20))
@settings(max_examples=30, deadline=None)
def test_more_at_the_same_time_never_wait_less(concurrency, more):
    before, after = ladder_of(plan_capacity.BATCHES, (concurrency, concurrency + more), variation=0.0, answers=300)
    assert before.p95_ttfa_s <= after.p95_ttfa_s + 1e-9


def test_a_seed_gives_the_same_ladder_and_another_a_different_one():
    first, again, other = (ladder_of(plan_capacity.BATCHES, (7,), answers=100, seed=seed) for seed in (1, 1, 2))
    assert first == again != other


def test_a_service_curve_is_straight_between_what_is_known():
    curve = plan_capacity.curve("1=0.05,5=0.09,7=0.2")
    assert [curve.seconds(batch) for batch in (1, 3, 5, 6, 7)] == pytest.approx([0.05, 0.07, 0.09, 0.145, 0.2])
    assert curve.max_batch == 7


@pytest.mark.parametrize("text", ["2=0.1", "1=0", "1=0.2,4=0.1"])
def test_a_service_curve_that_cannot_be_is_refused(text):
    with pytest.raises(ValueError, match="service curve"):
        plan_capacity.curve(text)


def test_percentiles_are_linear_between_ranks():
    assert percentile([4.0, 1.0, 3.0, 2.0], 50) == 2.5
    assert percentile([7.0], 95) == 7.0


@pytest.mark.parametrize("suffix", ["parquet", "csv", "json"])
def test_a_ladder_is_read_from_any_of_its_formats(tmp_path, suffix):
    file, rows = tmp_path / f"ladder.{suffix}", [asdict(rung) | {"note": "x"} for rung in reversed(LADDER)]
    match suffix:
        case "parquet":
            parquet.write_table(pa.Table.from_pylist(rows), file)
        case "csv":
            file.write_text("\n".join([",".join(rows[0]), *(",".join(map(str, row.values())) for row in rows)]))
        case "json":
            file.write_text(json.dumps(rows))
    assert read_ladder(file) == LADDER


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("a.csv", "concurrency,p95_ms\n1,65\n", "no column 'p95_ttfa_s'"),
        ("a.csv", "concurrency,p95_ttfa_s\n", "must have rows"),
        ("a.csv", "concurrency,p95_ttfa_s\n1,0.1\n1,0.2\n", "one for each concurrency"),
        ("a.csv", "concurrency,p95_ttfa_s\n1,fast\n", "is no ladder"),
        ("a.csv", "concurrency,p95_ttfa_s\n1,nan\n", "not above 0"),
        ("a.json", "{}", "a list of objects"),
        ("a.xlsx", "", ".parquet, .csv and .json"),
    ],
)
def test_a_file_that_is_no_ladder_is_refused_with_the_reason(tmp_path, name, content, says):
    (tmp_path / name).write_text(content)
    with pytest.raises(LadderError, match=says):
        read_ladder(tmp_path / name)


@pytest.mark.parametrize(("promise_s", "carries"), [(0.065, 1), (0.3, 5), (9, 10)])
def test_q_max_is_the_last_rung_that_keeps_the_promise(promise_s, carries):
    assert q_max(LADDER, promise_s) == carries


def test_a_rung_beyond_one_that_failed_counts_for_nothing():
    gap, error = replace(LADDER[1], gaps=1), replace(LADDER[1], errors=1)
    assert q_max([LADDER[0], gap, LADDER[2]], 9) == q_max([LADDER[0], error, LADDER[2]], 9) == 1


def test_a_promise_that_nothing_keeps_is_refused_with_what_was_measured():
    with pytest.raises(LadderError, match="p95 65 ms"):
        q_max(LADDER, 0.05)


def test_the_log_of_a_container_tells_its_own_stages():
    assert stages_in(LOG) == pytest.approx({"engine_start": 29.987, "warm_up": 28.5})


def test_a_log_that_breaks_off_tells_only_what_it_has():
    assert stages_in(LOG[:4]) == pytest.approx({"engine_start": 29.987})
    assert stages_in([]) == {}


def test_times_are_read_as_cloudwatch_writes_them_and_replicas_may_be_many():
    line = "Adding 2 replicas to Deployment(name='Kokoro', app='kokoro')."
    assert stages_in(["2026-11-30T00:45:31.390000+00:00 s INFO", f"2026-11-30T00:45:33.890000+00:00 s {line}"]) == {
        "engine_start": 2.5
    }


def test_what_is_given_wins_over_the_log():
    given_s = {"provisioning": 150.0, "image_pull": 120.0, "weights": 15.0, "warm_up": 9.0}
    stages_s = stages_of(LOG, given_s)
    assert list(stages_s) == list(STAGES)
    assert stages_s == pytest.approx(given_s | {"engine_start": 29.987})


def test_a_stage_that_nobody_tells_is_asked_for():
    with pytest.raises(StartupError, match="--stage image_pull=SECONDS --stage weights=SECONDS is missing"):
        stages_of(LOG, {"provisioning": 150.0})
    with pytest.raises(StartupError, match="coffee is no stage"):
        stages_of(LOG, {"coffee": 150.0})


def test_rates_become_sessions_by_how_long_each_lasts():
    assert Traffic.of_rates(1, 5, 2, 60, 8) == Traffic(8, 40, 16, 60, 8)


@pytest.mark.parametrize("levels", [(-1, 5, 0), (6, 5, 0), (0, 0, 5), (1, 5, -1)])
def test_traffic_that_cannot_be_is_refused(levels):
    with pytest.raises(TrafficError):
        Traffic(*levels, surge_over_s=60, session_s=8)


def test_a_start_of_hours_is_no_scaling():
    with pytest.raises(TrafficError, match="fixed number"):
        plan(TRAFFIC, 5, 4000)


@given(traffics, st.integers(1, 30), st.floats(0, 900))
@settings(deadline=None)
def test_at_every_level_enough_instances_run_for_what_comes_before_more_do(traffic, carries, t_total_s):
    values = plan(traffic, carries, t_total_s)
    top = traffic.peak + traffic.surge
    for level in {traffic.trough, traffic.peak, top} | {
        float(one) for one in range(math.ceil(traffic.trough), math.ceil(top))
    }:
        open_sessions = busy(level + traffic.unseen(level, t_total_s))
        assert instances_at(level, values) * carries >= open_sessions - 1e-6


@given(traffics, st.integers(1, 30), st.floats(0, 900), st.floats(1, 3), st.sampled_from(["peak", "surge", "trough"]))
@settings(deadline=None)
def test_more_traffic_never_means_a_smaller_fleet(traffic, carries, t_total_s, factor, name):
    larger = getattr(traffic, name) * factor
    more = replace(traffic, **{name: min(larger, traffic.peak) if name == "trough" else larger})
    assert plan(traffic, carries, t_total_s).max_instances <= plan(more, carries, t_total_s).max_instances


@given(traffics, st.integers(1, 30), st.floats(0, 900), st.integers(1, 10))
@settings(deadline=None)
def test_a_better_engine_never_means_a_larger_fleet(traffic, carries, t_total_s, better):
    values = plan(traffic, carries, t_total_s)
    assert plan(traffic, carries + better, t_total_s).max_instances <= values.max_instances


@given(traffics, st.integers(1, 30), st.floats(0, 900), st.floats(0, 900))
@settings(deadline=None)
def test_a_faster_start_never_means_that_more_must_be_running(traffic, carries, t_total_s, faster_s):
    fast_s = max(0.0, t_total_s - faster_s)
    for level in (traffic.trough, traffic.peak):
        assert traffic.unseen(level, fast_s) <= traffic.unseen(level, t_total_s)


@given(traffics, st.integers(1, 30), st.floats(0, 900))
@settings(deadline=None)
def test_what_has_come_goes_again_as_far_as_the_level_allows(traffic, carries, t_total_s):
    values = plan(traffic, carries, t_total_s)
    assert values.min_instances <= instances_at(traffic.trough, values) <= kept_at(traffic.trough, values)
    assert kept_at(traffic.trough, values) <= kept_at(traffic.peak, values) <= values.max_instances


def test_the_example_s_fleet_follows_its_traffic():
    values = plan(TRAFFIC, 16, 300.0)
    assert kept_at(TRAFFIC.trough, values) < instances_at(TRAFFIC.peak, values)


def surge(values, traffic=TRAFFIC, level=60.0, *, refuse_at=64, seed=0):
    return simulate(traffic, level, values, 300.0, refuse_at=refuse_at, lasts_s=600.0, seed=seed)


@pytest.mark.parametrize("level", [TRAFFIC.trough, TRAFFIC.peak])
def test_at_the_planned_values_a_surge_is_carried(level):
    values = plan(TRAFFIC, 16, 300.0)
    outcome = surge(values, level=level)
    assert outcome.sessions > 10_000
    assert outcome.late < 0.01 * outcome.sessions
    assert outcome.refused == 0


def test_a_surge_out_of_the_trough_makes_the_fleet_grow():
    values = plan(TRAFFIC, 16, 300.0)
    assert instances_at(5, values) < surge(values, level=5.0).most_instances <= values.max_instances


def test_without_spare_room_a_surge_is_late_and_then_refused():
    careless = plan(TRAFFIC, 16, 300.0).model_copy(update={"target_concurrency": 16.0, "min_instances": 4})
    late = surge(careless)
    assert late.late > 0.1 * late.sessions
    assert late.refused == 0
    refused = surge(careless, refuse_at=16)
    assert refused.refused > 0
    assert refused.late == 0


def test_after_a_surge_instances_are_given_back_one_by_one():
    values = plan(TRAFFIC, 16, 300.0)
    quick = values.step_in.model_copy(update={"periods": 1})
    eager = values.model_copy(update={"scale_in_cooldown_s": 0, "step_in": quick})
    outcome = surge(eager, level=5.0)
    assert outcome.left_instances < outcome.most_instances
    assert outcome.left_instances >= eager.min_instances
    patient = surge(values.model_copy(update={"scale_in_cooldown_s": 3600}), level=5.0)
    assert patient.left_instances >= outcome.left_instances
    assert patient.instance_hours > outcome.instance_hours


def test_a_surge_is_the_same_for_the_same_seed():
    values = plan(TRAFFIC, 16, 300.0)
    assert surge(values, seed=3) == surge(values, seed=3) != surge(values, seed=4)


def test_a_fleet_that_may_not_grow_does_not():
    values = plan(TRAFFIC, 16, 300.0).model_copy(update={"min_instances": 2, "max_instances": 2})
    assert surge(values).most_instances == 2


def run(monkeypatch, *arguments: str) -> None:
    monkeypatch.setattr("sys.argv", ["plan_capacity.py", *map(str, arguments)])
    plan_capacity.main()


def planning(tmp_path, *more: str) -> list[str]:
    (tmp_path / "ladder.json").write_text(json.dumps([asdict(rung) for rung in LADDER]))
    (tmp_path / "start.log").write_text("\n".join(LOG))
    text = "plan --promise-s 0.3 --trough 1 --peak 8 --surge 4 --surge-over-s 1200 --seconds-per-answer 8"
    files = ["--ladder", str(tmp_path / "ladder.json"), "--startup-log", str(tmp_path / "start.log")]
    return [*text.split(), *files, "--stage", "provisioning=150", "--stage", "image_pull=120", *more]


def test_the_file_it_writes_is_what_the_deploy_tool_reads(tmp_path, monkeypatch, capsys):
    run(monkeypatch, *planning(tmp_path, "--stage", "weights=15", "--to", str(tmp_path / "capacity.yaml")))
    (tmp_path / "deploy.yaml").write_text("region: us-east-1\nautoscaling: capacity.yaml\n")
    values = load_settings(tmp_path / "deploy.yaml").autoscaling
    assert values.q_max == 5
    assert values.max_instances > values.min_instances >= 1
    out, err = capsys.readouterr()
    assert not out
    assert "| all | 343 |" in err
    assert "| 8 sessions |" in err


def test_without_a_file_the_values_go_to_stdout_alone(tmp_path, monkeypatch, capsys):
    run(monkeypatch, *planning(tmp_path, "--stage", "weights=15"))
    assert Autoscaling.model_validate(yaml.safe_load(capsys.readouterr().out)).q_max == 5


def test_what_is_missing_ends_it_with_one_sentence(tmp_path, monkeypatch):
    with pytest.raises(SystemExit, match="--stage weights=SECONDS is missing"):
        run(monkeypatch, *planning(tmp_path))


def test_the_comparison_has_a_row_a_rung_and_a_fleet_and_a_plot(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(plan_capacity, "SEEDS", 1)
    run(monkeypatch, "compare", "--plot", str(tmp_path / "capacity.png"))
    out = capsys.readouterr().out
    assert all(f"| {rung} | {published_ms} |" in out for rung, published_ms in plan_capacity.PUBLISHED_MS.items())
    assert "| one lock | 5 |" in out
    assert (tmp_path / "capacity.png").read_bytes().startswith(b"\x89PNG")
