"""A real Chromium in front of the real routes over a fake engine, in one process: its tones have words and pitches."""

import asyncio
import base64
import re
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
import uvicorn
from selenium import webdriver
from starlette.types import ASGIApp, Receive, Scope, Send

from serve_app.config import AccessSettings, LimitSettings
from serve_app.engine.fake import FakeEngine
from serve_app.metrics import NoRecorder
from serve_app.server.gateway import create_app
from serve_app.server.speech import Speech
from serve_app.text.pieces import Piece, WordSpan
from tests.browser import Page, open_browser


class WordByWord:
    """A front end: one phoneme a character, one piece a sentence, and its words in their places."""

    async def pieces(self, sentence: str, lang: str) -> Sequence[Piece]:
        words = tuple(WordSpan(found.group(), *found.span()) for found in re.finditer(r"\S+", sentence[:510]))
        return [Piece(tuple(1 + ord(character) % 170 for character in sentence[:510]), words=words)]

    async def languages(self) -> tuple[str, ...]:
        return ("a",)


class Port:
    """A port that keeps answering with `app`, whichever that is at the time."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port: int = probe.getsockname()[1]
        self.start()

    def call(self, function: Callable[..., object], *arguments: object) -> None:
        """Call it in the server's event loop, where a gated engine wants to be told."""
        self._loop.call_soon_threadsafe(function, *arguments)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._loop = asyncio.get_running_loop()
        await self.app(scope, receive, send)

    def start(self) -> None:
        config = uvicorn.Config(
            self._answer, interface="asgi3", port=self.port, log_level="critical", timeout_graceful_shutdown=1
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, daemon=True)
        self._thread.start()
        for _ in range(300):
            with socket.socket() as probe:
                probe.settimeout(0.1)
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            self._thread.join(0.1)  # a server that failed to start ends its thread
        raise RuntimeError("the server did not start")

    def stop(self) -> None:
        self._server.should_exit = True
        self._thread.join(30)


class Server(Port):
    """A speech server, which has the page too."""

    def __init__(self) -> None:
        self.use()
        super().__init__(self.app)

    def use(
        self, *, cost_s: float = 0.03, gated: bool = False, keys_file: Path | None = None, **limits: float
    ) -> FakeEngine:
        """From now on, answer with the real routes over a new engine that takes `cost_s` for a sentence."""
        engine = FakeEngine(cost_s=cost_s, gated=gated)
        speech = Speech(WordByWord(), engine, NoRecorder(), lookahead_segments=2)
        access = AccessSettings(keys_file=keys_file)
        self.app: ASGIApp = create_app(speech, LimitSettings.model_validate(limits), NoRecorder(), access=access)
        return engine


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[webdriver.Chrome]:
    with open_browser(tmp_path_factory.mktemp("chromium")) as browser:
        yield browser


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.stop()


@pytest.fixture
def page(browser: webdriver.Chrome, server: Server) -> Iterator[Page]:
    """The page, freshly loaded. A test that does not read the console must cause no complaint in it."""
    server.use()
    page = Page(browser, server.port)
    page.open()
    yield page
    assert page.console() == []


HELPERS = """
    const bytes = (base64) => Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));
    const slices = (all, sizes) => {
        const out = [];
        for (let at = 0, turn = 0; at < all.length; turn += 1) {
            const size = sizes[turn % sizes.length];
            out.push(all.subarray(at, at + size));
            at += size;
        }
        return out;
    };
    const answered = async (response) => {
        const { readAnswer } = await import('/page/answer.js');
        const got = { samples: [], words: [] };
        try {
            for await (const event of readAnswer(response)) {
                if (event.type === 'start') got.rate = event.sampleRate;
                if (event.type === 'audio') got.samples.push(...event.samples);
                if (event.type === 'words') got.words.push(...event.words);
                if (event.type === 'end') got.ended = true;
            }
        } catch (error) {
            got.error = error.message;
        }
        return got;
    };
    const response = (parts, type, status = 200) => new Response(new ReadableStream({
        start(controller) {
            for (const part of parts) controller.enqueue(part);
            controller.close();
        },
    }), { status, headers: { 'content-type': type } });
"""


@pytest.fixture(scope="module")
def modules(browser, server):
    """Run an async function body; it sees HELPERS, and its arguments as `given`, bytes as base64."""
    server.use()
    page = Page(browser, server.port)
    page.open()

    def run(script, *arguments):
        return page.resolve(
            HELPERS + script, *(base64.b64encode(a).decode() if isinstance(a, bytes) else a for a in arguments)
        )

    yield run
    assert page.console() == []
