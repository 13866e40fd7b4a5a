"""AgentCore's control plane for tests: moto's server with what it lacks.

moto's runtimes are ready at once, may share a name, keep what an update does not send, and stay UPDATING for ever; they
have another ARN, and lists have one page. All of that is put right here, and undone when the context ends.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import boto3
import httpx
import pytest
from moto.bedrockagentcorecontrol.exceptions import ConflictException, ResourceNotFoundException
from moto.bedrockagentcorecontrol.models import (
    AgentRuntime,
    BedrockAgentCoreControlBackend,
    bedrockagentcorecontrol_backends,
)
from moto.bedrockagentcorecontrol.responses import BedrockAgentCoreControlResponse
from moto.core import DEFAULT_ACCOUNT_ID
from moto.core.exceptions import ServiceException
from moto.core.responses import ActionResult
from moto.sagemaker import sagemaker_backends
from moto.server import ThreadedMotoServer

from serve_app.client.types import Audio, Chunk

REGION = "us-east-1"
GONE = "GONE"
HANG_S = 10.0
PAGE = 1


class RoleValidationFailed(ServiceException):
    code = "ValidationException"

    def __init__(self) -> None:
        super().__init__("Role validation failed for 'arn:aws:iam::123456789012:role/x'.")


@dataclass
class FakeAgentCore:
    """What the service does next.

    Attributes:
        url: of everything but the data plane.
        fails: why the next runtime that is made or changed fails.
        role_unknown: how many times a role is refused before it is known.
        calls: operations that change a runtime, in order.
        pauses: between two looks, which a test does not wait for.
    """

    url: str
    fails: str | None = None
    role_unknown: int = 0
    calls: list[str] = field(default_factory=list)
    pauses: list[float] = field(default_factory=list)

    def client(self, service: str) -> Any:
        return boto3.Session(region_name=REGION, profile_name=None).client(service)

    def runtimes(self) -> list[Any]:
        """moto's own objects."""
        return list(self._backend.agent_runtimes.values())

    def endpoint(self, name: str = "tts") -> Any:
        """A SageMaker endpoint, InService; returns moto's own object, whose status may be changed."""
        sagemaker = self.client("sagemaker")
        role = f"arn:aws:iam::{DEFAULT_ACCOUNT_ID}:role/tts"
        sagemaker.create_model(ModelName=name, PrimaryContainer={"Image": "tts"}, ExecutionRoleArn=role)
        variant = {"VariantName": "AllTraffic", "ModelName": name, "InstanceType": "ml.m4.xlarge"}
        sagemaker.create_endpoint_config(
            EndpointConfigName=name, ProductionVariants=[variant | {"InitialInstanceCount": 1}]
        )
        sagemaker.create_endpoint(EndpointName=name, EndpointConfigName=name)
        return sagemaker_backends[DEFAULT_ACCOUNT_ID][REGION].endpoints[name]

    def left(self) -> list[str]:
        """Names of everything in the account that a tool for agents may make."""
        roles = [role["RoleName"] for role in self.client("iam").list_roles()["Roles"]]
        buckets = [bucket["Name"] for bucket in self.client("s3").list_buckets()["Buckets"]]
        groups = [group["logGroupName"] for group in self.client("logs").describe_log_groups()["logGroups"]]
        return [*roles, *buckets, *groups, *(one.agent_runtime_name for one in self.runtimes())]

    @property
    def _backend(self) -> Any:
        return bedrockagentcorecontrol_backends[DEFAULT_ACCOUNT_ID][REGION]


@contextmanager
def moto_server() -> Iterator[str]:
    """Its address. In this process, so that `agentcore` can put it right."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    try:
        yield f"http://{host}:{port}"
    finally:
        server.stop()


@contextmanager
def agentcore(url: str) -> Iterator[FakeAgentCore]:
    """An empty account on moto's server, put right, and an environment that leads every AWS client to it."""
    service = FakeAgentCore(url)
    with pytest.MonkeyPatch.context() as patch:
        for name in ("AWS_PROFILE", "AWS_CA_BUNDLE", "AWS_ROLE_ARN", "AWS_DEFAULT_REGION", "AWS_REGION"):
            patch.delenv(name, raising=False)
        for name, value in {
            "AWS_ACCESS_KEY_ID": "testing",
            "AWS_SECRET_ACCESS_KEY": "testing",
            "AWS_SESSION_TOKEN": "testing",
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_CONFIG_FILE": "/dev/null",
            "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
            "AWS_MAX_ATTEMPTS": "1",
            "AWS_ENDPOINT_URL": url,
        }.items():
            patch.setenv(name, value)
        patch.setattr(boto3, "Session", _lasting_sessions(url))
        _correct(service, patch)
        httpx.post(f"{url}/moto-api/reset", timeout=HANG_S).raise_for_status()
        yield service


_Session = boto3.Session


