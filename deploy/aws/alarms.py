"""CloudWatch alarms."""

from typing import Any

from deploy.aws.found import MISSING, Found, differences, different, foreign
from deploy.aws.scaling import policy_arn
from deploy.aws.session import Aws
from deploy.resources import Alarm


def look_at_alarm(aws: Aws, alarm: Alarm) -> Found:
    there = find_alarms(aws, [alarm.name]).get(alarm.name)
    if there is None:
        return MISSING
    if not _owns(aws, there):
        return foreign(f"the alarm {alarm.name}")
    return different(*differences(_fields(aws, alarm), there))


def put_alarm(aws: Aws, alarm: Alarm) -> None:
    aws.client("cloudwatch").put_metric_alarm(AlarmName=alarm.name, Tags=aws.tag_list, **_fields(aws, alarm))


def remove_alarms(aws: Aws, names: tuple[str, ...], dry_run: bool = False) -> list[str]:
    """Returns those that there were, of ours."""
    ours = [name for name, alarm in find_alarms(aws, list(names)).items() if _owns(aws, alarm)]
    if ours and not dry_run:
        aws.client("cloudwatch").delete_alarms(AlarmNames=ours)
    return ours


def find_alarms(aws: Aws, names: list[str]) -> dict[str, Any]:
    """Those of the names that exist, as DescribeAlarms tells them."""
    alarms = aws.client("cloudwatch").describe_alarms(AlarmNames=names)["MetricAlarms"]
    return {alarm["AlarmName"]: alarm for alarm in alarms}


def _owns(aws: Aws, alarm: Any) -> bool:
    return aws.owns(aws.client("cloudwatch").list_tags_for_resource(ResourceARN=alarm["AlarmArn"])["Tags"])


def _fields(aws: Aws, alarm: Alarm) -> dict[str, Any]:
    if alarm.runs_policy is None:
        return dict(alarm.fields)
    arn = policy_arn(aws, alarm.runs_policy)
    return dict(alarm.fields) | {"AlarmActions": [arn] if arn else []}
