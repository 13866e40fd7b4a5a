"""moto's server, made to behave like AWS where a deployment tool would notice the difference.

    python tests/deploy/fake_aws.py PORT

Corrected: instance types newer than 2021; `UpdateEndpoint`; endpoints that are Creating, Updating, RollingBack and
Deleting for a while, or fail; names that are taken; things that are in use; roles that are seconds old; builds that
take their time and put an image into the repository; quotas; empty structures that the SageMaker SDK refuses to read.

Scripted over HTTP, by `AwsScript` below: actions that are denied, answers that get lost, what an endpoint does next.
"""

import dataclasses
import hashlib
import json
import re
import sys
import urllib.request
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs

CALLER = "arn:aws:iam::123456789012:user/deployer"


@dataclass
class Script:
    """What the account does next. Each field may be set over HTTP; a reset brings the defaults back."""

    denied: list[str] = field(default_factory=list)  # IAM actions
    lose_next_answer: bool = (
        False  # of the next change of a kind that was not lost before: it happens, the caller hears 500
    )
    looks: int = 1  # describes until something is ready
    creation_fails: str | None = None  # reason
    update_rolls_back: str | None = None  # reason
    build_fails: bool = False
    new_role_refusals: int = 0
    quotas: dict[str, float] = field(default_factory=lambda: {"ml.g5.xlarge for endpoint usage": 8.0})


class AwsScript:
    """The test's end of it."""

    def __init__(self, url: str) -> None:
        self.url = url

    def reset(self) -> None:
        """An empty account, nothing scripted, nothing recorded."""
        self._post("/moto-api/reset", {})
        self._post("/script", dataclasses.asdict(Script()) | {"forget": True})

    def set(self, **fields: Any) -> None:
        self._post("/script", fields)

    def actions(self) -> list[str]:
        """IAM actions of every request since the reset, in order."""
        with urllib.request.urlopen(f"{self.url}/script") as answer:
            actions: list[str] = json.load(answer)
        return actions

    def _post(self, path: str, body: Any) -> None:
        urllib.request.urlopen(urllib.request.Request(self.url + path, json.dumps(body).encode())).close()


SCRIPT = Script()
ACTIONS: list[str] = []
LOST: set[str] = set()


class Gate:
    """In front of moto: records each request as its IAM action, denies, and loses answers."""

    def __init__(self, app: Callable[[dict[str, Any], Any], Iterable[bytes]]) -> None:
        self._app = app

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        import io

        path = environ["PATH_INFO"]
        if path.startswith("/moto-api"):
            return self._app(environ, start_response)
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        if path == "/script":
            return _scripted(environ["REQUEST_METHOD"], body, start_response)
        environ["wsgi.input"] = io.BytesIO(body)
        request = _Request(environ, body)
        ACTIONS.extend(request.actions)
        for action in request.actions:
            if action in SCRIPT.denied:
                text = f"User: {CALLER} is not authorized to perform: {action} on resource: arn:aws:fake:::thing"
                return request.refused(start_response, "AccessDenied", text, 403)
        action = request.actions[0]
        if SCRIPT.lose_next_answer and request.changes and action not in LOST:
            SCRIPT.lose_next_answer = False
            LOST.add(action)
            for _ in self._app(environ, lambda *_: None):
                pass
            return request.refused(start_response, "InternalFailure", "the answer was lost", 500)
        return self._app(environ, start_response)


def _scripted(method: str, body: bytes, start_response: Any) -> Iterable[bytes]:
    if method == "POST":
        fields = json.loads(body)
        if fields.pop("forget", False):
            ACTIONS.clear()
            LOST.clear()
        for name, value in fields.items():
            assert hasattr(SCRIPT, name), name
            setattr(SCRIPT, name, value)
    start_response("200 OK", [("Content-Type", "application/json")])
    return [json.dumps(ACTIONS).encode()]


