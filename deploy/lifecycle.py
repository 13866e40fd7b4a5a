"""What the commands do with a plan: look first, refuse early, then make what is missing, in order."""

import dataclasses
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from deploy.aws import alarms, endpoint, images, logs, quota, roles, scaling, storage
from deploy.aws.found import Found, Presence
from deploy.aws.session import Aws, explained
from deploy.errors import DeployError, NameClash
from deploy.names import WEIGHTS_PREFIX, Names
from deploy.plan import Plan
from deploy.progress import say
from deploy.resources import (
    Alarm,
    Bucket,
    BuildProject,
    Endpoint,
    EndpointConfig,
    Files,
    Image,
    Model,
    Repository,
    Resource,
    Role,
    ScalableTarget,
    ScalingPolicy,
)

# Of each kind of resource: what is there, and how to bring it about, made or changed. `put` may be given again.
_HANDLERS: dict[type[Resource], tuple[Callable[[Aws, Any], Found], Callable[[Aws, Any], None]]] = {
    Role: (roles.look_at_role, roles.put_role),
    Bucket: (storage.look_at_bucket, storage.put_bucket),
    Files: (storage.look_at_files, storage.put_files),
    Repository: (images.look_at_repository, images.put_repository),
    BuildProject: (images.look_at_project, images.put_project),
    Image: (images.look_at_image, images.put_image),
    Model: (endpoint.look_at_model, endpoint.put_model),
    EndpointConfig: (endpoint.look_at_endpoint_config, endpoint.put_endpoint_config),
    Endpoint: (endpoint.look_at_endpoint, endpoint.put_endpoint),
    Alarm: (alarms.look_at_alarm, alarms.put_alarm),
    ScalableTarget: (scaling.look_at_target, scaling.put_target),
    ScalingPolicy: (scaling.look_at_policy, scaling.put_policy),
}


@dataclass(frozen=True)
class Step:
    resource: Resource
    found: Found

    @property
    def intention(self) -> str:
        match self.found.presence:
            case Presence.MISSING:
                return "to make"
            case Presence.SAME:
                return "there"
            case Presence.DIFFERENT:
                return f"to change: {self.found.detail}"
            case Presence.OUTDATED:
                return f"to update: {self.found.detail}"
            case Presence.FOREIGN:
                return "taken by something that this deployment did not make"


def settle(aws: Aws, names: Names) -> None:
    """Wait for what an interrupted or another command has started."""
    with explained():
        endpoint.settle(aws, names.endpoint)


def survey(aws: Aws, plan: Plan) -> list[Step]:
    """Look at everything that is planned; changes nothing."""
    with explained():
        return [Step(resource, _HANDLERS[type(resource)][0](aws, resource)) for resource in plan.resources]


def refuse_clashes(aws: Aws, steps: Iterable[Step]) -> None:
    taken = [step.found.detail for step in steps if step.found.presence is Presence.FOREIGN]
    if taken:
        raise NameClash(
            f"{', '.join(taken)} is there without the tag of the deployment {aws.deployment}: something else made it. "
            "Nothing was changed; deploy under another name (--name), or remove it"
        )


def deploy(aws: Aws, plan: Plan, steps: list[Step]) -> None:
    """Make or reuse everything.

    Raises:
        DeployError: the endpoint runs something else, which `update` changes; a clash, a quota, a failure.
    """
    refuse_clashes(aws, steps)
    there = endpoint_step(steps)
    if there.found.presence is Presence.OUTDATED:
        raise DeployError(
            f"{there.resource.name} {there.found.detail}: `update` leads it there without a gap. Nothing was changed"
        )
    if there.found.presence is Presence.MISSING:
        _check_quota(aws, plan)
    _bring_about(aws, steps)


def update(aws: Aws, plan: Plan, steps: list[Step], ignore_alarms: bool) -> None:
    """Lead a running endpoint to the plan, blue/green, and remove the versions that it leaves behind.

    Raises:
        DeployError: nothing to update, an alarm that would roll it back at once, a failure.
        RolledBack: the old version runs.
    """
    refuse_clashes(aws, steps)
    there = endpoint_step(steps)
    target = plan.the(Endpoint)
    if there.found.presence is Presence.MISSING:
        raise DeployError(f"there is no endpoint {target.name} to update; `deploy` makes it")
    if there.found.presence is Presence.OUTDATED:
        _check_quota(aws, plan)
    if ignore_alarms:
        unguarded = dataclasses.replace(target, guardrails=dataclasses.replace(target.guardrails, alarms=()))
        steps = [dataclasses.replace(step, resource=unguarded) if step is there else step for step in steps]
    elif there.found.presence is Presence.OUTDATED:
        _refuse_ringing(aws, target)
    _bring_about(aws, steps)
    with explained():
        current = frozenset({plan.the(Model).name, plan.the(EndpointConfig).name})
        for name in endpoint.remove_versions(aws, plan.names.versions_prefix, keep=current):
            say(f"removed {name}, which nothing runs any more")


