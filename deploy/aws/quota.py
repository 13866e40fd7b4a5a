"""The account's limit on instances of one type: a fresh account often has none of those with a GPU."""

from botocore.exceptions import ClientError

from deploy.aws.session import Aws
from deploy.errors import DeployError
from deploy.plan import Quota
from deploy.progress import say


def check_quota(aws: Aws, quota: Quota) -> None:
    """Raises DeployError: the account may not run so many. Says so on stderr where the limit can't be read."""
    try:
        limit = _limit(aws, quota.name)
    except ClientError as exc:
        say(f"quota: not readable ({exc.response['Error'].get('Code')}), going on")
        return
    where = f"https://{aws.region}.console.aws.amazon.com/servicequotas/home/services/sagemaker/quotas"
    if limit is None:
        say(f"quota: AWS knows no `{quota.name}`; is the instance type offered in {aws.region}?")
    elif limit < quota.needed:
        raise DeployError(
            f"the account may run {limit:g} of `{quota.name}` in {aws.region}, and this takes up to {quota.needed}: "
            f"ask for {quota.wanted_for_update} (an update runs both fleets for a while) at {where}, or lower "
            "autoscaling.max_instances"
        )
    elif limit < quota.wanted_for_update:
        say(
            f"quota: {limit:g} of `{quota.name}`; a blue/green update at full size takes {quota.wanted_for_update}. "
            f"Ask for more at {where}"
        )


def _limit(aws: Aws, name: str) -> float | None:
    pages = aws.client("service-quotas").get_paginator("list_service_quotas").paginate(ServiceCode="sagemaker")
    for page in pages:
        for quota in page["Quotas"]:
            if quota["QuotaName"] == name:
                return float(quota["Value"])
    return None
