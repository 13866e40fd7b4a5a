"""The log groups that AWS makes by itself for an endpoint and for builds."""

from deploy.aws.session import Aws


def remove_log_group(aws: Aws, name: str, dry_run: bool = False) -> bool:
    """Returns whether there was one."""
    logs = aws.client("logs")
    groups = logs.describe_log_groups(logGroupNamePrefix=name)["logGroups"]
    if name not in {group["logGroupName"] for group in groups}:
        return False
    if not dry_run:
        logs.delete_log_group(logGroupName=name)
    return True