_PREFIXES = {"monitoring": "cloudwatch"}
_SCOPE = re.compile(r"Credential=[^/]+/\d+/[^/]+/(?P<service>[^/]+)/")
_S3_ACTIONS = {  # method, whether a key is named, sub-resource
    ("PUT", False, ""): "CreateBucket",
    ("DELETE", False, ""): "DeleteBucket",
    ("HEAD", False, ""): "ListBucket",
    ("GET", False, "list-type"): "ListBucket",
    ("GET", False, "tagging"): "GetBucketTagging",
    ("PUT", False, "tagging"): "PutBucketTagging",
    ("GET", False, "publicAccessBlock"): "GetBucketPublicAccessBlock",
    ("PUT", False, "publicAccessBlock"): "PutBucketPublicAccessBlock",
    ("POST", False, "delete"): "DeleteObject",
    ("PUT", True, ""): "PutObject",
    ("HEAD", True, ""): "GetObject",
    ("GET", True, ""): "GetObject",
    ("GET", False, ""): "ListAllMyBuckets",
}
_S3_SUB_RESOURCES = {sub_resource for _, _, sub_resource in _S3_ACTIONS if sub_resource}
_PASSES_A_ROLE = {"sagemaker:CreateModel", "codebuild:CreateProject"}
_CHANGES = re.compile(r":(?!(Get|List|Describe|Batch|Head|InvokeE))")


class _Request:
    def __init__(self, environ: dict[str, Any], body: bytes) -> None:
        self._environ = environ
        scope = _SCOPE.search(environ.get("HTTP_AUTHORIZATION", ""))
        self._service = scope["service"] if scope else "unknown"
        action = f"{_PREFIXES.get(self._service, self._service)}:{self._operation(body)}"
        self.actions = [action, "iam:PassRole"] if action in _PASSES_A_ROLE else [action]
        self.changes = _CHANGES.search(action) is not None

    def _operation(self, body: bytes) -> str:
        path: str = self._environ["PATH_INFO"]
        if target := self._environ.get("HTTP_X_AMZ_TARGET"):
            return str(target).split(".")[-1]
        if "/operation/" in path:
            return path.rpartition("/")[2]
        if self._service == "s3":
            _, _, key = path.strip("/").partition("/")
            query = set(parse_qs(self._environ["QUERY_STRING"], keep_blank_values=True))
            (sub_resource,) = query & _S3_SUB_RESOURCES or {""}
            return _S3_ACTIONS.get((self._environ["REQUEST_METHOD"], bool(key), sub_resource), "Other")
        named = parse_qs(body.decode(errors="replace")).get("Action")
        return named[0] if named else f"{self._environ['REQUEST_METHOD']} {path}"

    def refused(self, start_response: Any, code: str, text: str, status: int) -> Iterable[bytes]:
        if "/operation/" in self._environ["PATH_INFO"]:
            content, kind = _cbor({"__type": code, "message": text}), "application/cbor"
        elif self._service == "s3":
            content, kind = f"<Error><Code>{code}</Code><Message>{text}</Message></Error>".encode(), "text/xml"
        elif self._service in {"iam", "sts"}:
            error = f"<Error><Type>Sender</Type><Code>{code}</Code><Message>{text}</Message></Error>"
            content, kind = f"<ErrorResponse>{error}</ErrorResponse>".encode(), "text/xml"
        else:
            code = f"{code}Exception" if code == "AccessDenied" else code
            content, kind = json.dumps({"__type": code, "message": text}).encode(), "application/x-amz-json-1.1"
        if self._environ["REQUEST_METHOD"] == "HEAD":
            content = b""
        headers = [("Content-Type", kind), ("Content-Length", str(len(content)))]
        if kind == "application/cbor":
            headers.append(("smithy-protocol", "rpc-v2-cbor"))
        start_response(f"{status} Refused", headers)
        return [content]


def _cbor(texts: dict[str, str]) -> bytes:
    """A map of texts as CBOR (RFC 8949): major types 5 and 3, lengths in two bytes."""

    def text(value: str) -> bytes:
        return b"\x79" + len(value.encode()).to_bytes(2) + value.encode()

    return bytes([0xA0 + len(texts)]) + b"".join(text(key) + text(value) for key, value in texts.items())


def patch() -> None:
    """Correct moto, in this process."""
    _patch_sagemaker()
    _patch_codebuild()
    _patch_service_quotas()
    _patch_agentcore()


