"""The life of a deployment against an account on loopback, through the real SDKs."""

import io
import json
import os
import sys

import pytest

from deploy.errors import EndpointFailed
from deploy.names import Names
from deploy.policies import trust
from tests.deploy.fake_aws import manifest_of

NAMES = Names("kokoro", "us-east-1", "123456789012", "aws")
BUILD = ("--set", "image.uri=null")  # from the sources, by CodeBuild
UPDATE = ("--set", "environment={KOKORO_ENGINE__MAX_BATCH: '4'}")  # any other content is another version


def left_behind(client):
    """Everything that the account holds, of the kinds that a deployment can make."""
    autoscaling, sagemaker = client("application-autoscaling"), client("sagemaker")
    return {
        "buckets": [bucket["Name"] for bucket in client("s3").list_buckets()["Buckets"]],
        "roles": [role["RoleName"] for role in client("iam").list_roles()["Roles"]],
        "repositories": client("ecr").describe_repositories()["repositories"],
        "projects": client("codebuild").list_projects()["projects"],
        "models": sagemaker.list_models()["Models"],
        "configs": sagemaker.list_endpoint_configs()["EndpointConfigs"],
        "endpoints": sagemaker.list_endpoints()["Endpoints"],
        "targets": autoscaling.describe_scalable_targets(ServiceNamespace="sagemaker")["ScalableTargets"],
        "policies": autoscaling.describe_scaling_policies(ServiceNamespace="sagemaker")["ScalingPolicies"],
        "alarms": client("cloudwatch").describe_alarms()["MetricAlarms"],
        "log groups": client("logs").describe_log_groups()["logGroups"],
    }


def changes(aws, since=0):
    """The actions of the account that changed something."""
    reads = ("Get", "List", "Describe", "Batch", "PassRole")
    return [action for action in aws.actions()[since:] if not action.partition(":")[2].startswith(reads)]


def endpoint(client):
    return client("sagemaker").describe_endpoint(EndpointName="kokoro")


def test_deploys_from_nothing_and_a_second_time_changes_nothing(tool, aws, client):
    first = tool("deploy", "--json", *BUILD)
    assert (first.status, first.json["endpoint"]) == (0, "InService"), first.stderr
    assert first.json["scaling"] == {"min": 1, "max": 2}
    assert set(first.json["alarms"]) == set(NAMES.alarms)
    made = len(aws.actions())
    second = tool("deploy", "--json", *BUILD)
    assert second.status == 0
    assert second.json == first.json
    assert changes(aws, since=made) == []


def test_the_endpoint_is_made_as_the_plan_says(tool, client):
    plan = tool("plan", "--json", *BUILD).json
    planned = {resource["kind"]: resource for resource in plan["resources"]}
    assert tool("deploy", *BUILD).status == 0
    sagemaker = client("sagemaker")
    config = sagemaker.describe_endpoint_config(EndpointConfigName=endpoint(client)["EndpointConfigName"])
    (variant,) = config["ProductionVariants"]
    assert config["EndpointConfigName"] == planned["endpoint config"]["name"]
    assert variant["RoutingConfig"]["RoutingStrategy"] == "LEAST_OUTSTANDING_REQUESTS"
    assert variant["InferenceAmiVersion"] == "al2023-ami-sagemaker-inference-gpu-4-1"
    assert variant["ModelDataDownloadTimeoutInSeconds"] == 900
    assert variant["ContainerStartupHealthCheckTimeoutInSeconds"] == 900
    model = sagemaker.describe_model(ModelName=variant["ModelName"])
    source = model["PrimaryContainer"]["ModelDataSource"]["S3DataSource"]
    assert source["S3Uri"] == planned["S3 objects"]["name"]
    assert model["PrimaryContainer"]["Image"] == planned["ECR image"]["name"]
    alarms = {alarm["AlarmName"]: alarm for alarm in client("cloudwatch").describe_alarms()["MetricAlarms"]}
    policies = client("application-autoscaling").describe_scaling_policies(ServiceNamespace="sagemaker")
    step_in = {policy["PolicyName"]: policy for policy in policies["ScalingPolicies"]}["kokoro-in"]
    assert alarms["kokoro-idle"]["AlarmActions"] == [step_in["PolicyARN"]]


