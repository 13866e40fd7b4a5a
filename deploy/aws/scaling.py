"""Application Auto Scaling of the endpoint's variant. Target and policies are the endpoint's and carry no tag."""

from typing import Any

from deploy.aws.found import MISSING, Found, differences, different
from deploy.aws.session import Aws
from deploy.resources import ScalableTarget, ScalingPolicy, resource_id

_SPACE = {"ServiceNamespace": "sagemaker"}
_DIMENSION = {"ScalableDimension": "sagemaker:variant:DesiredInstanceCount"}


def look_at_target(aws: Aws, target: ScalableTarget) -> Found:
    there = _target(aws, target.endpoint)
    return MISSING if there is None else different(*differences(_bounds(target), there))


def put_target(aws: Aws, target: ScalableTarget) -> None:
    aws.client("application-autoscaling").register_scalable_target(
        ResourceId=target.name, **_SPACE, **_DIMENSION, **_bounds(target)
    )


def look_at_policy(aws: Aws, policy: ScalingPolicy) -> Found:
    there = _policies(aws, policy.endpoint).get(policy.name)
    if there is None:
        return MISSING
    return different(*differences(policy.fields, there.get(_configuration(policy), {})))


def put_policy(aws: Aws, policy: ScalingPolicy) -> None:
    aws.client("application-autoscaling").put_scaling_policy(
        PolicyName=policy.name,
        PolicyType=policy.type,
        ResourceId=resource_id(policy.endpoint),
        **_SPACE,
        **_DIMENSION,
        **{_configuration(policy): policy.fields},
    )


def policy_arn(aws: Aws, policy: ScalingPolicy) -> str | None:
    there = _policies(aws, policy.endpoint).get(policy.name)
    return str(there["PolicyARN"]) if there else None


def bounds(aws: Aws, endpoint: str) -> dict[str, int] | None:
    """Between how many instances the endpoint scales; None: not at all."""
    there = _target(aws, endpoint)
    return {"min": there["MinCapacity"], "max": there["MaxCapacity"]} if there else None


def remove_scaling(aws: Aws, endpoint: str, dry_run: bool = False) -> bool:
    """The policies, then the target. Returns whether there was anything."""
    autoscaling, policies, target = (
        aws.client("application-autoscaling"),
        _policies(aws, endpoint),
        _target(aws, endpoint),
    )
    if dry_run:
        return bool(policies) or target is not None
    for name in policies:
        autoscaling.delete_scaling_policy(PolicyName=name, ResourceId=resource_id(endpoint), **_SPACE, **_DIMENSION)
    if target is not None:
        autoscaling.deregister_scalable_target(ResourceId=resource_id(endpoint), **_SPACE, **_DIMENSION)
    return bool(policies) or target is not None


def _target(aws: Aws, endpoint: str) -> Any:
    found = aws.client("application-autoscaling").describe_scalable_targets(
        ResourceIds=[resource_id(endpoint)], **_SPACE, **_DIMENSION
    )
    return next(iter(found["ScalableTargets"]), None)


def _policies(aws: Aws, endpoint: str) -> dict[str, Any]:
    found = aws.client("application-autoscaling").describe_scaling_policies(
        ResourceId=resource_id(endpoint), **_SPACE, **_DIMENSION
    )
    return {policy["PolicyName"]: policy for policy in found["ScalingPolicies"]}


def _bounds(target: ScalableTarget) -> dict[str, int]:
    return {"MinCapacity": target.min_instances, "MaxCapacity": target.max_instances}


def _configuration(policy: ScalingPolicy) -> str:
    return f"{policy.type}PolicyConfiguration"
