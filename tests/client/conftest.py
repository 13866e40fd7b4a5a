"""One real server for the client's tests: the product's routes over a fake engine, in a process of its own, and the
same behind a local SageMaker endpoint.
"""

from collections.abc import Iterator

import pytest

from scripts.local_endpoint.endpoint import LocalEndpoint, endpoint_in_thread
from scripts.running import bare_running
from serve_app.client.session import SessionClient
from serve_app.client.websocket import WebSocketClient
from tests.client.endpoints import client_of


@pytest.fixture(scope="session")
def server() -> Iterator[str]:
    """Its address."""
    with bare_running() as running:
        yield running.http


@pytest.fixture(scope="session")
def endpoint(server: str) -> Iterator[LocalEndpoint]:
    with endpoint_in_thread(server) as running:
        yield running


@pytest.fixture(params=["websocket", "bidirectional"])
def client(request: pytest.FixtureRequest, server: str) -> SessionClient:
    """Every transport that goes both ways, to the same server."""
    if request.param == "websocket":
        return WebSocketClient(server)
    return client_of(request.getfixturevalue("endpoint"))