def test_weights_in_the_cache_are_plain_files_without_folder_objects(tool, client, tmp_path, weights):
    """A zero-byte object named like a folder, or a link in an archive, makes SageMaker's download fail."""
    linked = tmp_path / "snapshot" / "one-level-down"
    (linked / "voices").mkdir(parents=True)
    for name in ("config.json", "kokoro-v1_0.pth", "voices/af_heart.pt"):
        (linked / name).symlink_to(weights / name)
    assert tool("deploy", "--set", f"weights={linked.parent}").status == 0
    s3, bucket = client("s3"), NAMES.bucket
    stored = {item["Key"]: item["Size"] for item in s3.list_objects_v2(Bucket=bucket, Prefix="weights/")["Contents"]}
    prefix = next(iter(stored)).removesuffix("config.json")
    assert set(stored) == {prefix + name for name in ("config.json", "kokoro-v1_0.pth", "voices/af_heart.pt")}
    assert all(stored.values())
    s3.put_object(Bucket=bucket, Key=f"{prefix}voices/", Body=b"")
    s3.put_object(Bucket=bucket, Key=f"{prefix}config.json", Body=b"config.jsoN")  # the same size
    dry = tool("deploy", "--dry-run", "--set", f"weights={linked.parent}")
    assert "1 of 3 files to upload; " + prefix + "voices/ does not belong there" in dry.stdout
    assert tool("deploy", "--set", f"weights={linked.parent}").status == 0
    assert s3.get_object(Bucket=bucket, Key=f"{prefix}config.json")["Body"].read() == b"config.json"
    assert f"{prefix}voices/" not in [item["Key"] for item in s3.list_objects_v2(Bucket=bucket)["Contents"]]


def test_an_interruption_after_any_kind_of_change_is_resumed(tool, aws, client):
    """Run after run loses the answer to the first change of a kind that none lost before, there and back again."""
    runs = 0
    while True:
        aws.set(lose_next_answer=True)
        outcome = tool("deploy", "--json", *BUILD)
        if outcome.status == 0:
            break
        assert "the answer was lost" in outcome.stderr
        assert outcome.stdout == ""
        runs += 1
    assert runs >= 16
    aws.set(lose_next_answer=False)
    clean = outcome.json
    assert clean["endpoint"] == "InService"
    steps = tool("deploy", "--dry-run", "--json", *BUILD).json
    assert {step["found"] for step in steps} == {"as planned"}
    while True:
        aws.set(lose_next_answer=True)
        outcome = tool("destroy", "--yes")
        if outcome.status == 0:
            break
    aws.set(lose_next_answer=False)
    assert not any(left_behind(client).values())


def test_ctrl_c_while_waiting_leaves_the_endpoint_to_the_next_run(tool, aws, client):
    def interrupted(_):
        raise KeyboardInterrupt

    aws.set(looks=5)
    outcome = tool("deploy", pause=interrupted)
    assert outcome.status == 130
    assert "the same command goes on" in outcome.stderr
    assert endpoint(client)["EndpointStatus"] == "Creating"
    assert tool("deploy").status == 0
    assert endpoint(client)["EndpointStatus"] == "InService"


def test_a_role_that_is_seconds_old_is_waited_for(tool, aws):
    aws.set(new_role_refusals=3)
    assert tool("deploy").status == 0