def _bring_about(aws: Aws, steps: list[Step]) -> None:
    for number, step in enumerate(steps, 1):
        resource, progress = step.resource, f"[{number}/{len(steps)}] {step.resource.kind} {step.resource.name}"
        if step.found.presence is Presence.SAME:
            say(f"{progress}: there")
            continue
        say(f"{progress}: {step.intention.removeprefix('to ')}")
        with explained():
            _HANDLERS[type(resource)][1](aws, resource)


def endpoint_step(steps: Iterable[Step]) -> Step:
    (step,) = (step for step in steps if isinstance(step.resource, Endpoint))
    return step


def _check_quota(aws: Aws, plan: Plan) -> None:
    with explained():
        quota.check_quota(aws, plan.quota)


def _refuse_ringing(aws: Aws, target: Endpoint) -> None:
    with explained():
        states = alarms.find_alarms(aws, list(target.guardrails.alarms))
    ringing = [name for name, alarm in states.items() if alarm["StateValue"] == "ALARM"]
    if ringing:
        raise DeployError(
            f"the alarm {', '.join(ringing)} rings already, so the update would be rolled back at once: wait until it "
            "is quiet, or give --ignore-alarms where the update is the cure. Nothing was changed"
        )


def status(aws: Aws, names: Names) -> dict[str, Any]:
    """What runs, in one look; `endpoint` is null where there is none."""
    with explained():
        there = endpoint.find_endpoint(aws, names.endpoint)
        states = {name: alarm["StateValue"] for name, alarm in alarms.find_alarms(aws, list(names.alarms)).items()}
        bounds = scaling.bounds(aws, names.endpoint)
        if there is None:
            return {"name": names.endpoint, "region": names.region, "endpoint": None, "alarms": states}
        model, image = endpoint.model_and_image(aws, there.endpoint_config_name)
        return {
            "name": names.endpoint,
            "region": names.region,
            "endpoint": there.endpoint_status,
            "failure": endpoint.failure_of(there) or None,
            "config": there.endpoint_config_name,
            "model": model,
            "image": image,
            "instances": endpoint.instances_of(there),
            "scaling": bounds,
            "alarms": states,
        }


@dataclass(frozen=True)
class Removal:
    """One thing, or some of a kind, that `destroy` takes away; `remove(dry_run)` tells the names of what there is."""

    kind: str
    remove: Callable[[bool], list[str]]


def removals(aws: Aws, names: Names, keep_weights: bool) -> list[Removal]:
    """Everything that a deployment can have made, in the order in which it can go."""

    def one(name: str, remove: Callable[[Aws, str, bool], bool]) -> Callable[[bool], list[str]]:
        return lambda dry_run: [name] if remove(aws, name, dry_run) else []

    def bucket(dry_run: bool) -> list[str]:
        keep = WEIGHTS_PREFIX if keep_weights else None
        there = storage.remove_bucket(aws, names.bucket, keep, dry_run)
        what = f"{names.bucket}, all but {WEIGHTS_PREFIX}" if keep_weights else names.bucket
        return [what] if there else []

    return [
        Removal("scaling", one(names.endpoint, scaling.remove_scaling)),
        Removal("endpoint", one(names.endpoint, endpoint.remove_endpoint)),
        Removal("versions", lambda dry_run: endpoint.remove_versions(aws, names.versions_prefix, dry_run=dry_run)),
        Removal("alarms", lambda dry_run: alarms.remove_alarms(aws, names.alarms, dry_run)),
        Removal("CodeBuild project", one(names.project, images.remove_project)),
        Removal("ECR repository", one(names.repository, images.remove_repository)),
        Removal("IAM role", one(names.build_role, roles.remove_role)),
        Removal("IAM role", one(names.role, roles.remove_role)),
        Removal("S3 bucket", bucket),
        *[Removal("log group", one(group, logs.remove_log_group)) for group in names.log_groups],
    ]


def inventory(aws: Aws, names: Names, keep_weights: bool) -> list[str]:
    """What `destroy` would remove, a line each; changes nothing."""
    with explained():
        there = endpoint.find_endpoint(aws, names.endpoint)
        if there is not None and not endpoint.owns_endpoint(aws, there):
            raise NameClash(f"the endpoint {names.endpoint} is not of this deployment: nothing is removed")
        return [
            f"{removal.kind} {name}" for removal in removals(aws, names, keep_weights) for name in removal.remove(True)
        ]


def destroy(aws: Aws, names: Names, keep_weights: bool) -> None:
    for removal in removals(aws, names, keep_weights):
        with explained():
            for name in removal.remove(False):
                say(f"removed {removal.kind} {name}")
