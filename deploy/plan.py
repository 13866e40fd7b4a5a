"""Settings and a few facts in, the resources of a deployment out, in the order in which they are made.

Nothing is asked or changed here: what a plan says is what deploy/aws/ then brings about.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, is_dataclass
from pathlib import Path
from typing import Any, Literal

from deploy.costs import cost_sentence, price_usd_per_hour
from deploy.errors import DeployError
from deploy.names import WEIGHTS_PREFIX, Names
from deploy.policies import build_policy, endpoint_policy, is_ecr_image, trust
from deploy.resources import (
    VARIANT,
    Alarm,
    Bucket,
    BuildProject,
    Endpoint,
    EndpointConfig,
    Files,
    Guardrails,
    Image,
    LocalFile,
    Model,
    Repository,
    Resource,
    Role,
    ScalableTarget,
    ScalingPolicy,
)
from deploy.settings import Settings

# Driver 535 runs CUDA 12.2 and older, 550 up to 12.4, 580 every 13 (minor versions of one CUDA are compatible). Without
# a choice SageMaker takes driver 470, on which neither starts.
_AMI_OF_CUDA = {
    12: "al2-ami-sagemaker-inference-gpu-3-1",
    13: "al2023-ami-sagemaker-inference-gpu-4-1",
}
_GPU_FAMILIES = ("g", "p")  # ml.g5.xlarge, ml.p4d.24xlarge

_COMPARISONS = {
    "GreaterThanOrEqualToThreshold": "from",
    "GreaterThanThreshold": "above",
    "LessThanThreshold": "below",
}

_KEEP_IMAGES = 20
_BUILD_MINUTES = 90

_BUILDSPEC = """\
version: 0.2
phases:
  build:
    commands:
      - aws ecr get-login-password | docker login --username AWS --password-stdin "${IMAGE%%/*}"
      - DOCKER_BUILDKIT=1 docker build --platform linux/amd64 --provenance=false --tag "$IMAGE" .
      - docker push "$IMAGE"
"""


@dataclass(frozen=True)
class Facts:
    """What the settings don't say: looked up before planning.

    weights: the official files, as they lie on this machine.
    sources: of the image; empty where the settings name an image.
    """

    account: str
    partition: str
    weights: tuple[LocalFile, ...]
    sources: tuple[LocalFile, ...] = ()
    builder: Literal["docker", "codebuild"] = "docker"


@dataclass(frozen=True)
class Quota:
    """The limit of the account that bounds the endpoint, by the name that Service Quotas gives it."""

    name: str
    needed: int
    wanted_for_update: int  # blue/green runs both fleets for a while


@dataclass(frozen=True)
class Plan:
    names: Names
    resources: tuple[Resource, ...]
    quota: Quota
    cost: str
    price_usd_per_hour: float | None

    def of[R: Resource](self, kind: type[R]) -> tuple[R, ...]:
        return tuple(resource for resource in self.resources if isinstance(resource, kind))

    def the[R: Resource](self, kind: type[R]) -> R:
        (resource,) = self.of(kind)
        return resource


def names_of(settings: Settings, account: str, partition: str) -> Names:
    return Names(settings.name, settings.region, account, partition)


def build_plan(settings: Settings, facts: Facts) -> Plan:
    """Raises DeployError: settings that no deployment can have."""
    names, scaling = names_of(settings, facts.account, facts.partition), settings.autoscaling
    weights = Files(names.bucket, f"{WEIGHTS_PREFIX}{digest_of(facts.weights)}/", facts.weights)
    image_uri, image_resources = _image(settings, facts, names)
    role = Role(names.role, trust("sagemaker"), {"endpoint": endpoint_policy(names, image_uri)})
    model = _model(settings, names, image_uri, weights)
    config = _endpoint_config(settings, names, model)
    return Plan(
        names=names,
        resources=(
            Bucket(names.bucket),
            weights,
            role,
            *image_resources,
            model,
            config,
            *_guarding_alarms(settings, names),
            _endpoint(settings, names, config),
            ScalableTarget(names.endpoint, scaling.min_instances, scaling.max_instances),
            *_scaling(settings, names),
        ),
        quota=Quota(f"{settings.instance_type} for endpoint usage", scaling.max_instances, scaling.max_instances * 2),
        cost=cost_sentence(settings.instance_type, scaling.min_instances, scaling.max_instances),
        price_usd_per_hour=price_usd_per_hour(settings.instance_type),
    )


def digest_of(files: Iterable[LocalFile]) -> str:
    """Names and contents of the files as 16 hex digits."""
    return _hash(sorted((file.name, file.sha256) for file in files))


def ami_of(instance_type: str, cuda: str) -> str | None:
    """The machine image whose driver runs that CUDA version; None for instances without a GPU."""
    if not instance_type.removeprefix("ml.").startswith(_GPU_FAMILIES):
        return None
    major = int(cuda.partition(".")[0])
    if major not in _AMI_OF_CUDA:
        known = ", ".join(str(version) for version in _AMI_OF_CUDA)
        raise DeployError(f"image.cuda is {cuda}: SageMaker has drivers for CUDA {known}")
    return _AMI_OF_CUDA[major]


def _image(settings: Settings, facts: Facts, names: Names) -> tuple[str, tuple[Resource, ...]]:
    """The image's URI, and what has to be there for it."""
    if settings.image.uri:
        if not is_ecr_image(settings.image.uri):
            raise DeployError(
                f"image.uri is {settings.image.uri}: SageMaker takes images from ECR alone, with a tag or digest, "
                f"such as {names.registry}/{names.repository}:v1"
            )
        return settings.image.uri, ()
    tag = digest_of(facts.sources)
    image = Image(
        names.repository,
        tag,
        f"{names.registry}/{names.repository}:{tag}",
        facts.builder,
        names.project,
        names.bucket,
        facts.sources,
    )
    repository = Repository(names.repository, _KEEP_IMAGES)
    if facts.builder == "docker":
        return image.uri, (repository, image)
    build_role = Role(names.build_role, trust("codebuild"), {"build": build_policy(names)})
    project = BuildProject(names.project, names.role_arn(build_role.name), names.bucket, _BUILDSPEC, _BUILD_MINUTES)
    return image.uri, (repository, build_role, project, image)