def test_a_dry_run_shows_drift_and_changes_nothing_and_deploy_takes_it_back(tool, aws, client):
    assert tool("deploy").status == 0
    client("iam").attach_role_policy(RoleName=NAMES.role, PolicyArn=_broad_policy(client))
    client("iam").delete_role_policy(RoleName=NAMES.role, PolicyName="endpoint")
    client("application-autoscaling").register_scalable_target(
        ServiceNamespace="sagemaker",
        ResourceId="endpoint/kokoro/variant/AllTraffic",
        ScalableDimension="sagemaker:variant:DesiredInstanceCount",
        MaxCapacity=9,
    )
    client("s3").delete_public_access_block(Bucket=NAMES.bucket)
    client("cloudwatch").delete_alarms(AlarmNames=["kokoro-saturated"])
    before = len(aws.actions())
    dry = tool("deploy", "--dry-run")
    assert dry.status == 0
    assert changes(aws, since=before) == []
    for expected in (
        "-endpoint: to change: without the policy endpoint; with arn:aws:iam::123456789012:policy/broad attached",
        "AllTraffic: to change: MaxCapacity is 9, planned 2",
        "to change: open to the public",
        "kokoro-saturated: to make",
        "endpoint          kokoro: there",
    ):
        assert expected in dry.stdout
    assert tool("deploy").status == 0
    assert {step["found"] for step in tool("deploy", "--dry-run", "--json").json} == {"as planned"}


def _broad_policy(client):
    document = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "s3:*", "Resource": "*"}]}
    return client("iam").create_policy(PolicyName="broad", PolicyDocument=json.dumps(document))["Policy"]["Arn"]


@pytest.mark.parametrize("taken", ["role", "bucket", "repository", "project", "alarm"])
def test_a_name_that_something_else_has_is_refused_before_anything_is_made(tool, aws, client, taken):
    _take(client, taken)
    before = len(aws.actions())
    outcome = tool("deploy", *BUILD)
    assert outcome.status == 1
    assert "without the tag of the deployment kokoro" in outcome.stderr
    assert "Nothing was changed" in outcome.stderr
    assert changes(aws, since=before) == []
    assert tool("destroy", "--yes").status == 0
    assert len([kind for kind, things in left_behind(client).items() if things]) == 1  # it is still there


def _take(client, taken):
    anyone = json.dumps({"Version": "2012-10-17", "Statement": []})
    match taken:
        case "role":
            client("iam").create_role(RoleName=NAMES.role, AssumeRolePolicyDocument=anyone)
        case "bucket":
            client("s3").create_bucket(Bucket=NAMES.bucket)
            client("s3").put_object(Bucket=NAMES.bucket, Key="theirs", Body=b"1")
        case "repository":
            client("ecr").create_repository(repositoryName="kokoro")
        case "project":
            client("codebuild").create_project(
                name=NAMES.project,
                source={"type": "S3", "location": "bucket/key.zip"},
                artifacts={"type": "NO_ARTIFACTS"},
                environment={"type": "LINUX_CONTAINER", "image": "x", "computeType": "BUILD_GENERAL1_SMALL"},
                serviceRole="arn:aws:iam::123456789012:role/x",
            )
        case "alarm":
            client("cloudwatch").put_metric_alarm(
                AlarmName="kokoro-idle",
                Namespace="x",
                MetricName="x",
                Statistic="Sum",
                Period=60,
                EvaluationPeriods=1,
                Threshold=1,
                ComparisonOperator="GreaterThanThreshold",
            )


def test_an_endpoint_of_another_maker_is_neither_deployed_over_nor_destroyed(tool, aws, client):
    assert tool("deploy").status == 0
    arn = endpoint(client)["EndpointArn"]
    client("sagemaker").delete_tags(ResourceArn=arn, TagKeys=["kokoro-serve:deployment"])
    before = len(aws.actions())
    for command in (["deploy"], ["update", *UPDATE], ["destroy", "--yes"]):
        outcome = tool(*command)
        assert outcome.status == 1
        assert "the endpoint kokoro" in outcome.stderr
    assert changes(aws, since=before) == []


