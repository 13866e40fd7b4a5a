"""A real Chromium in front of the real routes over a fake engine, in one process: its tones have words and pitches."""

import asyncio
import re
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
import uvicorn
from selenium import webdriver
from selenium.common.exceptions import TimeoutException
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import WebDriverWait
from starlette.types import ASGIApp, Receive, Scope, Send

from serve_app.config import LimitSettings
from serve_app.engine.fake import FakeEngine
from serve_app.metrics import NoRecorder
from serve_app.server.gateway import create_app
from serve_app.server.speech import Speech
from serve_app.text.pieces import Piece, WordSpan

CHROMIUM, DRIVER = Path("/usr/bin/chromium"), Path("/usr/bin/chromedriver")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--force-color-profile=srgb",
    "--host-resolver-rules=MAP speech.test 127.0.0.1",
)
HANG_S = 20
"""Bounds a hang; nothing waits for it otherwise."""


class WordByWord:
    """A front end: one phoneme a character, one piece a sentence, and its words in their places."""

    async def pieces(self, sentence: str, lang: str) -> Sequence[Piece]:
        words = tuple(WordSpan(found.group(), *found.span()) for found in re.finditer(r"\S+", sentence[:510]))
        return [Piece(tuple(1 + ord(character) % 170 for character in sentence[:510]), words=words)]

    async def languages(self) -> tuple[str, ...]:
        return ("a",)


class Server:
    """A port that keeps answering with whatever application it was last told to use."""

    def __init__(self) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port: int = probe.getsockname()[1]
        self.use()
        self.start()

    def use(self, *, cost_s: float = 0.03, gated: bool = False, **limits: float) -> FakeEngine:
        """From now on, answer with the real routes over a new engine that takes `cost_s` for a sentence."""
        engine = FakeEngine(cost_s=cost_s, gated=gated)
        speech = Speech(WordByWord(), engine, NoRecorder(), lookahead_segments=2)
        self.app: ASGIApp = create_app(speech, LimitSettings.model_validate(limits), NoRecorder())
        return engine

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
        for _ in range(HANG_S * 10):
            with socket.socket() as probe:
                probe.settimeout(0.1)
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            self._thread.join(0.1)  # a server that failed to start ends its thread
        raise RuntimeError("the server did not start")

    def stop(self) -> None:
        self._server.should_exit = True
        self._thread.join(HANG_S)


class Page:
    """What a person sees and does, and what the browser's console says."""

    def __init__(self, browser: webdriver.Chrome, server: Server) -> None:
        self.browser, self.server = browser, server

    def open(self, host: str = "127.0.0.1") -> None:
        self.browser.get(f"http://{host}:{self.server.port}/")
        self.until(lambda: self("voice").text, "the voices")

    def __call__(self, element_id: str) -> WebElement:
        return self.browser.find_element(By.ID, element_id)

    def until(self, condition, what: str):
        """Wait until `condition()` is true, and return what it is."""
        try:
            return WebDriverWait(self.browser, HANG_S, poll_frequency=0.02).until(lambda _: condition())
        except TimeoutException:
            raise AssertionError(f"never came: {what}; the page says {self.state}; {self.console()}") from None

    @property
    def state(self) -> dict[str, str]:
        ids = ("status", "error", "heard", "buffered", "gaps", "streamed-first", "batch-first", "verdict")
        return {element_id: self(element_id).text for element_id in ids}

    def seconds(self, element_id: str) -> float:
        return float(self(element_id).text.split()[0])

    def write(self, text: str) -> None:
        """Replace the text."""
        self.run("document.getElementById('text').value = arguments[0]", text)

    def choose(self, element_id: str, value: str) -> None:
        """Choose in a list."""
        self(element_id).find_element(By.CSS_SELECTOR, f"option[value={value}]").click()

    def done(self) -> None:
        """Wait until the speech has been heard to its end."""
        self.until(lambda: self("status").text.startswith("Done"), "the end of the speech")

    def run(self, script: str, *arguments):
        return self.browser.execute_script(script, *arguments)

    def resolve(self, script: str, *arguments):
        """The value of an async function body that may import the page's modules."""
        wrapped = (
            "const given = [...arguments], done = given.pop(), work = async (...given) => {" + script + "};"
            "work(...given).then((value) => done({ value }), (error) => done({ error: String(error) }));"
        )
        answer = self.browser.execute_async_script(wrapped, *arguments)
        assert "error" not in answer, answer["error"]
        return answer["value"]

    def console(self) -> list[str]:
        """What the browser has complained about since the last call."""
        return [entry["message"] for entry in self.browser.get_log("browser")]


@pytest.fixture(scope="session")
def browser(tmp_path_factory) -> Iterator[webdriver.Chrome]:
    missing = [str(path) for path in (CHROMIUM, DRIVER) if not path.exists()]
    if missing:
        pytest.fail(f"{' and '.join(missing)} missing: apt-get install chromium chromium-driver", pytrace=False)
    options = webdriver.ChromeOptions()
    options.binary_location = str(CHROMIUM)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    for flag in FLAGS:
        options.add_argument(flag)
    options.add_argument(f"--user-data-dir={tmp_path_factory.mktemp('chromium')}")
    driver = webdriver.Chrome(options=options, service=Service(str(DRIVER)))
    driver.set_script_timeout(HANG_S)
    driver.set_window_size(1280, 1000)
    yield driver
    driver.quit()


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.stop()


@pytest.fixture
def page(browser: webdriver.Chrome, server: Server) -> Iterator[Page]:
    """The page, freshly loaded. A test that does not read the console must cause no complaint in it."""
    server.use()
    page = Page(browser, server)
    page.open()
    yield page
    assert page.console() == []
