"""What can be chosen about a local endpoint, beside its containers and ports."""

from dataclasses import dataclass

from botocore.credentials import Credentials

ACCESS_KEY_ID, SECRET_ACCESS_KEY = "test", "test"
ACCOUNT_ID = "123456789012"
VARIANT = "AllTraffic"
MAX_BODY_BYTES = 6_291_456
"""Of a request; the service model's limit."""


@dataclass
class Limits:
    """How long the service waits, in seconds. The defaults are the real ones."""

    invocation_s: float = 60.0  # until a container has begun to answer; for InvokeEndpoint, until it has ended
    response_stream_s: float = 480.0
    connection_s: float = 1800.0  # of a bidirectional stream, after which callers have to come again


@dataclass
class Faults:
    """What goes wrong on bidirectional streams. May be changed while the endpoint runs."""

    cut_after_parts: int | None = None
    """The connection is lost after that many parts of one stream, without an end or a word."""

    demand_end_frame: bool = False
    """An input that ends without the signed empty frame is an error, as with several AWS services."""


def dummy_credentials() -> Credentials:
    """The one key pair that the endpoint knows."""
    return Credentials(ACCESS_KEY_ID, SECRET_ACCESS_KEY)
