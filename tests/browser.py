"""A real Chromium, and the page as a person sees it."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from selenium import webdriver
from selenium.common.exceptions import TimeoutException
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import WebDriverWait

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
HANG_S = 120
"""Bounds a hang; nothing waits for it otherwise."""


@contextmanager
def open_browser(profile: Path) -> Iterator[webdriver.Chrome]:
    """Chromium without a screen; its sound is rendered, then thrown away. `profile`: an empty folder for it."""
    missing = [str(path) for path in (CHROMIUM, DRIVER) if not path.exists()]
    if missing:
        pytest.fail(f"{' and '.join(missing)} missing: apt-get install chromium chromium-driver", pytrace=False)
    options = webdriver.ChromeOptions()
    options.binary_location = str(CHROMIUM)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    for flag in (*FLAGS, f"--user-data-dir={profile}"):
        options.add_argument(flag)
    driver = webdriver.Chrome(options=options, service=Service(str(DRIVER)))
    try:
        driver.set_script_timeout(HANG_S)
        driver.set_window_size(1280, 1000)
        yield driver
    finally:
        driver.quit()


class Page:
    """What a person sees and does, and what the browser's console says."""

    def __init__(self, browser: webdriver.Chrome, port: int) -> None:
        self.browser, self.port = browser, port

    def open(self, host: str = "127.0.0.1") -> None:
        self.browser.get(f"http://{host}:{self.port}/")
        self.until(lambda: self("voice").text, "the voices")

    def turn_to(self, half: str) -> None:
        """Choose what the page does: `speak` a text, or `talk` to the agent."""
        self(f"half-{half}").find_element(By.XPATH, "..").click()

    def __call__(self, element_id: str) -> WebElement:
        return self.browser.find_element(By.ID, element_id)

    def until(self, condition, what: str, within_s: float = HANG_S):
        """Wait until `condition()` is true, and return what it is; the time only bounds a hang."""
        try:
            return WebDriverWait(self.browser, within_s, poll_frequency=0.02).until(lambda _: condition())
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
