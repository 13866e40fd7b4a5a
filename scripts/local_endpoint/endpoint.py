"""A local SageMaker Runtime endpoint inside a test, in front of any container that listens on a port.

    async with local_endpoint("http://127.0.0.1:8000") as endpoint:
        endpoint.http_url     http://127.0.0.1:PORT, boto3's endpoint_url
        endpoint.h2_url       https://localhost:PORT, the HTTP/2 client's endpoint_uri
        endpoint.certificate  what SSL_CERT_FILE has to name before the HTTP/2 client's transport is made
        endpoint.credentials  .access_key and .secret_key, the only pair that is let in
        endpoint.faults       what goes wrong; see `settings.Faults`
        endpoint.limits       how long it waits; see `settings.Limits`

Callers name the endpoint "tts". It lives on the loop that enters it: blocking clients such as boto3 belong into
`asyncio.to_thread`. `endpoint_in_thread` gives the same to code without a loop. To hear how a bidirectional stream
ended (parts both ways, whether the signed empty end frame came, the error sent) pass `ended=queue.put_nowait`.
"""

import asyncio
import socket
import ssl
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvicorn
from anyio.from_thread import start_blocking_portal
from botocore.credentials import Credentials

from scripts.local_endpoint.bidirectional import Account, Bidirectional
from scripts.local_endpoint.certificate import tls_context, write_certificate
from scripts.local_endpoint.container import Container
from scripts.local_endpoint.http1 import Http1
from scripts.local_endpoint.http2 import Connection
from scripts.local_endpoint.routes import Routes
from scripts.local_endpoint.settings import Faults, Limits, dummy_credentials

HOST = "127.0.0.1"
DEFAULT_NAME = "tts"
IN_SERVICE_TIMEOUT_S = 480.0
"""What SageMaker gives a container until it answers /ping, unless told otherwise."""

TLS_CLOSE_TIMEOUT_S = 1.0


@dataclass(frozen=True)
class LocalEndpoint:
    """Where it listens, and what it goes by; see the module."""

    http_url: str
    h2_url: str
    certificate: Path
    credentials: Credentials
    limits: Limits
    faults: Faults


@asynccontextmanager
async def local_endpoint(
    container: str | Mapping[str, str],
    *,
    http_port: int = 0,
    h2_port: int = 0,
    https: bool = False,
    seed: int = 0,
    all_binary: bool = False,
    limits: Limits | None = None,
    faults: Faults | None = None,
    ended: Callable[[Account], object] = lambda account: None,
    in_service_timeout_s: float = IN_SERVICE_TIMEOUT_S,
) -> AsyncIterator[LocalEndpoint]:
    """Listen on loopback and wait until every container answers /ping with 200.

    Args:
        container: the URL of a container, or several by the name of their endpoint.
        https: the HTTP/1.1 side speaks TLS too, with the same certificate.
        seed: decides where response streams are cut.
        all_binary: every part of a bidirectional stream becomes a binary frame, whatever type its caller gave.
        ended: called with the account of each bidirectional stream that reached its container.

    Raises TimeoutError when a container does not come into service.
    """
    urls = {DEFAULT_NAME: container} if isinstance(container, str) else container
    limits, faults, credentials = limits or Limits(), faults or Faults(), dummy_credentials()
    async with AsyncExitStack() as stack:
        certificate, key = write_certificate(Path(stack.enter_context(tempfile.TemporaryDirectory())))
        containers = [Container(name, url) for name, url in urls.items()]
        for each in containers:
            stack.push_async_callback(each.aclose)
        routes = Routes(containers, credentials)
        bidirectional = Bidirectional(routes, limits, faults, all_binary=all_binary, ended=ended)
        bound_h2_port = await stack.enter_async_context(
            _http2_server(bidirectional, h2_port, tls_context(certificate, key, "h2"))
        )
        bound_http_port = await stack.enter_async_context(
            _http1_server(Http1(routes, limits, seed), http_port, (certificate, key) if https else None)
        )
        async with asyncio.timeout(in_service_timeout_s):
            await asyncio.gather(*(each.wait_until_in_service() for each in containers))
        http_url = f"https://localhost:{bound_http_port}" if https else f"http://{HOST}:{bound_http_port}"
        yield LocalEndpoint(http_url, f"https://localhost:{bound_h2_port}", certificate, credentials, limits, faults)


@contextmanager
def endpoint_in_thread(container: str | Mapping[str, str], **options: Any) -> Iterator[LocalEndpoint]:
    """`local_endpoint` with these options, on a loop in a thread of its own."""
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(local_endpoint(container, **options)) as endpoint,
    ):
        yield endpoint


@asynccontextmanager
async def _http2_server(bidirectional: Bidirectional, port: int, tls: ssl.SSLContext) -> AsyncIterator[int]:
    """The port it listens on. Leaving closes every connection."""
    open_connections: set[asyncio.Task[None]] = set()

    def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = asyncio.create_task(Connection(reader, writer, bidirectional.serve).run())
        open_connections.add(connection)
        connection.add_done_callback(open_connections.discard)

    server = await asyncio.start_server(
        connected, HOST, port, ssl=tls, ssl_shutdown_timeout=TLS_CLOSE_TIMEOUT_S, backlog=1024
    )
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for connection in open_connections:
            connection.cancel()
        await asyncio.gather(*open_connections, return_exceptions=True)


class _Guest(uvicorn.Server):
    """Signals are for the program that it runs in."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@asynccontextmanager
async def _http1_server(application: Http1, port: int, certificate: tuple[Path, Path] | None) -> AsyncIterator[int]:
    """The port it listens on. Leaving closes every connection."""
    with socket.create_server((HOST, port), backlog=1024) as listener:
        config = uvicorn.Config(
            application,
            log_config=None,
            access_log=False,
            lifespan="off",
            ws="none",
            server_header=False,
            ssl_certfile=certificate and certificate[0],
            ssl_keyfile=certificate and certificate[1],
        )
        server = _Guest(config)
        serving = asyncio.create_task(server.serve([listener]))
        try:
            yield listener.getsockname()[1]
        finally:
            server.should_exit = server.force_exit = True
            for connection in server.server_state.connections:
                # Not closed: TLS would wait for the other side to close as well, 30 s for an idle one in a pool.
                connection.transport.abort()
            await serving
