import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.settings import load_settings
from deploy.errors import DeployError
from deploy.runtime_plan import (
    Code,
    RuntimeNames,
    RuntimeSettings,
    build_runtime_plan,
    check_name,
    check_settings,
    environment,
    runtime_policy,
)

ACCOUNT = "123456789012"
MODEL = "amazon.nova-lite-v1:0"
IMAGE = f"{ACCOUNT}.dkr.ecr.eu-west-1.amazonaws.com/agents/voice:1"
names = st.from_regex(r"[a-zA-Z][a-zA-Z0-9_]{0,47}", fullmatch=True)


def settings(**changes) -> RuntimeSettings:
    return RuntimeSettings(
        **{"name": "voice_agent", "region": "us-east-1", "bedrock_model_id": MODEL, "tts_endpoint": "tts", **changes}
    )


def names_of(name: str = "voice_agent") -> RuntimeNames:
    return RuntimeNames(name, "us-east-1", ACCOUNT, "aws")


def planned(**changes):
    return build_runtime_plan(settings(**changes), ACCOUNT, "aws", Code("bucket", "hash/agent.zip"))


def statements(**changes) -> dict[str, list]:
    """By action: what it is allowed on, and under which condition."""
    found: dict[str, list] = {}
    for statement in runtime_policy(names_of(), settings(**changes))["Statement"]:
        for action in statement["Action"]:
            found.setdefault(action, []).append((statement["Resource"], statement.get("Condition")))
    return found


@pytest.mark.parametrize("name", ["a", "Voice_agent_2", "x" * 48])
def test_names_that_agentcore_takes_pass(name):
    check_name(name)


@pytest.mark.parametrize("name", ["", "voice-agent", "2agents", "_a", "x" * 49, "a b", "agent\n"])
def test_names_that_agentcore_refuses_are_refused_here(name):
    with pytest.raises(DeployError, match="no hyphens"):
        check_name(name)


@given(names)
def test_names_derived_from_a_name_are_such_as_s3_and_iam_take(name):
    derived = RuntimeNames(name, "ap-southeast-2", ACCOUNT, "aws")
    assert len(derived.bucket) <= 63
    assert len(derived.role) <= 64
    assert derived.bucket == derived.bucket.lower()
    assert set(derived.bucket) <= set("abcdefghijklmnopqrstuvwxyz0123456789-")
    assert not derived.bucket.startswith("-")


@given(names, names)
def test_two_runtimes_never_share_a_bucket_or_a_role(one, other):
    if one != other:
        assert names_of(one).bucket != names_of(other).bucket
        assert names_of(one).role != names_of(other).role


@pytest.mark.parametrize(
    "model",
    [
        MODEL,
        "us.anthropic.claude-haiku-4-5-20251001-v1:0",
        f"arn:aws:bedrock:us-east-1:{ACCOUNT}:application-inference-profile/abc123",
        "arn:aws:bedrock:us-east-1::foundation-model/amazon.nova-lite-v1:0",
        f"arn:aws:bedrock:us-east-1:{ACCOUNT}:provisioned-model/abc123",
    ],
)
def test_models_and_profiles_by_id_and_by_arn_pass(model):
    check_settings(settings(bedrock_model_id=model))


@pytest.mark.parametrize("model", ["", "a model", "arn:aws:s3:::bucket", "amazon.nova*"])
def test_what_cannot_be_a_model_is_refused(model):
    with pytest.raises(DeployError, match="no model of Bedrock"):
        check_settings(settings(bedrock_model_id=model))


def test_an_image_that_is_not_in_ecr_is_refused():
    check_settings(settings(image=IMAGE))
    with pytest.raises(DeployError, match="linux/arm64"):
        check_settings(settings(image="docker.io/library/agent:1"))


def test_the_agent_finds_its_settings_in_the_environment_it_is_given():
    told = load_settings(environment(settings()), {})
    assert (told.bedrock_model_id, told.region, told.tts_endpoint) == (MODEL, "us-east-1", "tts")


