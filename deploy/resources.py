"""What a deployment consists of, one frozen dataclass a resource: deploy/plan.py lists them, deploy/aws/ makes them."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

from deploy.names import SOURCE_PREFIX

Document = Mapping[str, Any]  # of IAM, as JSON

VARIANT = "AllTraffic"


@dataclass(frozen=True)
class Role:
    kind: ClassVar[str] = "IAM role"
    name: str
    trust: Document
    policies: Mapping[str, Document]  # inline, by name


@dataclass(frozen=True)
class Bucket:
    kind: ClassVar[str] = "S3 bucket"
    name: str


@dataclass(frozen=True)
class LocalFile:
    """A file to store: its name below the prefix, where it lies here, and what it holds."""

    name: str
    path: Path
    sha256: str
    size_bytes: int


@dataclass(frozen=True)
class Files:
    """Objects below a prefix that is named by their content; nothing else may lie there."""

    kind: ClassVar[str] = "S3 objects"
    bucket: str
    prefix: str  # ends in a slash
    files: tuple[LocalFile, ...]

    @property
    def name(self) -> str:
        return f"s3://{self.bucket}/{self.prefix}"


@dataclass(frozen=True)
class Repository:
    kind: ClassVar[str] = "ECR repository"
    name: str
    keep_images: int


@dataclass(frozen=True)
class BuildProject:
    """A CodeBuild project with a docker engine of its own, for a machine that has none."""

    kind: ClassVar[str] = "CodeBuild project"
    name: str
    role_arn: str
    bucket: str
    buildspec: str
    timeout_minutes: int


@dataclass(frozen=True)
class Image:
    """An image of this checkout: the tag is the hash of the sources that go into it."""

    kind: ClassVar[str] = "ECR image"
    repository: str
    tag: str
    uri: str
    builder: Literal["docker", "codebuild"]
    project: str  # of CodeBuild
    bucket: str  # takes the bundle of the sources
    sources: tuple[LocalFile, ...]

    @property
    def name(self) -> str:
        return self.uri

    @property
    def bundle_key(self) -> str:
        return f"{SOURCE_PREFIX}{self.tag}.zip"


@dataclass(frozen=True)
class Model:
    kind: ClassVar[str] = "model"
    name: str
    image: str
    weights_uri: str
    role_arn: str
    environment: Mapping[str, str]


@dataclass(frozen=True)
class EndpointConfig:
    kind: ClassVar[str] = "endpoint config"
    name: str
    model: str
    instance_type: str
    instances: int  # at the start; scaling owns the number from then on
    ami: str | None  # None: no GPU
    model_download_s: int
    startup_s: int
    routing: str


@dataclass(frozen=True)
class Guardrails:
    """How an update goes from the old fleet to the new one, and back by itself."""

    canary_s: int
    termination_s: int
    update_s: int
    alarms: tuple[str, ...]


@dataclass(frozen=True)
class Endpoint:
    kind: ClassVar[str] = "endpoint"
    name: str
    config: str
    startup_s: int  # of one instance, download included: bounds the wait
    guardrails: Guardrails


@dataclass(frozen=True)
class Alarm:
    """`fields` are those of PutMetricAlarm; `runs_policy` names the scaling policy of the endpoint that it sets off."""

    kind: ClassVar[str] = "alarm"
    name: str
    fields: Mapping[str, Any]
    runs_policy: "ScalingPolicy | None" = None


@dataclass(frozen=True)
class ScalableTarget:
    kind: ClassVar[str] = "scalable target"
    endpoint: str
    min_instances: int
    max_instances: int

    @property
    def name(self) -> str:
        return resource_id(self.endpoint)


@dataclass(frozen=True)
class ScalingPolicy:
    kind: ClassVar[str] = "scaling policy"
    name: str
    endpoint: str
    type: Literal["TargetTrackingScaling", "StepScaling"]
    fields: Mapping[str, Any]  # of the type's configuration


def resource_id(endpoint: str) -> str:
    """The endpoint's variant as Application Auto Scaling names it."""
    return f"endpoint/{endpoint}/variant/{VARIANT}"


type Resource = (
    Role
    | Bucket
    | Files
    | Repository
    | BuildProject
    | Image
    | Model
    | EndpointConfig
    | Endpoint
    | Alarm
    | ScalableTarget
    | ScalingPolicy
)
