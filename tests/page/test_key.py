"""The page of a server that asks for an API key."""

import pytest
from selenium.webdriver.common.keys import Keys

from serve_app.access.keys import dump_key, new_key

TEXT = "One two three. Four five."
KEY = new_key()


@pytest.fixture
def locked(page, server, tmp_path):
    """The page, loaded from a server that knows KEY. The console tells of refused requests, as it should."""
    (tmp_path / "keys").write_text(dump_key("alice", KEY))
    server.use(keys_file=tmp_path / "keys")
    page.run("sessionStorage.clear()")
    page.open()
    page.until(page("key").is_displayed, "the field for a key")
    yield page
    page.console()
    page.run("sessionStorage.clear()")


def hear(page, via):
    page.choose("via", via)
    page.write(TEXT)
    page("speak").click()


def write_key(page, key):
    page("key").clear()
    page("key").send_keys(key, Keys.TAB)


@pytest.mark.parametrize("via", ["socket", "events"])
def test_without_a_key_the_page_says_so_and_with_it_speaks_over_either_connection(locked, via):
    hear(locked, via)
    locked.until(lambda: "asks for an API key" in locked("error").text, "that a key is missing")
    write_key(locked, "kokoro_guessed")
    hear(locked, via)
    locked.until(lambda: "does not accept" in locked("error").text, "that the key is none of the server's")
    write_key(locked, KEY)
    locked.until(lambda: "af_nicole" not in locked("voice").text, "the server's own voices")
    hear(locked, via)
    locked.done()
    assert locked("error").text == ""


def test_the_key_stays_with_the_tab_and_nowhere_else(locked):
    write_key(locked, KEY)
    locked.open()
    hear(locked, "socket")
    locked.done()
    assert locked.run("return [localStorage.length, document.cookie, location.href.includes(arguments[0])]", KEY) == [
        0,
        "",
        False,
    ]


@pytest.mark.parametrize("key", ["two words", "schlüssel", "a,b"])
def test_what_is_no_key_is_as_none_and_breaks_nothing(locked, key):
    write_key(locked, key)
    hear(locked, "socket")
    locked.until(lambda: "asks for an API key" in locked("error").text, "that a key is missing")


def test_a_server_that_asks_for_none_shows_no_field(page):
    assert not page("key").is_displayed()
