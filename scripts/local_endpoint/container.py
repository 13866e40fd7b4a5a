"""The container behind an endpoint: /ping, /invocations and the WebSocket, called as SageMaker calls them."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress

import httpx
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus

from scripts.local_endpoint.errors import ServiceError, model_error
from scripts.local_endpoint.settings import ACCOUNT_ID

BIDIRECTIONAL_PATH = "invocations-bidirectional-stream"
PING_INTERVAL_S, MISSED_PINGS = 60.0, 5
PING_TIMEOUT_S = 2.0
MAX_ORIGINAL_MESSAGE_BYTES = 2048
CLOSE_TIMEOUT_S = 5.0
POLL_INTERVAL_S = 0.2
TIMED_OUT = (
    "Your invocation timed out while waiting for a response from container primary. Review the latency metrics for "
    "each container in Amazon CloudWatch, resolve the issue, and try again."
)


class Container:
    """One container at `url`, known to callers as the endpoint `name`."""

    def __init__(self, name: str, url: str) -> None:
        self.name, self.url = name, url.rstrip("/")
        self._in_service = asyncio.Event()
        self._closing: set[asyncio.Task[None]] = set()
        # A connection a request: one kept open might be closed by the container just when it is used again.
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
        # How long to wait is each call's to say.
        self._http = httpx.AsyncClient(base_url=self.url, limits=limits, timeout=None, trust_env=False)

    @property
    def in_service(self) -> bool:
        return self._in_service.is_set()

    async def wait_until_in_service(self) -> None:
        """Return once /ping has answered 200, which it has to within 2 s."""
        while not self.in_service:
            try:
                response = await self._http.get("/ping", timeout=PING_TIMEOUT_S)
            except httpx.TransportError:
                pass
            else:
                if response.status_code == 200:
                    self._in_service.set()
                    return
            await asyncio.sleep(POLL_INTERVAL_S)

    @asynccontextmanager
    async def invoke(
        self, headers: Mapping[str, str], body: bytes, region: str, first_byte_s: float
    ) -> AsyncIterator[httpx.Response]:
        """POST /invocations; the answer's body is still to be read. Raises ServiceError for all but success."""
        request = self._http.build_request("POST", "/invocations", headers=headers, content=body)
        try:
            async with asyncio.timeout(first_byte_s):
                response = await self._http.send(request, stream=True)
        except TimeoutError as exc:
            raise self.failed(0, TIMED_OUT, region) from exc
        except httpx.TransportError as exc:
            raise self.failed(0, f"The container did not answer: {type(exc).__name__}", region) from exc
        try:
            if response.status_code >= 400:
                message = (await response.aread())[:MAX_ORIGINAL_MESSAGE_BYTES].decode(errors="replace")
                raise self.failed(response.status_code, message, region)
            yield response
        finally:
            await response.aclose()

    @asynccontextmanager
    async def connect(self, path: str, query: str, region: str) -> AsyncIterator[ClientConnection]:
        """The WebSocket at `path`, without a leading slash. Raises ServiceError if the container refuses it."""
        url = f"ws{self.url.removeprefix('http')}/{path}{'?' if query else ''}{query}"
        connecting = connect(
            url,
            proxy=None,
            compression=None,
            max_size=None,
            ping_interval=PING_INTERVAL_S,
            ping_timeout=PING_INTERVAL_S * MISSED_PINGS,
            close_timeout=CLOSE_TIMEOUT_S,
        )
        try:
            socket = await connecting
        except InvalidStatus as exc:
            # The container's own words stay behind, as they do at the real service.
            status = exc.response.status_code
            raise self.failed(status, "The container refused the WebSocket.", region) from exc
        except (OSError, InvalidHandshake, TimeoutError) as exc:
            raise self.failed(0, "The container opened no WebSocket.", region) from exc
        try:
            yield socket
        finally:
            # Shielded: whoever is cancelled because its caller is gone still owes the container a goodbye.
            closing = asyncio.create_task(_close(socket))
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)
            await asyncio.shield(closing)

    def failed(self, status: int, message: str, region: str) -> ServiceError:
        """The container's failure as callers see it."""
        logs = f"arn:aws:logs:{region}:{ACCOUNT_ID}:log-group:/aws/sagemaker/Endpoints/{self.name}"
        return model_error(status, message, logs)

    async def aclose(self) -> None:
        if self._closing:
            await asyncio.wait(self._closing)
        await self._http.aclose()


async def _close(socket: ClientConnection) -> None:
    """Close normally; what the container still sends is dropped, for unread it would hold up the closing handshake."""
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(socket.close())
        with suppress(ConnectionClosed):
            async for _ in socket:
                pass
