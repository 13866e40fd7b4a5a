"""Model, endpoint config and endpoint, through the resource classes of the SageMaker SDK v3.

Its waiters are not used: they draw on stdout, have no bound, and take a rolled back update for a success.
"""

import warnings
from typing import Any

from botocore.exceptions import ClientError

with warnings.catch_warnings():
    warnings.simplefilter("ignore", SyntaxWarning)  # the SDK's own docstrings, where no byte code is kept
    from sagemaker.core import resources as sdk
    from sagemaker.core import shapes
    from sagemaker.core.utils.utils import Unassigned

from deploy.aws.alarms import find_alarms
from deploy.aws.found import MISSING, SAME, Found, Presence, different, foreign
from deploy.aws.roles import once_role_is_known
from deploy.aws.session import Aws, error_code
from deploy.errors import EndpointFailed, RolledBack
from deploy.progress import say
from deploy.resources import VARIANT, Endpoint, EndpointConfig, Guardrails, Model

_POLL_S = 15
_SLACK_S = 1800  # for the machines themselves, beyond download and start
_LONGEST_S = 3 * 3600  # of what another command may have started

_BUSY = {"Creating", "Updating", "SystemUpdating", "RollingBack", "Deleting"}


def look_at_model(aws: Aws, model: Model) -> Found:
    there = _get(sdk.Model, aws, model_name=model.name)
    if there is None:
        return MISSING
    return SAME if _owns(aws, there.model_arn) else foreign(f"the model {model.name}")


def put_model(aws: Aws, model: Model) -> None:
    weights = shapes.S3ModelDataSource(s3_uri=model.weights_uri, s3_data_type="S3Prefix", compression_type="None")
    container = shapes.ContainerDefinition(
        image=model.image,
        model_data_source=shapes.ModelDataSource(s3_data_source=weights),
        environment=dict(model.environment),
    )
    once_role_is_known(
        aws,
        lambda: sdk.Model.create(
            model_name=model.name,
            primary_container=container,
            execution_role_arn=model.role_arn,
            tags=_tags(aws),
            session=aws.session,
            region=aws.region,
        ),
    )


def look_at_endpoint_config(aws: Aws, config: EndpointConfig) -> Found:
    there = _get(sdk.EndpointConfig, aws, endpoint_config_name=config.name)
    if there is None:
        return MISSING
    return SAME if _owns(aws, there.endpoint_config_arn) else foreign(f"the endpoint config {config.name}")


def put_endpoint_config(aws: Aws, config: EndpointConfig) -> None:
    machine = {"inference_ami_version": config.ami} if config.ami else {}
    variant = shapes.ProductionVariant(
        variant_name=VARIANT,
        model_name=config.model,
        instance_type=config.instance_type,
        initial_instance_count=config.instances,
        initial_variant_weight=1.0,
        model_data_download_timeout_in_seconds=config.model_download_s,
        container_startup_health_check_timeout_in_seconds=config.startup_s,
        routing_config=shapes.ProductionVariantRoutingConfig(routing_strategy=config.routing),
        **machine,
    )
    sdk.EndpointConfig.create(
        endpoint_config_name=config.name,
        production_variants=[variant],
        tags=_tags(aws),
        session=aws.session,
        region=aws.region,
    )


def find_endpoint(aws: Aws, name: str) -> Any:
    """The SDK's Endpoint, or None."""
    return _get(sdk.Endpoint, aws, endpoint_name=name)


def look_at_endpoint(aws: Aws, endpoint: Endpoint) -> Found:
    there = find_endpoint(aws, endpoint.name)
    if there is None:
        return MISSING
    if not owns_endpoint(aws, there):
        return foreign(f"the endpoint {endpoint.name}")
    if there.endpoint_status != "InService":
        reason = failure_of(there)
        return different(there.endpoint_status + (f": {reason}" if reason else ""))
    if there.endpoint_config_name != endpoint.config:
        return Found(Presence.OUTDATED, f"runs {there.endpoint_config_name}, planned {endpoint.config}")
    return SAME


def put_endpoint(aws: Aws, endpoint: Endpoint) -> None:
    """Make it, or lead it to the planned config, and wait until it serves; nothing may be under way: `settle`.

    Raises:
        EndpointFailed: it did not come up, or not in time.
        RolledBack: SageMaker went back to what ran before.
    """
    there = find_endpoint(aws, endpoint.name)
    if there is not None and there.endpoint_status == "Failed":  # nothing but a deletion leads out of it
        say(f"    {endpoint.name} had failed ({failure_of(there)}): making it anew")
        there.delete()
        there = settle(aws, endpoint.name)
    if there is None:
        sdk.Endpoint.create(
            endpoint_name=endpoint.name,
            endpoint_config_name=endpoint.config,
            tags=_tags(aws),
            session=aws.session,
            region=aws.region,
        )
    elif there.endpoint_config_name != endpoint.config:
        instances = instances_of(there)["current"]
        # update() sends the object's own attribute: without this line it deploys the old config again.
        there.endpoint_config_name = endpoint.config
        there.update(
            deployment_config=_deployment_config(endpoint.guardrails, instances),
            retain_all_variant_properties=True,  # above all the number of instances that scaling has come to
        )
    _check(aws, endpoint, settle(aws, endpoint.name, _patience_s(endpoint)))


def settle(aws: Aws, name: str, patience_s: float = _LONGEST_S) -> Any:
    """Wait until nothing is under way, and return the endpoint; None: there is none.

    Raises:
        EndpointFailed: it takes longer than `patience_s`.
    """
    status = ""
    for looks in range(int(patience_s / _POLL_S)):
        there = find_endpoint(aws, name)
        if there is None or there.endpoint_status not in _BUSY:
            return there
        if there.endpoint_status != status:
            status = there.endpoint_status
            say(f"    {name}: {status} (after {looks * _POLL_S} s)")
        aws.pause(_POLL_S)
    raise EndpointFailed(
        f"{name} is {status} for more than {patience_s / 60:.0f} minutes; give the same command again to go on waiting"
    )


