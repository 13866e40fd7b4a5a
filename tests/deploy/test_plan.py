"""The plan is a function: the same settings and facts give the same resources, and nobody is asked."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from deploy.costs import cost_sentence
from deploy.errors import DeployError
from deploy.plan import Facts, ami_of, as_json, as_table, build_plan, digest_of
from deploy.resources import (
    Alarm,
    BuildProject,
    Endpoint,
    EndpointConfig,
    Files,
    Image,
    LocalFile,
    Model,
    ScalableTarget,
    ScalingPolicy,
)
from deploy.settings import load_settings

FILE = LocalFile("kokoro-v1_0.pth", Path("kokoro-v1_0.pth"), "0" * 64, 327_212_226)
SOURCE = LocalFile("Dockerfile", Path("Dockerfile"), "1" * 64, 1000)
FACTS = Facts("123456789012", "aws", (FILE,), (SOURCE,))


def plan_of(*overrides: str, facts: Facts = FACTS):
    return build_plan(load_settings(None, ["region=us-east-1", *overrides]), facts)


def test_planning_needs_no_aws_sdk():
    code = "import sys, deploy.plan; assert not {'boto3', 'botocore', 'sagemaker', 'torch'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).resolve().parents[2])


def test_the_same_settings_and_facts_are_the_same_plan():
    assert plan_of() == plan_of()


def test_whatever_changes_what_runs_changes_the_name_of_the_config():
    base = plan_of().the(EndpointConfig).name
    other_weights = Facts("123456789012", "aws", (LocalFile("config.json", Path("x"), "2" * 64, 1),), (SOURCE,))
    others = [
        plan_of("environment={A: b}"),
        plan_of("instance_type=ml.g6.xlarge"),
        plan_of("timeouts.startup_s=1200"),
        plan_of("image.uri=123456789012.dkr.ecr.us-east-1.amazonaws.com/kokoro:v9"),
        plan_of(facts=other_weights),
    ]
    names = {plan.the(EndpointConfig).name for plan in others} | {base}
    assert len(names) == 6
    assert all(plan.the(Endpoint).config == plan.the(EndpointConfig).name for plan in others)


def test_scaling_and_alarms_change_without_a_new_version():
    changed = plan_of("autoscaling.max_instances=9", "autoscaling.min_instances=2", "alarms.periods=9")
    assert changed.the(EndpointConfig).name == plan_of().the(EndpointConfig).name
    assert changed.the(ScalableTarget).max_instances == 9


def test_names_keep_to_the_limits_of_aws_at_their_longest():
    longest = build_plan(
        load_settings(None, ["region=ap-southeast-2", "name=a-name-of-24-characters1"]),
        Facts("123456789012", "aws", (FILE,), (SOURCE,), "codebuild"),
    )
    for kind in (Model, EndpointConfig, Endpoint):
        assert len(longest.the(kind).name) <= 63
    assert len(longest.names.bucket) <= 63
    assert max(len(longest.names.role), len(longest.names.build_role)) <= 64


def test_codebuild_is_planned_only_where_no_engine_is():
    facts = Facts("123456789012", "aws", (FILE,), (SOURCE,), "codebuild")
    project = plan_of(facts=facts).the(BuildProject)
    assert project.bucket == "kokoro-123456789012-us-east-1"
    _, build, _ = yaml.safe_load(project.buildspec)["phases"]["build"]["commands"]
    assert "--platform linux/amd64 --provenance=false" in build
    assert plan_of().of(BuildProject) == ()
    given = plan_of("image.uri=123456789012.dkr.ecr.us-east-1.amazonaws.com/kokoro:v9")
    assert given.of(Image) == ()


def test_an_image_outside_ecr_is_refused():
    with pytest.raises(DeployError, match="SageMaker takes images from ECR alone"):
        plan_of("image.uri=docker.io/library/python:3.12")


@pytest.mark.parametrize(
    ("instance_type", "cuda", "ami"),
    [
        ("ml.g5.xlarge", "13.2", "al2023-ami-sagemaker-inference-gpu-4-1"),
        ("ml.g4dn.xlarge", "12.4", "al2-ami-sagemaker-inference-gpu-3-1"),
        ("ml.c5.xlarge", "13.2", None),
    ],
)
def test_the_machine_image_follows_the_cuda_version(instance_type, cuda, ami):
    assert ami_of(instance_type, cuda) == ami


def test_a_cuda_version_without_a_driver_is_refused():
    with pytest.raises(DeployError, match="drivers for CUDA 12, 13"):
        ami_of("ml.g5.xlarge", "11.8")


def test_scaling_goes_out_fast_by_tracking_and_in_slowly_by_steps():
    out, step_in = plan_of().of(ScalingPolicy)
    metric = out.fields["PredefinedMetricSpecification"]["PredefinedMetricType"]
    assert metric == "SageMakerVariantConcurrentRequestsPerModelHighResolution"
    assert out.fields["DisableScaleIn"] is True
    assert step_in.fields["StepAdjustments"] == [{"MetricIntervalUpperBound": 0.0, "ScalingAdjustment": -1}]
    quiet = plan_of().of(Alarm)[-1]
    assert quiet.runs_policy == step_in
    assert quiet.fields["TreatMissingData"] == "breaching"


def test_a_rollback_is_guarded_by_alarms_that_are_planned_before_the_endpoint():
    resources = plan_of().resources
    order = [resource.name for resource in resources if isinstance(resource, Alarm | Endpoint)]
    guarding = plan_of().the(Endpoint).guardrails.alarms
    assert set(guarding) <= set(order[: order.index("kokoro")])


def test_an_alarm_rings_where_it_is_told_to():
    topic = "arn:aws:sns:us-east-1:123456789012:calls"
    alarms = plan_of(f"alarms.notify={topic}").of(Alarm)
    assert [alarm.fields.get("AlarmActions") for alarm in alarms] == [[topic], [topic], [topic], None]


def test_the_plan_prints_for_people_and_for_machines():
    plan = plan_of()
    table = as_table(plan)
    assert table.count("\n") + 1 == len(plan.resources)
    assert "FirstChunkModelLatency above 2,000,000" in table
    assert "1 x ml.g5.xlarge, al2023-ami-sagemaker-inference-gpu-4-1" in table
    parsed = json.loads(json.dumps(as_json(plan)))
    assert [resource["name"] for resource in parsed["resources"]] == [resource.name for resource in plan.resources]
    assert parsed["quota"]["name"] == "ml.g5.xlarge for endpoint usage"


def test_the_cost_says_its_date_and_an_unknown_price_says_so():
    assert "1.41 to 2.82 USD an hour" in cost_sentence("ml.g5.xlarge", 1, 2)
    assert "list price in us-east-1, 2025-11" in cost_sentence("ml.g5.xlarge", 1, 2)
    assert "is not in the table" in cost_sentence("ml.p5.48xlarge", 1, 2)


def test_weights_lie_below_a_prefix_that_is_named_by_their_content():
    files = plan_of().the(Files)
    assert files.prefix == f"weights/{digest_of([FILE])}/"
    assert plan_of().the(Model).weights_uri == f"s3://kokoro-123456789012-us-east-1/weights/{digest_of([FILE])}/"