def test_a_zip_is_named_by_its_place_and_started_by_its_entry_point():
    plan = planned()
    assert plan.fields["agentRuntimeArtifact"] == {
        "codeConfiguration": {
            "code": {"s3": {"bucket": "bucket", "prefix": "hash/agent.zip"}},
            "runtime": "PYTHON_3_12",
            "entryPoint": ["main.py"],
        }
    }
    assert plan.bucket is not None


def test_an_image_takes_no_bucket_and_may_be_pulled():
    plan = planned(image=IMAGE)
    assert plan.fields["agentRuntimeArtifact"] == {"containerConfiguration": {"containerUri": IMAGE}}
    assert plan.bucket is None
    repository = f"arn:aws:ecr:eu-west-1:{ACCOUNT}:repository/agents/voice"
    assert statements(image=IMAGE)["ecr:BatchGetImage"] == [([repository], None)]
    assert "ecr:BatchGetImage" not in statements()


def test_no_action_is_a_wildcard_and_a_resource_only_where_aws_has_no_name_for_it():
    for action, allowed in statements(image=IMAGE).items():
        assert "*" not in action
        for resources, condition in allowed:
            if "*" in resources:
                assert action.startswith("xray:") or action == "ecr:GetAuthorizationToken" or condition


def test_the_agent_may_speak_through_its_one_endpoint():
    endpoint = f"arn:aws:sagemaker:us-east-1:{ACCOUNT}:endpoint/tts"
    assert statements()["sagemaker:InvokeEndpointWithBidirectionalStream"] == [([endpoint], None)]


def test_a_model_is_allowed_in_its_region_alone():
    only = [([f"arn:aws:bedrock:us-east-1::foundation-model/{MODEL}"], None)]
    assert statements()["bedrock:InvokeModelWithResponseStream"] == only
    assert statements()["bedrock:InvokeModel"] == only


@pytest.mark.parametrize(
    ("model", "profile", "behind"),
    [
        (f"us.{MODEL}", f"arn:aws:bedrock:us-east-1:{ACCOUNT}:inference-profile/us.{MODEL}", MODEL),
        (f"us-gov.{MODEL}", f"arn:aws:bedrock:us-east-1:{ACCOUNT}:inference-profile/us-gov.{MODEL}", MODEL),
        (f"global.{MODEL}", f"arn:aws:bedrock:us-east-1:{ACCOUNT}:inference-profile/global.{MODEL}", MODEL),
        (*[f"arn:aws:bedrock:us-east-1:{ACCOUNT}:application-inference-profile/abc"] * 2, "*"),
    ],
)
def test_a_profile_opens_its_models_in_every_region_but_only_through_it(model, profile, behind):
    through = {"StringEquals": {"bedrock:InferenceProfileArn": profile}}
    assert statements(bedrock_model_id=model)["bedrock:InvokeModel"] == [
        ([profile], None),
        ([f"arn:aws:bedrock:*::foundation-model/{behind}"], through),
    ]


def test_logs_are_those_of_this_runtime():
    (resources, _), *_ = statements()["logs:PutLogEvents"]
    assert resources == [
        f"arn:aws:logs:us-east-1:{ACCOUNT}:log-group:/aws/bedrock-agentcore/runtimes/voice_agent-*:log-stream:*"
    ]


def test_only_agentcore_for_this_account_and_region_may_take_the_role():
    (statement,) = planned().role.trust["Statement"]
    assert statement["Principal"] == {"Service": "bedrock-agentcore.amazonaws.com"}
    assert statement["Condition"]["StringEquals"] == {"aws:SourceAccount": ACCOUNT}
    assert statement["Condition"]["ArnLike"] == {"aws:SourceArn": f"arn:aws:bedrock-agentcore:us-east-1:{ACCOUNT}:*"}
    json.dumps(planned().role.policies)