def test_an_endpoint_that_does_not_come_up_is_a_failure_with_its_reason_and_made_anew_next_time(tool, aws, client):
    aws.set(creation_fails="The primary container did not pass the ping health check")
    outcome = tool("deploy")
    assert outcome.status == 1
    assert "Failed: The primary container did not pass the ping health check" in outcome.stderr
    assert "/aws/sagemaker/Endpoints/kokoro" in outcome.stderr
    status = tool("status", "--json")
    assert (status.status, status.json["endpoint"]) == (1, "Failed")
    aws.set(creation_fails=None)
    outcome = tool("deploy")
    assert outcome.status == 0
    assert "making it anew" in outcome.stderr


def test_an_endpoint_that_takes_for_ever_ends_in_a_sentence(tool, aws):
    from deploy.aws.endpoint import settle
    from deploy.aws.session import open_session

    assert tool("deploy").status == 0
    aws.set(looks=100)
    session = open_session("us-east-1", None, "kokoro", pause=lambda _: None)
    session.client("sagemaker").delete_endpoint(EndpointName="kokoro")
    with pytest.raises(EndpointFailed, match="kokoro is Deleting for more than 1 minutes"):
        settle(session, "kokoro", patience_s=60)


def test_docker_builds_here_where_an_engine_is(tool, aws, tmp_path, monkeypatch):
    docker, log = tmp_path / "docker", tmp_path / "log"
    docker.write_text(DOCKER.format(python=sys.executable, log=log, manifest=manifest_of("docker")))
    docker.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    outcome = tool("deploy", "--json", *BUILD, "--set", "image.builder=auto")
    assert outcome.status == 0, outcome.stderr
    assert outcome.json["image"].startswith("123456789012.dkr.ecr.us-east-1.amazonaws.com/kokoro:")
    assert [line.split()[0] for line in log.read_text().splitlines()] == ["version", "login", "build", "push"]
    assert "--platform linux/amd64 --provenance=false" in log.read_text()
    assert not any(action.startswith("codebuild:") for action in aws.actions())


DOCKER = """\
#!{python}
import pathlib, sys
with open("{log}", "a") as lines:
    print(*sys.argv[1:], file=lines)
match sys.argv[1]:
    case "login":
        assert sys.stdin.read(), "no password"
    case "build":
        assert pathlib.Path("app/main.py").is_file() and pathlib.Path("Dockerfile").is_file()
    case "push":
        import boto3
        repository, _, tag = sys.argv[2].partition("/")[2].partition(":")
        ecr = boto3.client("ecr", "us-east-1")
        ecr.put_image(repositoryName=repository, imageManifest='{manifest}', imageTag=tag)
print("noise")
"""


def test_a_build_that_fails_names_its_log(tool, aws):
    aws.set(build_fails=True)
    outcome = tool("deploy", *BUILD)
    assert outcome.status == 1
    assert "FAILED; its log is at https://console/log" in outcome.stderr


def test_an_update_is_blue_green_guarded_keeps_the_instances_and_removes_the_old_version(tool, client):
    assert tool("deploy").status == 0
    before = endpoint(client)["EndpointConfigName"]
    first = tool("update", "--json", *UPDATE)
    assert first.status == 0, first.stderr
    assert first.json["config"] == endpoint(client)["EndpointConfigName"] != before
    guarded = endpoint(client)["LastDeploymentConfig"]
    alarms = [alarm["AlarmName"] for alarm in guarded["AutoRollbackConfiguration"]["Alarms"]]
    assert alarms == ["kokoro-server-errors", "kokoro-first-audio"]
    policy = guarded["BlueGreenUpdatePolicy"]
    assert policy["TrafficRoutingConfiguration"]["Type"] == "ALL_AT_ONCE"  # of one instance there is no part
    assert policy["TerminationWaitInSeconds"] == 300

    client("sagemaker").update_endpoint_weights_and_capacities(
        EndpointName="kokoro", DesiredWeightsAndCapacities=[{"VariantName": "AllTraffic", "DesiredInstanceCount": 2}]
    )
    second = tool("update", "--json")
    assert (second.status, second.json["config"]) == (0, before)
    assert second.json["instances"]["desired"] == 2
    policy = endpoint(client)["LastDeploymentConfig"]["BlueGreenUpdatePolicy"]
    assert policy["TrafficRoutingConfiguration"]["Type"] == "CANARY"
    sagemaker = client("sagemaker")
    assert len(sagemaker.list_endpoint_configs()["EndpointConfigs"]) == len(sagemaker.list_models()["Models"]) == 1


