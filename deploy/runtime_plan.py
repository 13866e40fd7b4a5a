"""What the agent on AgentCore consists of: names, role, artefact, the runtime's fields. Decides, calls nobody."""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from agent.settings import ENVIRONMENT
from deploy.errors import DeployError
from deploy.policies import allow, document, is_ecr_image, trust
from deploy.resources import Bucket, Document, Role

RUNTIME_NAME = re.compile(r"[a-zA-Z][a-zA-Z0-9_]{0,47}")
PYTHON = "PYTHON_3_12"
ENTRY_POINT = "main.py"
LOG_GROUPS = "/aws/bedrock-agentcore/runtimes/"

_MODEL_ID = re.compile(r"(?!arn:)[a-zA-Z0-9][a-zA-Z0-9._:-]*")
_GEOGRAPHY = re.compile(r"(?:[a-z]{2}(?:-gov)?|apac|global)\.")
"""What the id of an inference profile that AWS defines begins with; a model's id begins with its provider."""
_PROFILE_ARN = re.compile(r"arn:[^:]+:bedrock:[^:]+:\d{12}:(?:application-)?inference-profile/[a-zA-Z0-9._:-]+")
_MODEL_ARN = re.compile(r"arn:[^:]+:bedrock:[^:]*:(?:\d{12})?:[a-z-]+/[a-zA-Z0-9._:/-]+")
_NAME_IN_SLUG = 24


@dataclass(frozen=True)
class RuntimeSettings:
    """What a person chooses.

    name: of the agent runtime, and the first part of its bucket's and its role's.
    bedrock_model_id: a model's id, an inference profile's, or the ARN of either.
    tts_endpoint: name of the SageMaker endpoint that speaks, in the same account and region.
    image: in ECR, for arm64; None: the sources of this checkout and their packages, as a zip.
    """

    name: str
    region: str
    bedrock_model_id: str
    tts_endpoint: str
    image: str | None = None


@dataclass(frozen=True)
class Code:
    """The zip, by its place in S3."""

    bucket: str
    key: str

    def fields(self) -> dict[str, Any]:
        """Of the runtime's artefact."""
        place = {"s3": {"bucket": self.bucket, "prefix": self.key}}
        return {"codeConfiguration": {"code": place, "runtime": PYTHON, "entryPoint": [ENTRY_POINT]}}


@dataclass(frozen=True)
class RuntimeNames:
    """Every name that belongs to a runtime."""

    name: str
    region: str
    account: str
    partition: str

    @property
    def owner(self) -> str:
        """The value of the tag that all of it carries."""
        return owner_of(self.name)

    @property
    def bucket(self) -> str:
        return f"{self._slug}-code-{self.account}-{self.region}"

    @property
    def role(self) -> str:
        return f"{self._slug}-{self.region}-runtime"

    @property
    def role_arn(self) -> str:
        return f"arn:{self.partition}:iam::{self.account}:role/{self.role}"

    @property
    def log_prefix(self) -> str:
        """Of the log groups that AgentCore makes: an id, which is the name, a hyphen and ten letters, follows."""
        return f"{LOG_GROUPS}{self.name}-"

    def arn(self, service: str, resource: str, region: str | None = None) -> str:
        return f"arn:{self.partition}:{service}:{self.region if region is None else region}:{self.account}:{resource}"

    @property
    def _slug(self) -> str:
        """The name as buckets take it: no capitals, no underscores; a hash keeps two apart that would be the same."""
        slug = self.name.replace("_", "-")
        if len(slug) <= _NAME_IN_SLUG and re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", slug):
            return slug
        readable = re.sub(r"[^a-z0-9]+", "-", self.name.lower())[: _NAME_IN_SLUG - 9].strip("-")
        return f"{readable}-{hashlib.sha256(self.name.encode()).hexdigest()[:8]}"


@dataclass(frozen=True)
class RuntimePlan:
    """What there is to be.

    fields: of the runtime, as CreateAgentRuntime and UpdateAgentRuntime take them, without its name and tags. All of
    them are sent each time: an update replaces everything.
    """

    names: RuntimeNames
    role: Role
    bucket: Bucket | None  # None: an image needs none
    fields: Mapping[str, Any]


def owner_of(name: str) -> str:
    """The tag's value for a runtime; a deployment of the speech endpoint with the same name has another one."""
    return f"agent/{name}"


def check_settings(settings: RuntimeSettings) -> None:
    """Raises DeployError: what AWS would only refuse later, or in its own words."""
    check_name(settings.name)
    if not any(kind.fullmatch(settings.bedrock_model_id) for kind in (_MODEL_ID, _PROFILE_ARN, _MODEL_ARN)):
        raise DeployError(
            f"{settings.bedrock_model_id} is no model of Bedrock: pass a model id such as amazon.nova-lite-v1:0, an "
            "inference profile such as us.amazon.nova-lite-v1:0, or the ARN of either"
        )
    if settings.image is not None and not is_ecr_image(settings.image):
        raise DeployError(
            f"{settings.image} is no image that AgentCore can fetch: pass "
            "ACCOUNT.dkr.ecr.REGION.amazonaws.com/NAME:TAG, built for linux/arm64"
        )