def _patch_sagemaker() -> None:
    import botocore.session
    from moto.core.responses import ActionResult
    from moto.ecr.models import ecr_backends
    from moto.iam.models import iam_backends
    from moto.sagemaker import models
    from moto.sagemaker.exceptions import ValidationError
    from moto.sagemaker.responses import SageMakerResponse

    service = botocore.session.get_session().get_service_model("sagemaker")
    instance_types = set(service.shape_for("ProductionVariantInstanceType").enum)
    amis = set(service.shape_for("ProductionVariantInferenceAmiVersion").enum)
    backend = models.SageMakerModelBackend

    def validate_instance_type(self: Any, name: str) -> None:
        if name not in instance_types:
            raise ValidationError(message=f"Value '{name}' at 'instanceType' failed to satisfy constraint")

    models.FakeEndpointConfig.validate_instance_type = validate_instance_type  # type: ignore[method-assign]

    def refuse_duplicates(method: str, store: str, kind: str, key: str) -> None:
        plain = getattr(backend, method)

        def create(self: Any, **fields: Any) -> Any:
            if fields[key] in getattr(self, store):
                raise ValidationError(message=f'Cannot create already existing {kind} "{fields[key]}".')
            return plain(self, **fields)

        setattr(backend, method, create)

    refuse_duplicates("create_model", "_models", "model", "model_name")
    refuse_duplicates("create_endpoint_config", "endpoint_configs", "endpoint configuration", "endpoint_config_name")
    refuse_duplicates("create_endpoint", "endpoints", "endpoint", "endpoint_name")

    create_model = backend.create_model

    def create_checked_model(self: Any, **fields: Any) -> Any:
        arn = fields["execution_role_arn"]
        roles = {role.arn for role in iam_backends[self.account_id]["aws"].roles.values()}
        if arn not in roles or SCRIPT.new_role_refusals > 0:
            SCRIPT.new_role_refusals -= 1
            raise ValidationError(message=f"Could not assume role {arn}. Please ensure that the role exists")
        registry, _, name = fields["primary_container"]["Image"].partition("/")
        repository, _, tag = name.partition(":")
        if registry.startswith(self.account_id):
            stored = ecr_backends[self.account_id][self.region_name].repositories.get(repository)
            if stored is None or not any(tag in image.image_tags for image in stored.images):
                raise ValidationError(message=f"Requested image {registry}/{name} not found.")
        return create_model(self, **fields)

    backend.create_model = create_checked_model  # type: ignore[method-assign]

    create_config = backend.create_endpoint_config

    def create_checked_config(self: Any, **fields: Any) -> Any:
        for variant in fields["production_variants"]:
            if variant.get("InferenceAmiVersion") not in {*amis, None}:
                raise ValidationError(message=f"Value '{variant['InferenceAmiVersion']}' at 'inferenceAmiVersion'")
        return create_config(self, **fields)

    backend.create_endpoint_config = create_checked_config  # type: ignore[method-assign]

    describe, delete = backend.describe_endpoint, backend.delete_endpoint

    def advance(self: Any, name: str) -> None:
        """One look at the endpoint: what is under way comes nearer to its end."""
        endpoint = self.endpoints.get(name)
        if endpoint is None:
            return
        if not hasattr(endpoint, "left"):
            endpoint.endpoint_status, endpoint.left = "Creating", SCRIPT.looks
        if endpoint.left > 0:
            endpoint.left -= 1
            return
        match endpoint.endpoint_status:
            case "Creating" if SCRIPT.creation_fails:
                endpoint.endpoint_status, endpoint.failure_reason = "Failed", SCRIPT.creation_fails
            case "Updating" if SCRIPT.update_rolls_back:
                endpoint.endpoint_status, endpoint.left = "RollingBack", SCRIPT.looks
            case "RollingBack":
                endpoint.endpoint_status, endpoint.failure_reason = "InService", SCRIPT.update_rolls_back
                endpoint.endpoint_config_name = endpoint.previous_config
            case "Creating" | "Updating":
                endpoint.endpoint_status, endpoint.failure_reason = "InService", None
            case "Deleting":
                delete(self, name)

    def describe_endpoint(self: Any, endpoint_name: str) -> dict[str, Any]:
        advance(self, endpoint_name)
        answer = dict(describe(self, endpoint_name))
        for hidden in ("Left", "PreviousConfig"):
            answer.pop(hidden, None)
        if answer["EndpointStatus"] == "Creating":
            answer.pop("ProductionVariants")
        return answer

    def delete_endpoint(self: Any, endpoint_name: str) -> None:
        status = describe_endpoint(self, endpoint_name)["EndpointStatus"]
        if status not in {"InService", "Failed"}:
            raise ValidationError(message=f'Cannot update in-progress endpoint "{endpoint_name}".')
        endpoint = self.endpoints[endpoint_name]
        endpoint.endpoint_status, endpoint.left = "Deleting", SCRIPT.looks

    backend.describe_endpoint = describe_endpoint  # type: ignore[method-assign]
    backend.delete_endpoint = delete_endpoint  # type: ignore[method-assign]

    def update_endpoint(self: Any) -> Any:
        store, name, config = (
            self.sagemaker_backend,
            self._get_param("EndpointName"),
            self._get_param("EndpointConfigName"),
        )
        status = describe_endpoint(store, name)["EndpointStatus"]
        if status != "InService":
            raise ValidationError(message=f'Cannot update in-progress endpoint "{name}".')
        endpoint = store.endpoints[name]
        variants = store.describe_endpoint_config(config)["ProductionVariants"]
        if not self._get_param("RetainAllVariantProperties"):
            endpoint.production_variants = endpoint._process_production_variants(variants)
        endpoint.previous_config, endpoint.endpoint_config_name = endpoint.endpoint_config_name, config
        endpoint.last_deployment_config = self._get_param("DeploymentConfig")
        endpoint.endpoint_status, endpoint.left = "Updating", SCRIPT.looks
        return ActionResult({"EndpointArn": endpoint.arn})

    SageMakerResponse.update_endpoint = update_endpoint  # type: ignore[attr-defined]

    def refuse_in_use(method: str, key: str, users: Callable[[Any], Iterable[str]]) -> None:
        plain = getattr(backend, method)

        def remove(self: Any, *names: str, **named: str) -> Any:
            (name,) = (*names, *named.values())
            if name in set(users(self)):
                raise ValidationError(message=f"{key} {name} is in use.")
            return plain(self, name)

        setattr(backend, method, remove)

    refuse_in_use(
        "delete_endpoint_config",
        "Endpoint configuration",
        lambda self: (e.endpoint_config_name for e in self.endpoints.values()),
    )
    refuse_in_use(
        "delete_model",
        "Model",
        lambda self: (v["ModelName"] for c in self.endpoint_configs.values() for v in c.production_variants),
    )

    def without_empty(method: str) -> None:
        plain = getattr(SageMakerResponse, method)

        def answer(self: Any) -> Any:
            return ActionResult({key: value for key, value in plain(self).result.items() if value not in ({}, [])})

        setattr(SageMakerResponse, method, answer)

    for method in ("describe_model", "describe_endpoint_config", "describe_endpoint"):
        without_empty(method)