def remove_endpoint(aws: Aws, name: str, dry_run: bool = False) -> bool:
    """Delete it and wait until it is gone. Returns whether there was one of ours."""
    there = find_endpoint(aws, name)
    if there is None or not owns_endpoint(aws, there):
        return False
    if dry_run:
        return True
    there = settle(aws, name)  # AWS refuses to delete one that is changing
    if there is not None:
        there.delete()
        settle(aws, name)
    return True


def remove_versions(aws: Aws, prefix: str, keep: frozenset[str] = frozenset(), dry_run: bool = False) -> list[str]:
    """Delete configs, then models, whose name begins with `prefix`, of this deployment, but those to keep."""
    client, removed = aws.client("sagemaker"), []
    for listing, items, name_field, arn_field, get in (
        ("list_endpoint_configs", "EndpointConfigs", "EndpointConfigName", "EndpointConfigArn", _config_named),
        ("list_models", "Models", "ModelName", "ModelArn", _model_named),
    ):
        pages = client.get_paginator(listing).paginate(NameContains=prefix)
        for item in [item for page in pages for item in page[items]]:
            name = item[name_field]
            if name.startswith(prefix) and name not in keep and _owns(aws, item[arn_field]):
                removed.append(name)
                if not dry_run and (version := get(aws, name)) is not None:
                    version.delete()
    return removed


def model_and_image(aws: Aws, config: str) -> tuple[str | None, str | None]:
    """What an endpoint with that config runs."""
    there = _config_named(aws, config)
    model = _model_named(aws, there.production_variants[0].model_name) if there else None
    return (model.model_name, model.primary_container.image) if model else (None, None)


def _deployment_config(guardrails: Guardrails, instances: int) -> Any:
    """A canary of one instance where there are several; with a single one, all at once is the only way."""
    if instances > 1:
        traffic = shapes.TrafficRoutingConfig(
            type="CANARY",
            wait_interval_in_seconds=guardrails.canary_s,
            canary_size=shapes.CapacitySize(type="INSTANCE_COUNT", value=1),
        )
    else:
        traffic = shapes.TrafficRoutingConfig(
            type="ALL_AT_ONCE", wait_interval_in_seconds=guardrails.canary_s
        )  # required, and the SDK drops a zero
    alarms = [shapes.Alarm(alarm_name=name) for name in guardrails.alarms]
    rollback = {"auto_rollback_configuration": shapes.AutoRollbackConfig(alarms=alarms)} if alarms else {}
    return shapes.DeploymentConfig(
        blue_green_update_policy=shapes.BlueGreenUpdatePolicy(
            traffic_routing_configuration=traffic,
            termination_wait_in_seconds=guardrails.termination_s,
            maximum_execution_timeout_in_seconds=guardrails.update_s,
        ),
        **rollback,
    )


def _patience_s(endpoint: Endpoint) -> int:
    return endpoint.startup_s + endpoint.guardrails.update_s + _SLACK_S


def _check(aws: Aws, endpoint: Endpoint, there: Any) -> None:
    logs = f"its containers' log is the group /aws/sagemaker/Endpoints/{endpoint.name}"
    if there is None:
        raise EndpointFailed(f"{endpoint.name} was deleted while this waited for it")
    if there.endpoint_status not in {"InService", "UpdateRollbackFailed"}:
        reason = failure_of(there) or "no reason given"
        raise EndpointFailed(f"{endpoint.name} is {there.endpoint_status}: {reason}; {logs}")
    if there.endpoint_config_name != endpoint.config or there.endpoint_status != "InService":
        states = find_alarms(aws, list(endpoint.guardrails.alarms)) if endpoint.guardrails.alarms else {}
        ringing = ", ".join(name for name, alarm in states.items() if alarm["StateValue"] == "ALARM")
        why = failure_of(there) or (f"the alarm {ringing} rang" if ringing else "no reason given")
        raise RolledBack(
            f"the update was rolled back ({why}): {endpoint.name} runs {there.endpoint_config_name}, not "
            f"{endpoint.config}; {logs}"
        )


def failure_of(there: Any) -> str:
    """Why it failed, as AWS says it."""
    reason = there.failure_reason
    return "" if isinstance(reason, Unassigned) or reason is None else str(reason)


def owns_endpoint(aws: Aws, there: Any) -> bool:
    return _owns(aws, there.endpoint_arn)


def instances_of(there: Any) -> dict[str, Any]:
    """Of the endpoint's variant: how many, and how many are wanted."""
    if isinstance(there.production_variants, Unassigned):
        return {"current": 0, "desired": 0}
    (variant,) = there.production_variants
    return {"current": variant.current_instance_count, "desired": variant.desired_instance_count}


def _config_named(aws: Aws, name: str) -> Any:
    return _get(sdk.EndpointConfig, aws, endpoint_config_name=name)


def _model_named(aws: Aws, name: str) -> Any:
    return _get(sdk.Model, aws, model_name=name)


def _get(kind: Any, aws: Aws, **name: str) -> Any:
    try:
        return kind.get(**name, session=aws.session, region=aws.region)
    except ClientError as exc:
        if error_code(exc) == "ValidationException" and "could not find" in str(exc).lower():
            return None
        raise


def _owns(aws: Aws, arn: str) -> bool:
    return aws.owns(aws.client("sagemaker").list_tags(ResourceArn=arn)["Tags"])


def _tags(aws: Aws) -> list[Any]:
    return [shapes.Tag(key=key, value=value) for key, value in aws.tags.items()]
