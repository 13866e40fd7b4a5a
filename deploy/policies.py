"""IAM documents: who may do what. No action is a wildcard; a resource is one only where AWS knows no name for it."""

import re
from collections.abc import Sequence
from typing import Any

from deploy.names import SOURCE_PREFIX, WEIGHTS_PREFIX, Names
from deploy.resources import Document

_ECR_IMAGE = re.compile(
    r"(?P<account>\d{12})\.dkr\.ecr\.(?P<region>[a-z0-9-]+)\.amazonaws\.com(\.cn)?/(?P<repository>[^:@]+)[:@].+"
)

_PULL = ("ecr:BatchCheckLayerAvailability", "ecr:BatchGetImage", "ecr:GetDownloadUrlForLayer")
_PUSH = ("ecr:CompleteLayerUpload", "ecr:InitiateLayerUpload", "ecr:PutImage", "ecr:UploadLayerPart")


def document(*statements: Document) -> Document:
    return {"Version": "2012-10-17", "Statement": list(statements)}


def allow(actions: Sequence[str], resources: str | Sequence[str], condition: Document | None = None) -> Document:
    statement: dict[str, Any] = {
        "Effect": "Allow",
        "Action": sorted(actions),
        "Resource": [resources] if isinstance(resources, str) else list(resources),
    }
    return statement | ({"Condition": condition} if condition else {})


def trust(service: str, condition: Document | None = None) -> Document:
    """Only `service` may assume the role."""
    principal = {"Service": f"{service}.amazonaws.com"}
    statement = {"Effect": "Allow", "Principal": principal, "Action": "sts:AssumeRole"}
    return document(statement | ({"Condition": condition} if condition else {}))


def is_ecr_image(uri: str) -> bool:
    return _ECR_IMAGE.fullmatch(uri) is not None


def endpoint_policy(names: Names, image_uri: str) -> Document:
    """What SageMaker does in the name of the endpoint: fetch image and weights, write logs and metrics."""
    return document(
        allow(["s3:GetObject"], names.bucket_arn(f"/{WEIGHTS_PREFIX}*")),
        allow(["s3:ListBucket"], names.bucket_arn(), {"StringLike": {"s3:prefix": f"{WEIGHTS_PREFIX}*"}}),
        allow(_PULL, _repository_arn(names, image_uri)),
        allow(["ecr:GetAuthorizationToken"], "*"),
        _logs(names, f"/aws/sagemaker/Endpoints/{names.endpoint}"),
        allow(
            ["cloudwatch:PutMetricData"],
            "*",
            {"StringLike": {"cloudwatch:namespace": ["AWS/SageMaker", "/aws/sagemaker/*"]}},
        ),
    )


def build_policy(names: Names) -> Document:
    """What CodeBuild does: read the bundle, push the image, write its log."""
    return document(
        allow(["s3:GetObject", "s3:GetObjectVersion"], names.bucket_arn(f"/{SOURCE_PREFIX}*")),
        allow([*_PULL, *_PUSH], names.arn("ecr", f"repository/{names.repository}")),
        allow(["ecr:GetAuthorizationToken"], "*"),
        _logs(names, f"/aws/codebuild/{names.project}"),
    )


