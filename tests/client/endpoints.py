"""Clients of local SageMaker endpoints, and endpoints whose container does as a test tells it."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

import boto3
import pytest
from websockets.asyncio.server import ServerConnection, serve
from websockets.http11 import Request, Response

from scripts.local_endpoint.bidirectional import Account
from scripts.local_endpoint.endpoint import LocalEndpoint, local_endpoint
from serve_app.client.bidirectional import BidirectionalClient
from tests.client.hostile import HANG_S


def client_of(endpoint: LocalEndpoint, name: str = "tts", **changes: Any) -> BidirectionalClient:
    """A client that trusts the endpoint and is let in."""
    keys = {"access_key": endpoint.credentials.access_key, "secret_key": endpoint.credentials.secret_key, **changes}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SSL_CERT_FILE", str(endpoint.certificate))
        return BidirectionalClient(
            name,
            region="eu-west-1",
            endpoint_uri=endpoint.h2_url,
            boto_session=boto3.Session(
                aws_access_key_id=keys["access_key"], aws_secret_access_key=keys["secret_key"], region_name="eu-west-1"
            ),
        )


@asynccontextmanager
async def socket_server(
    serve_one: Callable[[ServerConnection], Awaitable[None]], *, refuse_with: HTTPStatus | None = None
) -> AsyncIterator[str]:
    """A container whose WebSocket does as `serve_one` says, or is refused."""

    def answer(socket: ServerConnection, request: Request) -> Response | None:
        if request.path == "/ping":
            return socket.respond(HTTPStatus.OK, "")
        return None if refuse_with is None else socket.respond(refuse_with, "")

    async with serve(serve_one, "127.0.0.1", 0, process_request=answer) as running, asyncio.timeout(HANG_S):
        yield f"http://127.0.0.1:{next(iter(running.sockets)).getsockname()[1]}"


@dataclass
class Deployed:
    """A local endpoint, its client, and the account of each of its streams that has ended."""

    endpoint: LocalEndpoint
    client: BidirectionalClient
    accounts: asyncio.Queue[Account]


@asynccontextmanager
async def deployed(container: str, **options: Any) -> AsyncIterator[Deployed]:
    """The container behind a local endpoint on this loop."""
    accounts: asyncio.Queue[Account] = asyncio.Queue()
    async with local_endpoint(container, ended=accounts.put_nowait, **options) as endpoint, asyncio.timeout(HANG_S):
        yield Deployed(endpoint, client_of(endpoint), accounts)