def _model(settings: Settings, names: Names, image_uri: str, weights: Files) -> Model:
    content: dict[str, Any] = {
        "image": image_uri,
        "weights_uri": weights.name,
        "role_arn": names.role_arn(names.role),
        "environment": dict(settings.environment),
    }
    return Model(f"{names.versions_prefix}{_hash(content)}", **content)


def _endpoint_config(settings: Settings, names: Names, model: Model) -> EndpointConfig:
    content: dict[str, Any] = {
        "model": model.name,
        "instance_type": settings.instance_type,
        "ami": ami_of(settings.instance_type, settings.image.cuda),
        "model_download_s": settings.timeouts.model_download_s,
        "startup_s": settings.timeouts.startup_s,
        "routing": "LEAST_OUTSTANDING_REQUESTS",  # a session is long, so counting turns would load unevenly
    }
    # The number at the start is no part of the name: scaling owns it, and another minimum is no reason for a new fleet.
    name = f"{names.versions_prefix}{_hash(content)}"
    return EndpointConfig(name, instances=settings.autoscaling.min_instances, **content)


def _endpoint(settings: Settings, names: Names, config: EndpointConfig) -> Endpoint:
    timeouts = settings.timeouts
    return Endpoint(
        names.endpoint,
        config.name,
        timeouts.model_download_s + timeouts.startup_s,
        Guardrails(timeouts.canary_s, timeouts.termination_s, timeouts.update_s, names.rollback_alarms),
    )


def _guarding_alarms(settings: Settings, names: Names) -> tuple[Alarm, ...]:
    """Too many errors, late first audio (both roll an update back), and more sessions than the promise holds for."""
    errors, first_audio = names.rollback_alarms
    bounds, actions = settings.alarms, [settings.alarms.notify] if settings.alarms.notify else []
    common = {"AlarmActions": actions, "OKActions": actions, "EvaluationPeriods": bounds.periods}
    return (
        Alarm(
            errors,
            _metric(names, "Invocation5XXErrors")
            | common
            | {
                "AlarmDescription": "The endpoint answers with server errors.",
                "Statistic": "Sum",
                "ComparisonOperator": "GreaterThanOrEqualToThreshold",
                "Threshold": float(bounds.server_errors),
                "TreatMissingData": "notBreaching",
            },
        ),
        Alarm(
            first_audio,
            _metric(names, "FirstChunkModelLatency")
            | common
            | {
                "AlarmDescription": "The first audio of an answer comes late (p95, microseconds).",
                "ExtendedStatistic": "p95",
                "ComparisonOperator": "GreaterThanThreshold",
                "Threshold": bounds.first_audio_s * 1e6,
                "TreatMissingData": "notBreaching",
            },
        ),
        Alarm(
            names.saturated_alarm,
            _metric(names, "ConcurrentRequestsPerModel")
            | common
            | {
                "AlarmDescription": "More sessions at once than an instance carries within the promise.",
                "Statistic": "Maximum",
                "ComparisonOperator": "GreaterThanThreshold",
                "Threshold": settings.autoscaling.q_max,
                "TreatMissingData": "notBreaching",
            },
        ),
    )


