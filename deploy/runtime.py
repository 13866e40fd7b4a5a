"""The agent runtime in AWS: found, made, replaced, waited for, removed. Everything carries the deployment's tag."""

import asyncio
import sys
from collections.abc import Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from botocore.exceptions import ClientError

from deploy.aws.found import MISSING, Found, Presence, differences, different, foreign
from deploy.aws.roles import look_at_role, once_role_is_known, put_role, remove_role
from deploy.aws.session import Aws, error_code
from deploy.aws.storage import look_at_bucket, look_at_files, put_bucket, put_files, remove_bucket
from deploy.errors import DeployError, NameClash
from deploy.resources import Bucket, Files, Role
from deploy.runtime_plan import RuntimeNames, RuntimePlan
from serve_app.client.types import SpeechClient
from serve_app.errors import SpeechError

CONTROL = "bedrock-agentcore-control"
POLL_S = 5.0
READY_TIMEOUT_S = 900.0
HELLO = "Hello there."
HELLO_TIMEOUT_S = 60.0
SAMPLES_PER_S, SAMPLE_BYTES = 24_000, 2

_READY, _CHANGING = "READY", ("CREATING", "UPDATING", "DELETING")


@dataclass(frozen=True)
class Runtime:
    """An agent runtime as AWS describes it; `fields` are all that it says."""

    arn: str
    id: str
    version: str
    status: str
    failure: str
    fields: Mapping[str, Any]


def find_runtime(aws: Aws, name: str) -> Runtime | None:
    """By its name, for which AWS has no look-up."""
    pages = aws.client(CONTROL).get_paginator("list_agent_runtimes").paginate()
    for page in pages:
        for one in page["agentRuntimes"]:
            if one["agentRuntimeName"] == name:
                return describe(aws, one["agentRuntimeId"])
    return None


def describe(aws: Aws, runtime_id: str) -> Runtime | None:
    """None: there is none any more."""
    try:
        fields = aws.client(CONTROL).get_agent_runtime(agentRuntimeId=runtime_id)
    except ClientError as exc:
        if error_code(exc) == "ResourceNotFoundException":
            return None
        raise
    return Runtime(
        arn=fields["agentRuntimeArn"],
        id=fields["agentRuntimeId"],
        version=fields["agentRuntimeVersion"],
        status=fields["status"],
        failure=fields.get("failureReason", ""),
        fields=fields,
    )


def owns(aws: Aws, runtime: Runtime) -> bool:
    """Was it made by this deployment?"""
    return aws.owns(aws.client(CONTROL).list_tags_for_resource(resourceArn=runtime.arn)["tags"])


def look(aws: Aws, plan: RuntimePlan, files: Files | None) -> dict[str, tuple[str, Found]]:
    """Every resource of the plan by its kind, with its name and what a look at it finds. Changes nothing."""
    found = {plan.role.kind: (plan.role.name, look_at_role(aws, plan.role))}
    if plan.bucket is not None:
        found[plan.bucket.kind] = (plan.bucket.name, look_at_bucket(aws, plan.bucket))
    if files is not None:
        found[files.kind] = (files.name, look_at_files(aws, files))
    found["agent runtime"] = (plan.names.name, _look_at_runtime(aws, plan))
    return found


def refuse_clashes(found: Mapping[str, tuple[str, Found]]) -> None:
    """Raises NameClash: something of somebody else's has a name that is needed."""
    taken = [
        f"{one.detail or name} ({kind})" for kind, (name, one) in found.items() if one.presence is Presence.FOREIGN
    ]
    if taken:
        raise NameClash(f"already there, and not made by this deployment: {', '.join(taken)}; choose another --name")


def put(aws: Aws, plan: RuntimePlan, files: Files | None) -> Runtime:
    """Bring about what is planned, and wait until the runtime is ready. What is as planned already is left alone.

    Raises:
        NameClash: see `refuse_clashes`.
        DeployError: the runtime fails, with AWS's reason, or takes longer than READY_TIMEOUT_S.
    """
    found = look(aws, plan, files)
    refuse_clashes(found)
    lacking = {kind for kind, (_, one) in found.items() if one.presence is not Presence.SAME}
    if plan.role.kind in lacking:
        _progress(f"role {plan.role.name}")
        put_role(aws, plan.role)
    if plan.bucket is not None and plan.bucket.kind in lacking:
        _progress(f"bucket {plan.bucket.name}")
        put_bucket(aws, plan.bucket)
    if files is not None and files.kind in lacking:
        _progress(f"upload {files.name}")
        put_files(aws, files)
    if "agent runtime" not in lacking:
        runtime = find_runtime(aws, plan.names.name)
        assert runtime is not None, "it has just been looked at"
        return runtime
    return _put_runtime(aws, plan)


def inventory(aws: Aws, names: RuntimeNames) -> list[str]:
    """What is there that carries the deployment's tag, and the logs that AWS made for it."""
    runtime, there = find_runtime(aws, names.name), []
    if runtime is not None and owns(aws, runtime):
        there.append(f"agent runtime {names.name}")
    if runtime is None or there:  # else the logs are somebody else's
        there += [f"log group {group}" for group in _log_groups(aws, names.log_prefix)]
    looks = (look_at_bucket(aws, Bucket(names.bucket)), look_at_role(aws, Role(names.role, {}, {})))
    for what, found in zip((f"S3 bucket {names.bucket}", f"IAM role {names.role}"), looks, strict=True):
        if found.presence not in (Presence.MISSING, Presence.FOREIGN):
            there.append(what)
    return there