def _patch_codebuild() -> None:
    from moto.codebuild.models import CodeBuildBackend
    from moto.codebuild.responses import CodeBuildResponse
    from moto.core.responses import ActionResult
    from moto.ecr.models import ecr_backends
    from moto.s3.models import s3_backends

    def start_build(self: Any) -> Any:
        store = self.codebuild_backend
        bucket, _, key = self._get_param("sourceLocationOverride").partition("/")
        assert s3_backends[store.account_id]["aws"].head_object(bucket, key) is not None, "no such bundle"
        build = store.start_build(self._get_param("projectName"))
        build["buildStatus"], build["currentPhase"] = "IN_PROGRESS", "QUEUED"
        build["environment"] = {
            "type": "LINUX_CONTAINER",
            "image": "aws/codebuild/standard:7.0",
            "computeType": "BUILD_GENERAL1_LARGE",
            "environmentVariables": self._get_param("environmentVariablesOverride"),
        }
        store.__dict__.setdefault("looks_left", {})[build["id"]] = SCRIPT.looks
        return ActionResult({"build": build})

    def batch_get_builds(self: Any, ids: list[str]) -> list[dict[str, Any]]:
        builds = [build for history in self.build_metadata_history.values() for build in history if build["id"] in ids]
        for build in builds:
            if build["buildStatus"] != "IN_PROGRESS":
                continue
            if self.looks_left[build["id"]] > 0:
                self.looks_left[build["id"]] -= 1
                build["currentPhase"] = "BUILD"
            elif SCRIPT.build_fails:
                build["buildStatus"], build["logs"] = "FAILED", {"deepLink": "https://console/log"}
            else:
                build["buildStatus"] = "SUCCEEDED"
                uri = build["environment"]["environmentVariables"][0]["value"]
                repository, _, tag = uri.partition("/")[2].partition(":")
                ecr_backends[self.account_id][self.region_name].put_image(repository, manifest_of(tag), tag)
        return builds

    def update_project(self: Any) -> Any:
        project = self.codebuild_backend.codebuild_projects[self._get_param("name")].project_metadata
        for name in ("source", "environment", "artifacts", "serviceRole", "timeoutInMinutes", "tags"):
            project[name] = self._get_param(name)
        return ActionResult({"project": project})

    CodeBuildResponse.start_build = start_build  # type: ignore[method-assign]
    CodeBuildResponse.update_project = update_project  # type: ignore[attr-defined]
    CodeBuildBackend.batch_get_builds = batch_get_builds  # type: ignore[method-assign]