def test_a_rollback_is_a_failure_that_names_the_alarm(tool, aws, client):
    assert tool("deploy").status == 0
    before = endpoint(client)["EndpointConfigName"]
    aws.set(update_rolls_back="One or more alarms went off: kokoro-server-errors")
    outcome = tool("update", *UPDATE)
    assert outcome.status == 1
    assert "rolled back (One or more alarms went off: kokoro-server-errors)" in outcome.stderr
    assert endpoint(client)["EndpointConfigName"] == before
    assert outcome.stdout == ""


def test_an_update_waits_until_its_alarms_are_quiet_or_are_ignored(tool, client):
    assert tool("deploy").status == 0
    client("cloudwatch").set_alarm_state(AlarmName="kokoro-server-errors", StateValue="ALARM", StateReason="test")
    refused = tool("update", *UPDATE)
    assert refused.status == 1
    assert "kokoro-server-errors rings already" in refused.stderr
    assert tool("update", "--ignore-alarms", *UPDATE).status == 0
    assert "AutoRollbackConfiguration" not in endpoint(client)["LastDeploymentConfig"]


def test_deploy_leaves_a_running_version_to_update(tool, aws):
    assert tool("deploy").status == 0
    before = len(aws.actions())
    outcome = tool("deploy", *UPDATE)
    assert outcome.status == 1
    assert "`update` leads it there" in outcome.stderr
    assert changes(aws, since=before) == []


def test_there_is_nothing_to_update_before_a_deployment(tool):
    outcome = tool("update")
    assert outcome.status == 1
    assert "`deploy` makes it" in outcome.stderr


def test_a_quota_that_is_too_small_is_said_before_anything_is_made(tool, aws):
    aws.set(quotas={"ml.g5.xlarge for endpoint usage": 0.0})
    outcome = tool("deploy")
    assert outcome.status == 1
    assert "may run 0 of `ml.g5.xlarge for endpoint usage` in us-east-1, and this takes up to 2" in outcome.stderr
    assert changes(aws) == []


def test_a_missing_permission_is_named_and_once_granted_the_same_command_goes_on(tool, aws):
    for action in (
        "s3:ListBucket",
        "s3:CreateBucket",
        "s3:PutObject",
        "iam:CreateRole",
        "ecr:CreateRepository",
        "iam:PassRole",
        "codebuild:StartBuild",
        "sagemaker:CreateModel",
        "cloudwatch:PutMetricAlarm",
        "sagemaker:CreateEndpoint",
        "application-autoscaling:PutScalingPolicy",
    ):
        aws.set(denied=[action])
        outcome = tool("deploy", *BUILD)
        assert outcome.status == 1
        assert f"may not use {action}" in outcome.stderr
        assert "docs/deploy.md" in outcome.stderr
        assert "Traceback" not in outcome.stderr
    aws.set(denied=[])
    assert tool("deploy", *BUILD).status == 0


def test_a_quota_that_may_not_be_read_does_not_stop_a_deployment(tool, aws):
    aws.set(denied=["servicequotas:ListServiceQuotas"])
    outcome = tool("deploy")
    assert outcome.status == 0
    assert "quota: not readable" in outcome.stderr