def _scaling(settings: Settings, names: Names) -> tuple[ScalingPolicy | Alarm, ...]:
    """Out by target tracking on data of 10 s; in by a slow step of its own, so that a lull costs no instance."""
    scaling = settings.autoscaling
    out = ScalingPolicy(
        f"{names.endpoint}-out",
        names.endpoint,
        "TargetTrackingScaling",
        {
            "TargetValue": scaling.target_concurrency,
            "PredefinedMetricSpecification": {
                "PredefinedMetricType": "SageMakerVariantConcurrentRequestsPerModelHighResolution"
            },
            "ScaleOutCooldown": scaling.scale_out_cooldown_s,
            "ScaleInCooldown": scaling.scale_in_cooldown_s,
            "DisableScaleIn": True,
        },
    )
    step_in = ScalingPolicy(
        f"{names.endpoint}-in",
        names.endpoint,
        "StepScaling",
        {
            "AdjustmentType": "ChangeInCapacity",
            "StepAdjustments": [
                {"MetricIntervalUpperBound": 0.0, "ScalingAdjustment": -scaling.step_in.remove_instances}
            ],
            "Cooldown": scaling.scale_in_cooldown_s,
            "MetricAggregationType": "Maximum",
        },
    )
    quiet = Alarm(
        names.idle_alarm,
        _metric(names, "ConcurrentRequestsPerModel")
        | {
            "AlarmDescription": "So few sessions that an instance can go; in ALARM whenever it is quiet.",
            "Statistic": "Maximum",
            "ComparisonOperator": "LessThanThreshold",
            "Threshold": scaling.step_in.below_concurrency,
            "EvaluationPeriods": scaling.step_in.periods,
            "OKActions": [],
            "TreatMissingData": "breaching",  # no traffic, no data
        },
        runs_policy=step_in,
    )
    return out, step_in, quiet


def _metric(names: Names, metric: str) -> dict[str, Any]:
    return {
        "Namespace": "AWS/SageMaker",
        "MetricName": metric,
        "Dimensions": [
            {"Name": "EndpointName", "Value": names.endpoint},
            {"Name": "VariantName", "Value": VARIANT},
        ],
        "Period": 60,
    }


def _hash(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


def as_json(plan: Plan) -> dict[str, Any]:
    """The plan for a machine: every field of every resource."""
    return {
        "deployment": plan.names.deployment,
        "region": plan.names.region,
        "account": plan.names.account,
        "cost": plan.cost,
        "price_usd_per_hour_of_one_instance": plan.price_usd_per_hour,
        "quota": asdict(plan.quota),
        "resources": [{"kind": resource.kind, "name": resource.name} | _plain(resource) for resource in plan.resources],
    }


def _plain(value: Any) -> Any:
    if isinstance(value, Path):
        return str(value)
    if is_dataclass(value) and not isinstance(value, type):
        return {name: _plain(getattr(value, name)) for name in value.__dataclass_fields__}
    if isinstance(value, Mapping):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    return value


def as_table(plan: Plan) -> str:
    """The plan for a person: one line a resource."""
    rows = [(resource.kind, resource.name, describe(resource)) for resource in plan.resources]
    widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
    return "\n".join(f"{kind:<{widths[0]}}  {name:<{widths[1]}}  {text}".rstrip() for kind, name, text in rows)


def describe(resource: Resource) -> str:
    """What matters of it, in a few words."""
    match resource:
        case Role():
            service = resource.trust["Statement"][0]["Principal"]["Service"]
            return f"for {service}; policies {', '.join(resource.policies)}"
        case Bucket():
            return "private; weights, and sources to build from"
        case Files():
            size_mb = sum(file.size_bytes for file in resource.files) / 1e6
            return f"{len(resource.files)} files, {size_mb:,.0f} MB"
        case Repository():
            return f"tags are final; the last {resource.keep_images} images stay"
        case BuildProject():
            return "builds where no docker engine is"
        case Image():
            return f"built by {resource.builder} from {len(resource.sources)} files"
        case Model():
            return "environment " + (", ".join(resource.environment) or "as in the image")
        case EndpointConfig():
            return f"{resource.instances} x {resource.instance_type}, {resource.ami or 'no GPU'}, {resource.routing}"
        case Endpoint():
            return f"with {resource.config}; updates blue/green, rolled back by {', '.join(resource.guardrails.alarms)}"
        case ScalableTarget():
            return f"{resource.min_instances} to {resource.max_instances} instances"
        case ScalingPolicy(type="TargetTrackingScaling"):
            return f"out, to hold {resource.fields['TargetValue']:g} sessions an instance"
        case ScalingPolicy():
            return f"in, {-resource.fields['StepAdjustments'][0]['ScalingAdjustment']} at a time"
        case Alarm():
            comparison = _COMPARISONS[resource.fields["ComparisonOperator"]]
            return f"{resource.fields['MetricName']} {comparison} {resource.fields['Threshold']:,.10g}"
