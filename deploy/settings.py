"""The settings of one deployment: configs/deploy.yaml or a file like it, and `--set NAME=VALUE`.

Unknown names are refused.

The scaling values may stand in the file, or in one of their own, as scripts/plan_capacity.py writes it:
`autoscaling: capacity.yaml`.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from deploy.errors import DeployError

Name = Annotated[str, Field(pattern=r"^[a-z][a-z0-9]*(-[a-z0-9]+)*$", max_length=24)]
Concurrency = Annotated[float, Field(gt=0)]
Count = Annotated[int, Field(ge=1)]
Cooldown = Annotated[int, Field(ge=0, le=3600)]
Timeout = Annotated[int, Field(ge=60, le=3600)]
Wait = Annotated[int, Field(ge=0, le=3600)]


class SettingsError(DeployError):
    """A setting is unknown, missing or out of range. The message names it."""


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class StepIn(_Section):
    """When to give instances back: `periods` minutes in which no instance had `below_concurrency` sessions at once."""

    below_concurrency: Concurrency = 1.0
    periods: Annotated[int, Field(ge=1, le=60)] = 10
    remove_instances: Count = 1


class Autoscaling(_Section):
    """What scripts/plan_capacity.py works out of a load test; one file of its own or a section.

    q_max: the largest concurrency of one instance at which p95 TTFA keeps the promise; sizes an alarm.
    target_concurrency: what scaling out aims at for each instance; below q_max by what arrives while one starts.
    min_instances, max_instances: the endpoint's size at rest and at most; each costs as long as it is there.
    scale_out_cooldown_s, scale_in_cooldown_s: from one change to the next in the same direction, as AWS counts it.
    """

    q_max: Concurrency = 8.0
    target_concurrency: Concurrency = 4.0
    min_instances: Count = 1
    max_instances: Count = 2
    scale_out_cooldown_s: Cooldown = 60
    scale_in_cooldown_s: Cooldown = 300
    step_in: StepIn = StepIn()

    @model_validator(mode="after")
    def _ordered(self) -> "Autoscaling":
        if self.min_instances > self.max_instances:
            raise ValueError("min_instances is above max_instances")
        if self.target_concurrency > self.q_max:
            raise ValueError("target_concurrency is above q_max: it would scale out only after the promise is broken")
        if self.step_in.below_concurrency >= self.target_concurrency:
            raise ValueError("step_in.below_concurrency must be below target_concurrency, else instances come and go")
        return self


class Image(_Section):
    """The container.

    uri: an image that exists already; null: built from this checkout and named by its content.
    builder: `auto` takes docker where its engine answers, else CodeBuild (from an uploaded bundle of the sources).
    cuda: CUDA version in the image; chooses the machine image whose driver runs it.
    """

    uri: str | None = None
    builder: Literal["auto", "docker", "codebuild"] = "auto"
    cuda: Annotated[str, Field(pattern=r"^\d+\.\d+$")] = "13.2"


class Alarms(_Section):
    """Bounds at which an alarm goes off; those on errors and on the first audio also roll an update back.

    server_errors: answers with 5xx in one minute.
    first_audio_s: p95 of SageMaker's FirstChunkModelLatency, the first bytes of a streamed answer.
    periods: minutes that it takes.
    notify: ARN of an SNS topic that hears of every alarm.
    """

    server_errors: Count = 5
    first_audio_s: Annotated[float, Field(gt=0)] = 2.0
    periods: Annotated[int, Field(ge=1, le=60)] = 3
    notify: str | None = None


class Timeouts(_Section):
    """SageMaker's own bounds on a start, and how an update proceeds.

    model_download_s, startup_s: from the cache to the disk, and until /ping answers 200.
    canary_s: how long a part of the traffic tries the new fleet, where there is more than one instance.
    termination_s: how long the old fleet is kept after the switch, to roll back to and to end its sessions.
    update_s: SageMaker gives an update up after that long and rolls back.
    """

    model_download_s: Timeout = 900
    startup_s: Timeout = 900
    canary_s: Annotated[int, Field(ge=1, le=3600)] = 300
    termination_s: Wait = 300
    update_s: Annotated[int, Field(ge=600, le=28800)] = 3600


class Settings(_Section):
    """One deployment.

    name: of the endpoint, and the first part of every other name. Renamed, it is another deployment.
    region, profile: where, and as whom; the profile may be left to AWS_PROFILE or the chain of credentials.
    instance_type: of each server, one with one GPU; `image.cuda` has to suit its driver.
    weights: `auto`, `hub`, `packaged`, a folder in the official layout, or `s3://bucket/prefix`.
    environment: variables of the container, such as KOKORO_ENGINE__MAX_BATCH.
    """

    name: Name = "kokoro"
    region: Annotated[str, Field(pattern=r"^[a-z]{2}(-[a-z]+)+-\d$")]
    profile: str | None = None
    instance_type: Annotated[str, Field(pattern=r"^ml\.[a-z0-9-]+\.[a-z0-9]+$")] = "ml.g5.xlarge"
    weights: str = "auto"
    image: Image = Image()
    autoscaling: Autoscaling = Autoscaling()
    alarms: Alarms = Alarms()
    timeouts: Timeouts = Timeouts()
    environment: Mapping[str, Annotated[str, Field(max_length=1024)]] = {}


def load_settings(file: Path | None, overrides: Sequence[str] = (), **flags: str | None) -> Settings:
    """Read `file`, then `NAME=VALUE` overrides (dotted name, YAML value), then flags that were given.

    Raises:
        SettingsError: no such file, not YAML, an unknown name or a value out of range; all of them in one message.
    """
    fields = dict(_read(file)) if file else {}
    scaling = fields.get("autoscaling")
    if file and isinstance(scaling, str):
        fields["autoscaling"] = _read(file.parent / scaling)
    for override in overrides:
        name, equals, value = override.partition("=")
        if not equals:
            raise SettingsError(f"--set {override}: write it as NAME=VALUE, such as autoscaling.max_instances=4")
        _put(fields, name.split("."), _yaml(value, f"--set {name}"))
    fields |= {name: value for name, value in flags.items() if value is not None}
    if not fields.get("region"):
        raise SettingsError(
            "no region is chosen: pass --region, for example `--region us-east-1`, or set it in the file"
        )
    try:
        return Settings.model_validate(fields)
    except ValidationError as exc:
        raise SettingsError("; ".join(_sentence(error) for error in exc.errors())) from exc


def _read(file: Path) -> Mapping[str, Any]:
    try:
        content = _yaml(file.read_text(), str(file))
    except OSError as exc:
        raise SettingsError(f"{file} is not readable ({exc.strerror})") from exc
    if not isinstance(content, Mapping):
        raise SettingsError(f"{file} holds no settings: expected lines such as `region: us-east-1`")
    return content


def _yaml(text: str, origin: str) -> Any:
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as exc:
        raise SettingsError(f"{origin} is not YAML: {' '.join(str(exc).split())}") from exc


def _put(fields: dict[str, Any], path: Sequence[str], value: Any) -> None:
    *sections, leaf = path
    for section in sections:
        inner = fields.get(section)
        fields[section] = dict(inner) if isinstance(inner, Mapping) else {}
        fields = fields[section]
    fields[leaf] = value


def _sentence(error: Any) -> str:
    name = ".".join(str(part) for part in error["loc"]) or "settings"
    if error["type"] == "extra_forbidden":
        section: Any = Settings
        for part in error["loc"][:-1]:
            section = section.model_fields[part].annotation
        return f"{name} is not a setting; known here: {', '.join(section.model_fields)}"
    return f"{name}: {error['msg'].removeprefix('Value error, ')}"