def check_name(name: str) -> None:
    """Raises DeployError: AgentCore takes no such name."""
    if not RUNTIME_NAME.fullmatch(name):
        raise DeployError(
            f"{name!r} is no name for an agent runtime: a letter, then letters, digits and underscores, 48 in all "
            "(no hyphens)"
        )


def build_runtime_plan(settings: RuntimeSettings, account: str, partition: str, code: Code | None) -> RuntimePlan:
    """`code`: where the zip lies; None with an image, and while nothing is known but the names."""
    names = RuntimeNames(settings.name, settings.region, account, partition)
    if settings.image is not None:
        artefact: Mapping[str, Any] = {"containerConfiguration": {"containerUri": settings.image}}
    else:
        artefact = code.fields() if code else {}
    return RuntimePlan(
        names=names,
        role=Role(names.role, _trust(names), {"runtime": runtime_policy(names, settings)}),
        bucket=None if settings.image else Bucket(names.bucket),
        fields={
            "agentRuntimeArtifact": artefact,
            "roleArn": names.role_arn,
            "networkConfiguration": {"networkMode": "PUBLIC"},
            "protocolConfiguration": {"serverProtocol": "HTTP"},
            "environmentVariables": environment(settings),
            "description": f"voice agent, speaks through the endpoint {settings.tts_endpoint}",
        },
    )


def environment(settings: RuntimeSettings) -> dict[str, str]:
    """What the agent is told; its settings' names are `agent.settings.AgentSettings`'s."""
    told = {
        "bedrock_model_id": settings.bedrock_model_id,
        "region": settings.region,
        "tts_endpoint": settings.tts_endpoint,
    }
    return {f"{ENVIRONMENT}{name.upper()}": value for name, value in told.items()}


def runtime_policy(names: RuntimeNames, settings: RuntimeSettings) -> Document:
    """What the agent may do: ask its one model, speak through its one endpoint, write its logs, traces and metrics."""
    groups = names.arn("logs", f"log-group:{names.log_prefix}*")
    return document(
        *_model_statements(names, settings.bedrock_model_id),
        allow(
            ["sagemaker:InvokeEndpointWithBidirectionalStream"],
            names.arn("sagemaker", f"endpoint/{settings.tts_endpoint}"),
        ),
        allow(["logs:CreateLogGroup", "logs:DescribeLogStreams"], groups),
        allow(["logs:CreateLogStream", "logs:PutLogEvents"], f"{groups}:log-stream:*"),
        allow(["logs:DescribeLogGroups"], names.arn("logs", "log-group:*")),
        allow(
            [
                "xray:GetSamplingRules",
                "xray:GetSamplingTargets",
                "xray:PutTelemetryRecords",
                "xray:PutTraceSegments",
            ],
            "*",
        ),
        allow(["cloudwatch:PutMetricData"], "*", {"StringEquals": {"cloudwatch:namespace": "bedrock-agentcore"}}),
        *(_pull_statements(names, settings.image) if settings.image else ()),
    )


def _model_statements(names: RuntimeNames, model: str) -> tuple[Document, ...]:
    """A profile hands requests on to the model in whichever region has room: allowed too, but only through it."""
    actions = ["bedrock:InvokeModel", "bedrock:InvokeModelWithResponseStream"]
    everywhere = f"arn:{names.partition}:bedrock:*::foundation-model"
    if _PROFILE_ARN.fullmatch(model):
        profile, behind = model, "*"
    elif model.startswith("arn:"):
        return (allow(actions, model),)
    elif geography := _GEOGRAPHY.match(model):
        profile, behind = names.arn("bedrock", f"inference-profile/{model}"), model[geography.end() :]
    else:
        return (allow(actions, f"arn:{names.partition}:bedrock:{names.region}::foundation-model/{model}"),)
    return (
        allow(actions, profile),
        allow(actions, f"{everywhere}/{behind}", {"StringEquals": {"bedrock:InferenceProfileArn": profile}}),
    )


def _pull_statements(names: RuntimeNames, image: str) -> tuple[Document, ...]:
    registry, _, path = image.partition("/")
    account, _, _, region, *_ = registry.split(".")
    repository = re.split("[:@]", path, maxsplit=1)[0]
    return (
        allow(
            ["ecr:BatchGetImage", "ecr:GetDownloadUrlForLayer"],
            f"arn:{names.partition}:ecr:{region}:{account}:repository/{repository}",
        ),
        allow(["ecr:GetAuthorizationToken"], "*"),
    )


def _trust(names: RuntimeNames) -> Document:
    """AgentCore, for runtimes of this account and region only."""
    return trust(
        "bedrock-agentcore",
        {
            "StringEquals": {"aws:SourceAccount": names.account},
            "ArnLike": {"aws:SourceArn": names.arn("bedrock-agentcore", "*")},
        },
    )