@cache
def _lasting_sessions(url: str) -> Any:
    """Makes one session a region, and one client a service, for all runs against a server: most of a run is that."""

    def session(**arguments: Any) -> Any:
        made = _Session(**arguments)
        made.client = cache(made.client)
        return made

    return cache(session)


def _correct(service: FakeAgentCore, patch: pytest.MonkeyPatch) -> None:
    backend, runtime_class = BedrockAgentCoreControlBackend, AgentRuntime
    make, create = runtime_class.__init__, backend.create_agent_runtime

    def __init__(self: Any, *args: Any, **fields: Any) -> None:
        make(self, *args, **fields)
        self._transitions = [(None, "")]  # the status is what a look finds next, see below
        self.agent_runtime_id = f"{self.agent_runtime_name}-{self.agent_runtime_id[-10:]}"
        place = f"{self.region_name}:{self.account_id}:runtime/{self.agent_runtime_id}"
        self.agent_runtime_arn = f"arn:aws:bedrock-agentcore:{place}"
        self.status = "CREATING"
        self.failure_reason = service.fails
        self.next_statuses = ["CREATING", "CREATE_FAILED" if service.fails else "READY"]
        service.fails = None

    def update(self: Any, **fields: Any) -> None:
        self.__dict__.update(fields)  # what is not sent is lost
        self.agent_runtime_version = str(int(self.agent_runtime_version) + 1)
        self.status = "UPDATING"
        self.failure_reason = service.fails
        self.next_statuses = ["UPDATING", "UPDATE_FAILED" if service.fails else "READY"]
        service.fails = None

    def check_role() -> None:
        if service.role_unknown:
            service.role_unknown -= 1
            raise RoleValidationFailed

    def create_agent_runtime(self: Any, **fields: Any) -> Any:
        check_role()
        if any(one.agent_runtime_name == fields["agent_runtime_name"] for one in self.agent_runtimes.values()):
            raise ConflictException(f"Agent runtime {fields['agent_runtime_name']} already exists")
        service.calls.append("create")
        return create(self, **fields)

    def update_agent_runtime(self: Any, agent_runtime_id: str, **fields: Any) -> Any:
        check_role()
        runtime = self._get_runtime(agent_runtime_id)
        if runtime.status in ("CREATING", "UPDATING", "DELETING"):
            raise ConflictException("another change is going on")
        service.calls.append("update")
        runtime.update(**fields)
        return runtime

    def get_agent_runtime(self: Any, agent_runtime_id: str) -> Any:
        runtime = self._get_runtime(agent_runtime_id)
        if runtime.next_statuses:
            runtime.status = runtime.next_statuses.pop(0)
        if runtime.status == GONE:
            del self.agent_runtimes[agent_runtime_id]
            raise ResourceNotFoundException(f"Could not find Agent Runtime with ID {agent_runtime_id}")
        return runtime

    def delete_agent_runtime(self: Any, agent_runtime_id: str) -> Any:
        runtime = self._get_runtime(agent_runtime_id)
        service.calls.append("delete")
        runtime.status, runtime.next_statuses = "DELETING", ["DELETING", GONE]
        return runtime

    describe = BedrockAgentCoreControlResponse.get_agent_runtime

    def described(self: Any) -> ActionResult:
        answer = describe(self)
        runtime = self.backend._get_runtime(self._get_param("agentRuntimeId"))
        reason = {"failureReason": runtime.failure_reason} if runtime.failure_reason else {}
        return ActionResult(answer.result | reason)

    def pages(self: Any) -> ActionResult:
        start = int(self._get_param("nextToken") or 0)
        ours = self.backend.list_agent_runtimes()
        more = {"nextToken": str(start + PAGE)} if start + PAGE < len(ours) else {}
        return ActionResult({"agentRuntimes": [one.to_summary() for one in ours[start : start + PAGE]], **more})

    for owner, function in (
        (runtime_class, __init__),
        (runtime_class, update),
        (backend, create_agent_runtime),
        (backend, update_agent_runtime),
        (backend, get_agent_runtime),
        (backend, delete_agent_runtime),
    ):
        patch.setattr(owner, function.__name__, function)
    patch.setattr(BedrockAgentCoreControlResponse, "get_agent_runtime", described)
    patch.setattr(BedrockAgentCoreControlResponse, "list_agent_runtimes", pages)


class Speaker:
    """An endpoint's client that says so many bytes, or fails. Remembers what it was asked for."""

    def __init__(self, data_bytes: int = 73_200, failure: Exception | None = None) -> None:
        self._data_bytes, self._failure = data_bytes, failure
        self.said: list[str] = []
        self.closed = False

    async def synthesize(self, text: str, **options: Any) -> Any:
        self.said.append(text)
        if self._failure is not None:
            raise self._failure
        yield Chunk("r", bytes(self._data_bytes), Audio("pcm", 24_000))

    async def aclose(self) -> None:
        self.closed = True
