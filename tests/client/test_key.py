"""A server that asks for an API key, and every way to bring one."""

import asyncio
from collections.abc import Iterator
from contextlib import aclosing
from pathlib import Path

import pytest

from serve_app.access.keys import dump_key, new_key
from serve_app.client import say
from serve_app.client.http import HttpClient
from serve_app.client.say import KEY, open_client
from serve_app.client.websocket import WebSocketClient
from serve_app.engine.fake import FakeEngine
from serve_app.errors import Unauthorized
from tests.client.hostile import collected, joined
from tests.fakes import app_over
from tests.serving import served

TEXT = "Hello there. How are you?"
ALICES = new_key()
TRANSPORTS = ("ws", "http", "sse")


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server that knows ALICES key."""
    file = tmp_path_factory.mktemp("access") / "keys"
    file.write_text(dump_key("alice", ALICES))
    with served(app_over(FakeEngine(), access={"keys_file": file})) as url:
        yield url


def ask(server: str, transport: str, key: str | None) -> bytes:
    async def scenario() -> bytes:
        async with aclosing(open_client(server, transport, key)) as client:
            return joined(await collected(client.synthesize(TEXT)))

    return asyncio.run(scenario())


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_client_with_a_key_is_answered_and_one_without_is_told_what_is_missing(locked: str, transport: str) -> None:
    assert ask(locked, transport, ALICES)
    for key in (None, new_key()):
        with pytest.raises(Unauthorized, match="API key"):
            ask(locked, transport, key)


def test_a_key_that_no_header_can_carry_is_refused_when_a_client_is_made() -> None:
    with pytest.raises(ValueError, match="API key"):
        WebSocketClient("http://127.0.0.1:8000", "two words")
    with pytest.raises(ValueError, match="API key"):
        HttpClient("http://127.0.0.1:8000", key="two words")


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_say_takes_its_key_from_the_environment(
    locked: str, transport: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    arguments = [TEXT, "--url", locked, "--transport", transport, "--output", str(tmp_path / "said.wav")]
    monkeypatch.delenv(KEY, raising=False)
    assert say.main(arguments) == say.FAILED
    assert "API key" in capfd.readouterr().err
    monkeypatch.setenv(KEY, ALICES)
    assert say.main(arguments) == 0
    told = capfd.readouterr()
    assert ALICES not in told.out + told.err
