"""IAM documents: nothing is allowed that is not named."""

import json
from pathlib import Path

import pytest

from deploy.names import Names
from deploy.policies import build_policy, deployer_policy, endpoint_policy, is_ecr_image, trust

NAMES = Names("kokoro", "us-east-1", "123456789012", "aws")
IMAGE = "123456789012.dkr.ecr.us-east-1.amazonaws.com/kokoro:v1"
# AWS knows no resource for these.
NAMELESS = {
    "application-autoscaling:DescribeScalableTargets",
    "application-autoscaling:DescribeScalingPolicies",
    "cloudwatch:PutMetricData",
    "ecr:GetAuthorizationToken",
    "sagemaker:ListEndpointConfigs",
    "sagemaker:ListModels",
    "servicequotas:ListServiceQuotas",
}
POLICIES = {
    "endpoint": endpoint_policy(NAMES, IMAGE),
    "build": build_policy(NAMES),
    "deployer": deployer_policy(NAMES),
}
STATEMENTS = [pytest.param(s, id=f"{n}-{s['Action'][0]}") for n, p in POLICIES.items() for s in p["Statement"]]


@pytest.mark.parametrize("statement", STATEMENTS)
def test_no_action_is_a_wildcard_and_no_resource_where_a_name_is_known(statement):
    assert not any("*" in action for action in statement["Action"])
    if "*" in statement["Resource"]:
        assert set(statement["Action"]) <= NAMELESS
    for resource in set(statement["Resource"]) - {"*"}:
        assert resource.startswith("arn:aws:")
        assert "123456789012" in resource


@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
def test_a_policy_stays_below_the_size_that_iam_takes(policy):
    assert len(json.dumps(policy, separators=(",", ":"))) < 6144  # a managed policy; an inline one takes 10 240


def test_the_endpoint_reads_the_weights_and_nothing_else_of_the_bucket():
    resources = {r for s in POLICIES["endpoint"]["Statement"] for r in s["Resource"] if ":s3:" in r}
    assert resources == {
        "arn:aws:s3:::kokoro-123456789012-us-east-1",
        "arn:aws:s3:::kokoro-123456789012-us-east-1/weights/*",
    }


def test_the_endpoint_pulls_the_image_of_another_account_where_that_is_named():
    policy = endpoint_policy(NAMES, "210987654321.dkr.ecr.eu-west-1.amazonaws.com/team/speech@sha256:abc")
    resources = {r for s in policy["Statement"] for r in s["Resource"] if ":ecr:" in r}
    assert resources == {"arn:aws:ecr:eu-west-1:210987654321:repository/team/speech"}


def test_passing_a_role_is_bound_to_the_services_that_take_it():
    (passing,) = (s for s in POLICIES["deployer"]["Statement"] if s["Action"] == ["iam:PassRole"])
    services = passing["Condition"]["StringEquals"]["iam:PassedToService"]
    assert services == ["sagemaker.amazonaws.com", "codebuild.amazonaws.com"]


def test_only_the_service_may_assume_the_role():
    assert trust("sagemaker")["Statement"][0]["Principal"] == {"Service": "sagemaker.amazonaws.com"}


@pytest.mark.parametrize(
    ("uri", "known"),
    [(IMAGE, True), ("python:3.12", False), (IMAGE.removesuffix(":v1"), False), (f"{IMAGE[:-3]}@sha256:a", True)],
)
def test_an_ecr_image_has_an_account_and_a_tag_or_digest(uri, known):
    assert is_ecr_image(uri) is known


def test_the_page_prints_the_deployers_policy():
    page = (Path(__file__).resolve().parents[2] / "docs" / "deploy.md").read_text()
    printed = page.partition("```json\n")[2].partition("```")[0]
    assert json.loads(printed) == POLICIES["deployer"]
