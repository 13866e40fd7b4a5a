"""What docs/security.md says of the running product: who can reach it, and what those are told who may not."""

import json
import stat
from contextlib import suppress
from ipaddress import IPv6Address, ip_address
from pathlib import Path

import grpc
import httpx
import psutil
import pytest
from ray.serve.generated.serve_pb2 import ASGIRequest
from ray.serve.generated.serve_pb2_grpc import ASGIServiceStub
from websockets.exceptions import ConnectionClosedError, InvalidStatus
from websockets.frames import CloseCode
from websockets.sync.client import connect

from serve_app.access.keys import SUBPROTOCOL

HANG_S = 30
DASHBOARD, HAPROXY_METRICS, HAPROXY_STATISTICS = 8265, 9101, 8404
ELSEWHERE = "https://evil.example"
REPLICAS = 3  # one of each deployment


@pytest.fixture(scope="module")
def processes(stack):
    """Those of the stack. HAProxy is one of them once it listens, which it does before the stack is ready."""
    root = psutil.Process(stack.process.pid)
    return [root, *root.children(recursive=True)]


@pytest.fixture(scope="module")
def listeners(processes):
    """(name of the process, address, port) of every socket that takes connections."""
    return [
        (process.name(), socket.laddr.ip, socket.laddr.port)
        for process in processes
        for socket in process.net_connections("tcp")
        if socket.status == psutil.CONN_LISTEN
    ]


def is_loopback(address):
    address = ip_address(address)
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return (mapped or address).is_loopback


def test_every_port_of_the_product_and_of_ray_is_on_loopback(stack, listeners):
    assert {stack.port, DASHBOARD, HAPROXY_METRICS, HAPROXY_STATISTICS} <= {port for _, _, port in listeners}
    assert [listener for listener in listeners if not is_loopback(listener[1])] == []


def test_the_socket_that_steers_haproxy_is_its_owners(processes):
    (haproxy,) = (process for process in processes if process.name() == "haproxy")
    command = haproxy.cmdline()
    socket = Path(command[command.index("-f") + 1]).with_name("admin.sock")
    assert stat.S_IMODE(socket.stat().st_mode) == 0o600


def test_what_replicas_tell_each_other_takes_the_token(listeners):
    ports = [port for name, _, port in listeners if name.startswith("ray::ServeRepli")]
    refusals = []
    for port in ports:
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel, pytest.raises(grpc.RpcError) as refused:
            ASGIServiceStub(channel).HandleRequest(ASGIRequest(), timeout=HANG_S)
        refusals.append(refused.value.code())
    # One port of each replica is for these calls; the others are for Ray's own, which do not know them, and for HTTP.
    assert refusals.count(grpc.StatusCode.UNAUTHENTICATED) == REPLICAS
    assert set(refusals) <= {
        grpc.StatusCode.UNAUTHENTICATED,
        grpc.StatusCode.UNIMPLEMENTED,
        grpc.StatusCode.UNAVAILABLE,
    }


def test_the_dashboard_which_can_start_programs_takes_the_token():
    assert httpx.get(f"http://127.0.0.1:{DASHBOARD}/api/jobs/", timeout=HANG_S).status_code == 401


def test_a_page_of_another_host_is_refused_through_the_proxy_before_the_upgrade(stack):
    with pytest.raises(InvalidStatus) as refused:
        connect(stack.websocket, origin=ELSEWHERE)
    assert refused.value.response.status_code == 403
    assert json.loads(refused.value.response.body)["code"] == "forbidden_origin"
    told = httpx.post(f"{stack.http}/invocations", json={"text": "Hello."}, headers={"origin": ELSEWHERE})
    assert told.status_code == 403
    with connect(stack.websocket, origin=stack.http) as session:
        session.send(json.dumps({"type": "ping"}))
        assert json.loads(session.recv(HANG_S)) == {"type": "pong"}


def test_the_proxy_passes_on_a_browsers_key_and_the_server_does_not_send_it_back(stack):
    with connect(stack.websocket, subprotocols=[SUBPROTOCOL, "bearer.not-asked-for"]) as session:
        assert session.subprotocol == SUBPROTOCOL
        assert "not-asked-for" not in str(session.response.headers)


def test_a_message_far_too_large_closes_its_connection_before_it_is_there_and_nothing_is_inflated(stack):
    for _ in range(1000):  # for a moment after a start Ray's own proxy is in between, which knows no such bound
        with connect(stack.websocket, compression="deflate") as session:
            if "Sec-WebSocket-Extensions" not in session.response.headers:
                with suppress(ConnectionClosedError):  # in the middle, or not
                    session.send("x" * 20_000_000)
                with pytest.raises(ConnectionClosedError) as closed:
                    session.recv(HANG_S)
                break
    assert closed.value.rcvd.code == CloseCode.MESSAGE_TOO_BIG
