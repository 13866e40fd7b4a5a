import asyncio
import json
from importlib.resources import files
from urllib.parse import unquote

import pytest

from serve_app.engine.fake import FakeEngine
from serve_app.server.page import MEDIA_TYPES
from tests.asgi import http
from tests.fakes import app_over

FILES = {entry.name: entry.read_bytes() for entry in (files("serve_app") / "page").iterdir()}


def get(path, *, method="GET", **headers):
    """Status, headers and body of a request for the page or a part of it."""

    async def scenario():
        raw = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
        async with http(app_over(FakeEngine()), unquote(path), b"", method=method, headers=raw) as exchange:
            return await exchange.response()

    return asyncio.run(scenario())


@pytest.mark.parametrize(("path", "name"), [("/", "index.html"), *((f"/page/{name}", name) for name in FILES)])
def test_every_file_of_the_page_is_served_as_what_it_is(path, name):
    status, headers, body = get(path)
    assert (status, body) == (200, FILES[name])
    assert headers["content-type"] == MEDIA_TYPES[name[name.rindex(".") :]] + (
        "" if name.endswith(".svg") else "; charset=utf-8"
    )
    assert headers["content-length"] == str(len(body))


def test_the_page_may_load_nothing_from_elsewhere():
    _, headers, body = get("/")
    assert headers["content-security-policy"].startswith("default-src 'self';")
    assert headers["x-content-type-options"] == "nosniff"
    assert b"://" not in body


def test_a_browser_asks_again_and_gets_nothing_twice():
    _, headers, _ = get("/page/player.js")
    assert headers["cache-control"] == "no-cache"
    tag = headers["etag"]
    for known in (tag, f"W/{tag}", f'"old", {tag}', "*"):
        status, again, body = get("/page/player.js", if_none_match=known)
        assert (status, again["etag"], body) == (304, tag, b"")
    assert get("/page/player.js", if_none_match='"old"')[0] == 200
    assert get("/")[1]["etag"] != tag


def test_head_tells_the_length_without_the_content():
    status, headers, body = get("/", method="HEAD")
    assert (status, headers["content-length"], body) == (200, str(len(FILES["index.html"])), b"")


@pytest.mark.parametrize(
    "path",
    [
        "/page/",
        "/page/nothing.js",
        "/page/../config.py",
        "/page/..%2fconfig.py",
        "/page/%2e%2e/config.py",
        "/page//etc/passwd",
        "/page/index.html/../../errors.py",
        "/page/..\\config.py",
    ],
)
def test_no_other_file_can_be_had(path):
    status, _, body = get(path)
    assert status == 404
    assert json.loads(body)["code"] == "bad_request"


def test_the_page_is_only_read():
    assert get("/", method="POST")[0] == 405