def remove(aws: Aws, names: RuntimeNames) -> None:
    """Remove what `inventory` finds. Can be repeated after an interruption. Raises DeployError."""
    runtime = find_runtime(aws, names.name)
    if runtime is not None and owns(aws, runtime):
        _progress(f"deleting the agent runtime {names.name}")
        _delete_runtime(aws, runtime.id)
        runtime = None
    if runtime is None:
        for group in _log_groups(aws, names.log_prefix):
            aws.client("logs").delete_log_group(logGroupName=group)
    remove_bucket(aws, names.bucket)
    remove_role(aws, names.role)


def require_endpoint(aws: Aws, name: str) -> None:
    """Raises DeployError: the speech endpoint is not there, or not in service."""
    try:
        endpoint = aws.client("sagemaker").describe_endpoint(EndpointName=name)
    except ClientError as exc:
        if error_code(exc) == "ValidationException" and "Could not find" in str(exc):
            raise DeployError(
                f"there is no SageMaker endpoint {name} in {aws.region}: deploy it first, with deploy/sagemaker.py, "
                "or name another with --tts-endpoint"
            ) from exc
        raise
    status = endpoint["EndpointStatus"]
    if status != "InService":
        reason = f" ({endpoint['FailureReason']})" if endpoint.get("FailureReason") else ""
        raise DeployError(f"the SageMaker endpoint {name} is {status}{reason}, and an agent needs it InService")


def require_answer(client: SpeechClient, name: str) -> float:
    """Have the endpoint say hello; returns the seconds of audio that came. Raises DeployError when none did."""
    try:
        return asyncio.run(_hello(client))
    except (SpeechError, TimeoutError) as exc:
        reason = str(exc) or f"nothing came within {HELLO_TIMEOUT_S:.0f} s"
        raise DeployError(
            f"the SageMaker endpoint {name} is in service, but does not speak over a bidirectional stream: {reason}"
        ) from exc


async def _hello(client: SpeechClient) -> float:
    size_bytes = 0
    try:
        async with asyncio.timeout(HELLO_TIMEOUT_S), aclosing(client.synthesize(HELLO)) as chunks:
            async for chunk in chunks:
                size_bytes += len(chunk.data)
    finally:
        await client.aclose()
    return size_bytes / SAMPLE_BYTES / SAMPLES_PER_S


def _look_at_runtime(aws: Aws, plan: RuntimePlan) -> Found:
    runtime = find_runtime(aws, plan.names.name)
    if runtime is None:
        return MISSING
    if not owns(aws, runtime):
        return foreign(f"the agent runtime {plan.names.name}")
    details = [name.split(" ", 1)[0] for name in differences(plan.fields, runtime.fields)]  # values may be long
    if runtime.status != _READY:
        details.append(f"is {runtime.status}")
    return different(*details)


def _put_runtime(aws: Aws, plan: RuntimePlan) -> Runtime:
    control, name = aws.client(CONTROL), plan.names.name
    there = find_runtime(aws, name)
    if there is not None:  # it takes no change while another goes on
        there = _settled(aws, there.id)
    if there is not None and there.status == "CREATE_FAILED":  # it never was an agent that could be changed
        _progress(f"deleting the agent runtime {name}, which could not be created")
        _delete_runtime(aws, there.id)
        there = None
    if there is None:
        _progress(f"creating the agent runtime {name}")
        made = once_role_is_known(aws, lambda: _create(aws, plan))
    else:
        _progress(f"updating the agent runtime {name}, version {there.version}")
        change = {"agentRuntimeId": there.id, **plan.fields}
        made = once_role_is_known(aws, lambda: control.update_agent_runtime(**change))
    runtime = _settled(aws, made["agentRuntimeId"])
    if runtime is None:
        raise DeployError(f"the agent runtime {name} has been deleted while it was being made")
    if runtime.status != _READY:
        raise DeployError(
            f"the agent runtime {name} is {runtime.status}: {runtime.failure or 'AWS gives no reason'}; "
            f"its logs are under {plan.names.log_prefix}"
        )
    return runtime


def _create(aws: Aws, plan: RuntimePlan) -> Any:
    try:
        return aws.client(CONTROL).create_agent_runtime(agentRuntimeName=plan.names.name, tags=aws.tags, **plan.fields)
    except ClientError as exc:
        if error_code(exc) == "ConflictException":
            raise NameClash(
                f"the name {plan.names.name} is taken by another agent runtime; choose another --name"
            ) from exc
        raise


def _settled(aws: Aws, runtime_id: str) -> Runtime | None:
    """The runtime once nothing is going on with it; None: it is gone. Tells each change. Raises DeployError."""
    told = ""
    for _ in range(int(READY_TIMEOUT_S / POLL_S)):
        now = describe(aws, runtime_id)
        status = now.status if now else "gone"
        if status != told:
            _progress(f"    {status}")
            told = status
        if now is None or status not in _CHANGING:
            return now
        aws.pause(POLL_S)
    raise DeployError(
        f"the agent runtime has been {told} for {READY_TIMEOUT_S / 60:.0f} minutes; run the command again later"
    )


def _delete_runtime(aws: Aws, runtime_id: str) -> None:
    """Raises DeployError: it does not go."""
    try:
        aws.client(CONTROL).delete_agent_runtime(agentRuntimeId=runtime_id)
    except ClientError as exc:
        if error_code(exc) != "ResourceNotFoundException":
            raise
    left = _settled(aws, runtime_id)
    if left is not None:
        raise DeployError(
            f"the agent runtime is {left.status} instead of gone: {left.failure or 'AWS gives no reason'}"
        )


def _log_groups(aws: Aws, prefix: str) -> list[str]:
    pages = aws.client("logs").get_paginator("describe_log_groups").paginate(logGroupNamePrefix=prefix)
    return [group["logGroupName"] for page in pages for group in page["logGroups"]]


def _progress(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
