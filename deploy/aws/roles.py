"""IAM roles: one trust, inline policies, nothing attached."""

import json
from collections.abc import Callable
from typing import Any

from botocore.exceptions import ClientError

from deploy.aws.found import MISSING, Found, different, foreign
from deploy.aws.session import Aws, error_code
from deploy.resources import Role

_ROLE_SPREADS_S = (5, 10, 15, 15, 15)  # a role just made is unknown to other services for some seconds


def role_arn(aws: Aws, name: str) -> str:
    return f"arn:{aws.partition}:iam::{aws.account}:role/{name}"


def look_at_role(aws: Aws, role: Role) -> Found:
    iam = aws.client("iam")
    there = _role(aws, role.name)
    if there is None:
        return MISSING
    if not aws.owns(there.get("Tags", [])):
        return foreign(f"the IAM role {role.name}")
    details = [] if there["AssumeRolePolicyDocument"] == role.trust else ["who may assume it"]
    names = iam.list_role_policies(RoleName=role.name)["PolicyNames"]
    details += [f"without the policy {name}" for name in role.policies if name not in names]
    for name in names:
        if name not in role.policies:
            details.append(f"with another policy {name}")
        elif iam.get_role_policy(RoleName=role.name, PolicyName=name)["PolicyDocument"] != role.policies[name]:
            details.append(f"another text of the policy {name}")
    details += [f"with {arn} attached" for arn in _attached(aws, role.name)]
    return different(*details)


def put_role(aws: Aws, role: Role) -> None:
    """Make it, or make it as planned again: other policies are taken off."""
    iam, trust = aws.client("iam"), json.dumps(role.trust)
    if _role(aws, role.name) is None:
        iam.create_role(
            RoleName=role.name,
            AssumeRolePolicyDocument=trust,
            Description=f"made by deploy for {aws.deployment}",
            Tags=aws.tag_list,
        )
    else:
        iam.update_assume_role_policy(RoleName=role.name, PolicyDocument=trust)
    for name, document in role.policies.items():
        iam.put_role_policy(RoleName=role.name, PolicyName=name, PolicyDocument=json.dumps(document))
    for name in iam.list_role_policies(RoleName=role.name)["PolicyNames"]:
        if name not in role.policies:
            iam.delete_role_policy(RoleName=role.name, PolicyName=name)
    _detach(aws, role.name)


def remove_role(aws: Aws, name: str, dry_run: bool = False) -> bool:
    """Returns whether there was one of ours."""
    iam, there = aws.client("iam"), _role(aws, name)
    if there is None or not aws.owns(there.get("Tags", [])):
        return False
    if dry_run:
        return True
    for policy in iam.list_role_policies(RoleName=name)["PolicyNames"]:
        iam.delete_role_policy(RoleName=name, PolicyName=policy)
    _detach(aws, name)
    iam.delete_role(RoleName=name)
    return True


def once_role_is_known(aws: Aws, call: Callable[[], Any]) -> Any:
    """Repeat a call that fails only because the role it names is seconds old."""
    for pause_s in _ROLE_SPREADS_S:
        try:
            return call()
        except ClientError as exc:
            reason = str(exc.response.get("Error", {}).get("Message", "")).lower()
            validation = error_code(exc) in {"ValidationException", "InvalidInputException"}
            # PassRole is a permission, and no waiting gives it.
            if not validation or "role" not in reason or "passrole" in reason:
                raise
        aws.pause(pause_s)
    return call()


def _role(aws: Aws, name: str) -> Any:
    try:
        return aws.client("iam").get_role(RoleName=name)["Role"]
    except ClientError as exc:
        if error_code(exc) == "NoSuchEntity":
            return None
        raise


def _attached(aws: Aws, name: str) -> list[str]:
    attached = aws.client("iam").list_attached_role_policies(RoleName=name)["AttachedPolicies"]
    return [policy["PolicyArn"] for policy in attached]


def _detach(aws: Aws, name: str) -> None:
    for arn in _attached(aws, name):
        aws.client("iam").detach_role_policy(RoleName=name, PolicyArn=arn)
