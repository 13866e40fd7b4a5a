"""Who may call which endpoint: the signature, the name, the variant; the same for both protocols."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import unquote

from botocore.credentials import Credentials

from scripts.local_endpoint.container import Container
from scripts.local_endpoint.errors import ServiceError, endpoint_not_found, validation_error
from scripts.local_endpoint.settings import ACCOUNT_ID, VARIANT
from scripts.local_endpoint.signatures import Request, Signed, verify_request

_PATH = re.compile(r"/endpoints/([^/?]+)/([a-z-]+)$")


@dataclass(frozen=True)
class Admitted:
    """A request that may go on to its container."""

    container: Container
    signed: Signed


class Routes:
    """The endpoints of one account."""

    def __init__(self, containers: Iterable[Container], credentials: Credentials) -> None:
        self._containers = {container.name: container for container in containers}
        self._credentials = credentials

    def admit(self, request: Request, operation: str) -> Admitted:
        """Where a request for `operation`, the last part of its path, goes. Raises ServiceError."""
        match = _PATH.match(request.target.partition("?")[0])
        if match is None or match[2] != operation or request.method != "POST":
            raise ServiceError("UnknownOperationException", 404, "There is no such operation.")
        signed = verify_request(request, self._credentials)
        name = unquote(match[1])
        container = self._containers.get(name)
        if container is None or not container.in_service:
            raise endpoint_not_found(name, ACCOUNT_ID)
        variant = request.headers.get("x-amzn-sagemaker-target-variant", VARIANT)
        if variant != VARIANT:
            raise validation_error(f"Variant {variant} of endpoint {name} not found; it has {VARIANT}.")
        return Admitted(container, signed)
