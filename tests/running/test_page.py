"""The page in a real browser over the running product: what a person meets who opens it."""

import base64
import os
from pathlib import Path

import pytest
from selenium.webdriver.common.by import By

from tests.browser import Page, open_browser


@pytest.fixture
def page(stack, tmp_path):
    with open_browser(tmp_path) as browser:
        page = Page(browser, stack.port)
        page.open()
        yield page
        assert page.console() == []


def test_the_page_speaks_its_sample_text_word_by_word_and_before_a_batch_would(page):
    """With PAGE_PICTURE=docs/page.png in the environment, the picture of it in the docs is renewed."""
    page.browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride", {"width": 1200, "height": 900, "deviceScaleFactor": 1.5, "mobile": False}
    )
    text = page("text").get_attribute("value").strip()
    page("speak").click()
    page.until(lambda: page.browser.find_elements(By.CSS_SELECTOR, ".word.now"), "a word in the light")
    page.until(lambda: page("verdict").text, "the comparison", within_s=300)
    shot = page.browser.execute_cdp_cmd("Page.captureScreenshot", {"captureBeyondViewport": True})
    if "PAGE_PICTURE" in os.environ:
        Path(os.environ["PAGE_PICTURE"]).write_bytes(base64.b64decode(shot["data"]))
    words = [mark.text for mark in page.browser.find_elements(By.CSS_SELECTOR, ".word")]
    assert " ".join(words).replace("“", "").replace("”", "") == text.replace("“", "").replace("”", "")
    assert page("transcript").text == text
    assert 0 < page.seconds("streamed-first") < page.seconds("batch-first")
    assert (page.seconds("heard") > 1, page("error").text) == (True, "")
