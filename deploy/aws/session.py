"""Whom AWS takes us for and where calls go; AWS's refusals as sentences that say what to do."""

import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    EndpointConnectionError,
    NoCredentialsError,
    PartialCredentialsError,
    ProfileNotFound,
)

from deploy.errors import DeployError, MissingPermission

TAG = "kokoro-serve:deployment"

# retries: AWS_MAX_ATTEMPTS still counts
_NETWORK = Config(connect_timeout=5, read_timeout=60, retries={"mode": "standard"})

_DENIED = {"AccessDenied", "AccessDeniedException", "UnauthorizedOperation", "403"}
_BAD_CREDENTIALS = {
    "AuthFailure",
    "ExpiredToken",
    "ExpiredTokenException",
    "InvalidClientTokenId",
    "RequestExpired",
    "SignatureDoesNotMatch",
    "UnrecognizedClientException",
}
_DENIED_ACTION = re.compile(
    r"not authorized to perform: (?P<action>[\w-]+:\w+)(?: on resource: (?P<resource>[^\s,]+))?"
)
# S3 answers HEAD without a text, and its operations are not named like its actions.
_S3_ACTIONS = {"HeadBucket": "s3:ListBucket", "ListObjectsV2": "s3:ListBucket", "HeadObject": "s3:GetObject"}


@dataclass(frozen=True)
class Aws:
    """One account and region, and the deployment whose tag everything carries that is made here."""

    session: Any
    region: str
    account: str
    partition: str
    caller: str  # ARN
    deployment: str
    pause: Callable[[float], None] = time.sleep  # between two looks at something that takes its time
    _clients: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)

    def client(self, service: str) -> Any:
        """The boto3 client of `service`, made once."""
        if service not in self._clients:
            self._clients[service] = self.session.client(service, config=_NETWORK)
        return self._clients[service]

    @property
    def tags(self) -> dict[str, str]:
        return {TAG: self.deployment}

    @property
    def tag_list(self) -> list[dict[str, str]]:
        """The tags in the shape that most services take."""
        return [{"Key": key, "Value": value} for key, value in self.tags.items()]

    def owns(self, tags: Mapping[str, str] | list[dict[str, str]]) -> bool:
        """Do these tags, in either shape, say that this deployment made the thing?"""
        if isinstance(tags, list):
            tags = {tag.get("Key", tag.get("key", "")): tag.get("Value", tag.get("value", "")) for tag in tags}
        return tags.get(TAG) == self.deployment


def open_session(region: str, profile: str | None, deployment: str, pause: Callable[[float], None] = time.sleep) -> Aws:
    """Ask AWS who we are.

    Raises:
        DeployError: no credentials, expired ones, an unknown profile, or no way to AWS.
    """
    with explained():
        session = boto3.Session(region_name=region, profile_name=profile)
        identity = session.client("sts", config=_NETWORK).get_caller_identity()
    partition = identity["Arn"].split(":")[1]
    return Aws(session, region, identity["Account"], partition, identity["Arn"], deployment, pause)


def error_code(exc: ClientError) -> str:
    return str(exc.response.get("Error", {}).get("Code", ""))


@contextmanager
def explained() -> Iterator[None]:
    """Turn what the AWS SDKs raise into a DeployError; the one place that does."""
    try:
        yield
    except ClientError as exc:
        raise _refusal(exc) from exc
    except (NoCredentialsError, PartialCredentialsError) as exc:
        raise DeployError(
            "there are no AWS credentials: sign in (`aws sso login`, `aws configure`), pass --profile NAME, or set "
            "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
        ) from exc
    except ProfileNotFound as exc:
        raise DeployError(f"{exc}; `aws configure list-profiles` shows those that exist") from exc
    except EndpointConnectionError as exc:
        raise DeployError(
            f"AWS is not reachable: {exc} Check the region's name, the network, and AWS_ENDPOINT_URL if it is set."
        ) from exc
    except BotoCoreError as exc:
        raise DeployError(f"the AWS SDK gives up ({type(exc).__name__}): {exc}") from exc


def _refusal(exc: ClientError) -> DeployError:
    code, operation = error_code(exc), exc.operation_name
    message = str(exc.response.get("Error", {}).get("Message", "")).strip()
    if code in _BAD_CREDENTIALS:
        return DeployError(
            f"AWS does not accept these credentials ({code}): sign in again, or choose others with --profile NAME"
        )
    denied = _DENIED_ACTION.search(message)
    if code in _DENIED or denied:
        action = denied["action"] if denied else _S3_ACTIONS.get(operation, f"the action of {operation}")
        where = f" on {denied['resource']}" if denied and denied["resource"] else ""
        why = " (an explicit deny forbids it, so allowing it is not enough)" if "explicit deny" in message else ""
        return MissingPermission(
            f"these credentials may not use {action}{where}{why}. docs/deploy.md has the policy they need; with it "
            "in place run the same command again, it goes on where it stopped"
        )
    return DeployError(f"AWS refuses {operation} ({code or 'no code'}): {message or 'no reason given'}")
