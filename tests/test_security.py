"""What docs/security.md says of tests, and its proxies, as written there, in front of the real routes."""

import json
import re
import shutil
import socket
import ssl
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from scripts.local_endpoint.certificate import write_certificate
from scripts.running import free_port
from serve_app.access.keys import dump_key, new_key
from serve_app.engine.fake import FakeEngine
from serve_app.metrics import ACTIVE_REQUESTS
from tests.fakes import CountingRecorder, app_over
from tests.serving import served

ROOT = Path(__file__).resolve().parent.parent
DOCUMENT = (ROOT / "docs" / "security.md").read_text()
UPSTREAM = "127.0.0.1:8000"
STREAM = "/invocations-bidirectional-stream"
KEY = new_key()
HANG_S = 20


def test_every_test_that_is_named_is_there():
    named = set(re.findall(r"`(tests/[^`]*)`", DOCUMENT))
    assert len(named) > 8
    assert [path for path in named if not (ROOT / path).is_file()] == []


def recipe(beginning: str) -> str:
    """The block of the document that begins so."""
    (block,) = (found for found in re.findall(r"```\w*\n(.*?)```", DOCUMENT, re.DOTALL) if found.startswith(beginning))
    assert UPSTREAM in block
    return block


def nginx(folder: Path, upstream: str, port: int) -> list[str]:
    certificate, key = write_certificate(folder)
    changes = {
        UPSTREAM: upstream,
        "listen 443 ssl": f"listen 127.0.0.1:{port} ssl",
        "/etc/ssl/speech.pem": str(certificate),
        "/etc/ssl/speech.key": str(key),
    }
    block = recipe("map ")
    for before, after in changes.items():
        assert before in block
        block = block.replace(before, after)
    temporary = "".join(
        f"{kind}_temp_path {folder}/{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    config = folder / "nginx.conf"
    config.write_text(
        f"daemon off; pid {folder}/pid; error_log stderr; events {{}}\nhttp {{ access_log off; {temporary}\n{block} }}"
    )
    return ["nginx", "-p", str(folder), "-c", str(config)]


def caddy(folder: Path, upstream: str, port: int) -> list[str]:
    certificate, key = write_certificate(folder)
    address = "speech.example.com {"
    block = recipe(address).replace(UPSTREAM, upstream)
    block = block.replace(address, f"https://127.0.0.1:{port} {{\ntls {certificate} {key}\n")
    config = folder / "Caddyfile"
    config.write_text(f"{{\nadmin off\nauto_https disable_redirects\nstorage file_system {folder}\n}}\n{block}")
    return ["caddy", "run", "--adapter", "caddyfile", "--config", str(config)]


@contextmanager
def proxied(command_of: Callable[[Path, str, int], list[str]], folder: Path, upstream: str) -> Iterator[str]:
    """Its address, host and port, once it listens."""
    port = free_port()
    command = command_of(folder, upstream, port)
    environment = {"PATH": "/usr/sbin:/usr/bin:/bin", "HOME": str(folder)}
    process = subprocess.Popen(command, env=environment, stderr=(folder / "stderr").open("wb"))
    try:
        trusting = ssl.create_default_context(cafile=folder / "certificate.pem")
        transport = httpx.HTTPTransport(verify=trusting, retries=8)  # of the connection, with growing pauses
        with httpx.Client(transport=transport) as client:
            assert client.get(f"https://127.0.0.1:{port}/ping").status_code == 200, (folder / "stderr").read_text()
        yield f"127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(HANG_S)


def installed(proxy: Callable[[Path, str, int], list[str]]) -> None:
    """Skip the test where it is not."""
    if shutil.which(proxy.__name__, path="/usr/sbin:/usr/bin:/bin") is None:
        pytest.skip(f"{proxy.__name__} is not installed")


@pytest.mark.parametrize("proxy", [nginx, caddy])
def test_behind_the_documented_proxy_audio_streams_and_keys_and_origins_count(proxy, tmp_path):
    installed(proxy)
    (tmp_path / "keys").write_text(dump_key("alice", KEY))
    engine = FakeEngine(gated=True)
    bearer = {"authorization": f"Bearer {KEY}"}
    app = app_over(engine, access={"keys_file": tmp_path / "keys"})
    with served(app) as url, proxied(proxy, tmp_path, url.removeprefix("http://")) as address:
        trusting = ssl.create_default_context(cafile=tmp_path / "certificate.pem")

        def open_session(**how):
            return connect(f"wss://{address}{STREAM}", ssl=trusting, **how)

        with httpx.Client(base_url=f"https://{address}", headers=bearer, verify=trusting, timeout=HANG_S) as client:
            body = {"text": "One is here. Two is there."}
            engine.allow(1)
            with client.stream("POST", "/invocations", json=body) as answer:
                first = next(chunks := answer.iter_bytes())
                assert first.startswith(b"RIFF")  # the second sentence does not exist yet
                engine.allow(100)
                assert sum(map(len, chunks)) > 0
        page = f"https://{address}"
        with open_session(origin=page, subprotocols=["speech", f"bearer.{KEY}"]) as session:
            assert session.subprotocol == "speech"
            session.send(json.dumps({"text": "Hello there."}))
            assert json.loads(session.recv(HANG_S))["type"] == "synthesis_start"
            assert isinstance(session.recv(HANG_S), bytes)
        for how, status in (({"origin": page}, 401), ({"origin": "https://evil.example"}, 403), ({}, 401)):
            with pytest.raises(InvalidStatus) as refused:
                open_session(**how)
            assert refused.value.response.status_code == status


@pytest.mark.parametrize("proxy", [nginx, caddy])
def test_a_body_that_never_ends_stays_in_the_documented_proxy(proxy, tmp_path):
    installed(proxy)
    recorder = CountingRecorder()
    with served(app_over(FakeEngine(), recorder)) as url, proxied(proxy, tmp_path, url.split("//")[1]) as address:
        trusting = ssl.create_default_context(cafile=tmp_path / "certificate.pem")
        host, port = address.split(":")
        with (
            socket.create_connection((host, int(port)), HANG_S) as plain,
            trusting.wrap_socket(plain, server_hostname=host) as slow,
        ):
            begun, rest = b'{"text":' + b" " * 100_000, b'"Hello there."}'  # more than a buffer on the way
            length = len(begun + rest)
            slow.sendall(f"POST /invocations HTTP/1.1\r\nHost: {address}\r\nContent-Length: {length}\r\n\r\n".encode())
            slow.sendall(begun)
            with httpx.Client(base_url=f"https://{address}", verify=trusting, timeout=HANG_S) as client:
                assert client.post("/invocations", json={"text": "Hello there."}).status_code == 200
            assert {in_hand for in_hand, _ in recorder.values[ACTIVE_REQUESTS.name]} == {1.0, 0.0}
            slow.sendall(rest)
            assert slow.recv(64).startswith(b"HTTP/1.1 200")


def test_the_documented_nginx_bounds_what_one_address_has_open(tmp_path):
    installed(nginx)
    with (
        served(app_over(FakeEngine())) as url,
        proxied(nginx, tmp_path, url.split("//")[1]) as address,
        ExitStack() as opened,
    ):
        trusting = ssl.create_default_context(cafile=tmp_path / "certificate.pem")
        for _ in range(50):
            opened.enter_context(connect(f"wss://{address}{STREAM}", ssl=trusting))
        with pytest.raises(InvalidStatus) as refused:
            connect(f"wss://{address}{STREAM}", ssl=trusting)
        assert refused.value.response.status_code == 503
