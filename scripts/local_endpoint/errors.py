"""What the service refuses, with the names, statuses and sentences of the real one."""

import json
from typing import Any

HTTP2_NAMES = {
    "ValidationError": "InputValidationError",
    "InternalFailure": "InternalServerError",
    "ServiceUnavailable": "ServiceUnavailableError",
}
"""The HTTP/2 service has its own names for some errors of the HTTP/1.1 service."""


class ServiceError(Exception):
    """A request that gets an error instead of an answer."""

    def __init__(self, name: str, http_status: int, message: str, **fields: Any) -> None:
        super().__init__(message)
        self.name, self.http_status, self.fields = name, http_status, {"Message": message, **fields}

    def body(self) -> bytes:
        return json.dumps(self.fields).encode()


class StreamError(Exception):
    """A stream that ends with an exception member after it had begun.

    `modeled`: one of the service's own exceptions, which SDKs raise by name; else an error of the encoding itself.
    """

    def __init__(self, name: str, message: str, *, modeled: bool = True, **fields: Any) -> None:
        super().__init__(message)
        self.name, self.modeled, self.fields = name, modeled, {"Message": message, **fields}


def validation_error(message: str) -> ServiceError:
    return ServiceError("ValidationError", 400, message)


def endpoint_not_found(name: str, account_id: str) -> ServiceError:
    """Also what an endpoint says before it is in service."""
    return validation_error(f"Endpoint {name} of account {account_id} not found.")


def model_error(status: int, message: str, log_stream_arn: str) -> ServiceError:
    """The container answered with an error; 0 if it did not answer at all."""
    side = "client" if 400 <= status < 500 else "server"
    return ServiceError(
        "ModelError",
        424,
        f'Received {side} error ({status}) from primary with message "{message}".',
        OriginalStatusCode=status,
        OriginalMessage=message,
        LogStreamArn=log_stream_arn,
    )


def stream_broken(message: str) -> StreamError:
    """The connection between the service and the container was lost."""
    return StreamError("ModelStreamError", message, ErrorCode="StreamBroken")


def out_of_time(limit_s: float) -> StreamError:
    return StreamError(
        "ModelStreamError",
        f"The model did not finish within {limit_s:g} s.",
        ErrorCode="ModelInvocationTimeExceeded",
    )