def manifest_of(tag: str) -> str:
    """An image manifest that differs from tag to tag."""
    digest = hashlib.sha256(tag.encode()).hexdigest()
    kind = "application/vnd.docker.distribution.manifest.v2+json"
    config = {"mediaType": "application/vnd.docker.container.image.v1+json", "size": 7, "digest": f"sha256:{digest}"}
    return json.dumps({"schemaVersion": 2, "mediaType": kind, "config": config, "layers": []})


def _patch_service_quotas() -> None:
    from moto.servicequotas.responses import ServiceQuotasResponse

    def list_service_quotas(self: Any) -> str:
        quotas = [
            {"ServiceCode": "sagemaker", "QuotaName": name, "Value": value} for name, value in SCRIPT.quotas.items()
        ]
        return json.dumps({"Quotas": quotas})

    ServiceQuotasResponse.list_service_quotas = list_service_quotas  # type: ignore[attr-defined]


def _patch_agentcore() -> None:
    from moto.bedrockagentcorecontrol import models
    from moto.bedrockagentcorecontrol.exceptions import ConflictException
    from moto.core.exceptions import ServiceException

    update, create = models.AgentRuntime.update, models.BedrockAgentCoreControlBackend.create_agent_runtime

    def update_and_get_ready(self: Any, **fields: Any) -> None:
        update(self, **fields)
        self._transitions = [("CREATING", "READY"), ("UPDATING", "READY")]

    def create_checked(self: Any, **fields: Any) -> Any:
        name = fields["agent_runtime_name"]
        if not re.fullmatch(r"[a-zA-Z][a-zA-Z0-9_]{0,47}", name):
            raise ServiceException("ValidationException", f"Value '{name}' at 'agentRuntimeName' is no name")
        if any(runtime.agent_runtime_name == name for runtime in self.agent_runtimes.values()):
            raise ConflictException(f"Agent runtime {name} already exists")
        return create(self, **fields)

    models.AgentRuntime.update = update_and_get_ready  # type: ignore[method-assign]
    models.BedrockAgentCoreControlBackend.create_agent_runtime = create_checked  # type: ignore[method-assign]


def serve(port: int) -> None:
    from moto.server import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import WSGIRequestHandler, run_simple

    class KeepsConnections(WSGIRequestHandler):
        protocol_version = "HTTP/1.1"

    patch()
    app = Gate(DomainDispatcherApplication(create_backend_app))
    run_simple("127.0.0.1", port, app, threaded=True, request_handler=KeepsConnections)


if __name__ == "__main__":
    serve(int(sys.argv[1]))