def deployer_policy(names: Names) -> Document:
    """What the person or pipeline needs that runs deploy/sagemaker.py, all commands."""
    roles = [names.role_arn(names.role), names.role_arn(names.build_role)]
    scaling_role = names.role_arn("aws-service-role/sagemaker.application-autoscaling.amazonaws.com/*")
    versions = f"{names.versions_prefix}*"
    return document(
        allow(
            [
                "iam:CreateRole",
                "iam:DeleteRole",
                "iam:DeleteRolePolicy",
                "iam:DetachRolePolicy",
                "iam:GetRole",
                "iam:GetRolePolicy",
                "iam:ListAttachedRolePolicies",
                "iam:ListRolePolicies",
                "iam:PutRolePolicy",
                "iam:TagRole",
                "iam:UpdateAssumeRolePolicy",
            ],
            roles,
        ),
        allow(
            ["iam:PassRole"],
            roles,
            {"StringEquals": {"iam:PassedToService": ["sagemaker.amazonaws.com", "codebuild.amazonaws.com"]}},
        ),
        allow(["iam:CreateServiceLinkedRole"], scaling_role),
        allow(
            [
                "s3:CreateBucket",
                "s3:DeleteBucket",
                "s3:GetBucketPublicAccessBlock",
                "s3:GetBucketTagging",
                "s3:ListBucket",
                "s3:PutBucketPublicAccessBlock",
                "s3:PutBucketTagging",
            ],
            names.bucket_arn(),
        ),
        allow(["s3:DeleteObject", "s3:GetObject", "s3:PutObject"], names.bucket_arn("/*")),
        allow(
            [
                "ecr:CreateRepository",
                "ecr:DeleteRepository",
                "ecr:DescribeImages",
                "ecr:DescribeRepositories",
                "ecr:GetLifecyclePolicy",
                "ecr:ListTagsForResource",
                "ecr:PutImageTagMutability",
                "ecr:PutLifecyclePolicy",
                "ecr:TagResource",
                *_PULL,
                *_PUSH,
            ],
            names.arn("ecr", f"repository/{names.repository}"),
        ),
        allow(["ecr:GetAuthorizationToken"], "*"),
        allow(
            [
                "codebuild:BatchGetBuilds",
                "codebuild:BatchGetProjects",
                "codebuild:CreateProject",
                "codebuild:DeleteProject",
                "codebuild:ListBuildsForProject",
                "codebuild:StartBuild",
                "codebuild:UpdateProject",
            ],
            names.arn("codebuild", f"project/{names.project}"),
        ),
        allow(
            [
                "sagemaker:AddTags",
                "sagemaker:CreateEndpoint",
                "sagemaker:CreateEndpointConfig",
                "sagemaker:CreateModel",
                "sagemaker:DeleteEndpoint",
                "sagemaker:DeleteEndpointConfig",
                "sagemaker:DeleteModel",
                "sagemaker:DescribeEndpoint",
                "sagemaker:DescribeEndpointConfig",
                "sagemaker:DescribeModel",
                "sagemaker:ListTags",
                "sagemaker:UpdateEndpoint",
            ],
            [
                names.arn("sagemaker", f"model/{versions}"),
                names.arn("sagemaker", f"endpoint-config/{versions}"),
                names.arn("sagemaker", f"endpoint/{names.endpoint}"),
            ],
        ),
        allow(["sagemaker:ListEndpointConfigs", "sagemaker:ListModels"], "*"),
        allow(
            [
                "application-autoscaling:DeleteScalingPolicy",
                "application-autoscaling:DeregisterScalableTarget",
                "application-autoscaling:PutScalingPolicy",
                "application-autoscaling:RegisterScalableTarget",
            ],
            names.arn("application-autoscaling", "scalable-target/*"),
        ),
        allow(
            [
                "application-autoscaling:DescribeScalableTargets",
                "application-autoscaling:DescribeScalingPolicies",
            ],
            "*",
        ),
        allow(
            [
                "cloudwatch:DeleteAlarms",
                "cloudwatch:DescribeAlarms",
                "cloudwatch:ListTagsForResource",
                "cloudwatch:PutMetricAlarm",
                "cloudwatch:TagResource",
            ],
            names.arn("cloudwatch", f"alarm:{versions}"),
        ),
        allow(["logs:DeleteLogGroup"], [names.arn("logs", f"log-group:{group}:*") for group in names.log_groups]),
        allow(["logs:DescribeLogGroups"], names.arn("logs", "log-group:*")),
        allow(["servicequotas:ListServiceQuotas"], "*"),
    )


def _logs(names: Names, group: str) -> Document:
    return allow(
        ["logs:CreateLogGroup", "logs:CreateLogStream", "logs:DescribeLogStreams", "logs:PutLogEvents"],
        [names.arn("logs", f"log-group:{group}"), names.arn("logs", f"log-group:{group}:*")],
    )


def _repository_arn(names: Names, image_uri: str) -> str:
    image = _ECR_IMAGE.fullmatch(image_uri)
    if image is None:
        raise ValueError(f"{image_uri} is no image in ECR")
    return f"arn:{names.partition}:ecr:{image['region']}:{image['account']}:repository/{image['repository']}"