def test_destroy_asks_leaves_an_empty_account_and_a_second_time_finds_nothing(tool, client):
    assert tool("deploy", *BUILD).status == 0
    client("logs").create_log_group(logGroupName="/aws/sagemaker/Endpoints/kokoro")
    dry = tool("destroy", "--dry-run")
    assert dry.status == 0
    assert "endpoint kokoro" in dry.stdout
    assert endpoint(client)["EndpointStatus"] == "InService"
    unasked = tool("destroy")
    assert unasked.status == 1
    assert "there is no terminal to ask at, so give --yes" in unasked.stderr
    outcome = tool("destroy", "--yes", "--json")
    assert outcome.status == 0, outcome.stderr
    assert "S3 bucket " + NAMES.bucket in outcome.json["removed"]
    assert not any(left_behind(client).values())
    again = tool("destroy", "--yes", "--json")
    assert (again.status, again.json) == (0, {"removed": [], "found": []})


def test_destroy_can_leave_the_weights_for_next_time(tool, aws, client):
    assert tool("deploy").status == 0
    assert tool("destroy", "--yes", "--keep-weights").status == 0
    kept = {kind: things for kind, things in left_behind(client).items() if things}
    assert kept == {"buckets": [NAMES.bucket]}
    keys = [item["Key"] for item in client("s3").list_objects_v2(Bucket=NAMES.bucket)["Contents"]]
    assert len(keys) == 3
    assert all(key.startswith("weights/") for key in keys)
    before = len(aws.actions())
    assert tool("deploy").status == 0
    assert "s3:PutObject" not in changes(aws, since=before)


@pytest.mark.parametrize(("answer", "status"), [("kokoro\n", 0), ("yes\n", 1), ("", 1)])
def test_destroy_takes_the_deployments_name_for_a_yes(tool, client, monkeypatch, answer, status):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    client("iam").create_role(
        RoleName=NAMES.role,
        AssumeRolePolicyDocument=json.dumps(trust("sagemaker")),
        Tags=[{"Key": "kokoro-serve:deployment", "Value": "kokoro"}],
    )
    monkeypatch.setattr(sys, "stdin", Terminal(answer))
    outcome = tool("destroy")
    assert outcome.status == status
    assert f"IAM role {NAMES.role}" in outcome.stderr
    assert bool(left_behind(client)["roles"]) == bool(status)


def test_the_deployers_policy_allows_each_call_that_a_life_takes(tool, aws):
    policy = tool("plan", "--permissions").json
    allowed = {action for statement in policy["Statement"] for action in statement["Action"]}
    assert tool("deploy", *BUILD).status == 0
    assert tool("update", *BUILD, *UPDATE).status == 0
    assert tool("status").status == 0
    assert tool("destroy", "--yes").status == 0
    assert set(aws.actions()) - allowed == {"sts:GetCallerIdentity"}  # which nobody can be denied
    assert allowed - set(aws.actions()) == BEYOND_A_SMOOTH_LIFE


BEYOND_A_SMOOTH_LIFE = {
    # tags, where a thing is made with them
    "cloudwatch:TagResource",
    "ecr:TagResource",
    "iam:TagRole",
    "sagemaker:AddTags",
    # drift taken back
    "codebuild:UpdateProject",
    "ecr:PutImageTagMutability",
    "iam:DetachRolePolicy",
    "iam:UpdateAssumeRolePolicy",
    # an image built here and pushed
    "ecr:BatchCheckLayerAvailability",
    "ecr:BatchGetImage",
    "ecr:CompleteLayerUpload",
    "ecr:GetAuthorizationToken",
    "ecr:GetDownloadUrlForLayer",
    "ecr:InitiateLayerUpload",
    "ecr:PutImage",
    "ecr:UploadLayerPart",
    # an account that never scaled an endpoint, and log groups that AWS has made
    "iam:CreateServiceLinkedRole",
    "logs:DeleteLogGroup",
}
