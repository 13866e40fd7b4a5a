import pytest
from hypothesis import given
from hypothesis import strategies as st

from serve_app.access.origins import may_talk

ALLOWED = frozenset({"https://app.example.com", "http://127.0.0.1:3000"})


@pytest.mark.parametrize(
    ("origin", "host", "may"),
    [
        (None, "127.0.0.1:8000", True),  # no browser, or a page's own image or script
        (None, None, True),
        ("http://127.0.0.1:8000", "127.0.0.1:8000", True),
        ("http://LOCALHOST:8000", "localhost:8000", True),
        ("https://speech.example.com", "speech.example.com", True),  # a proxy took off the TLS
        ("https://speech.example.com", "speech.example.com:443", True),
        ("http://speech.example.com", "speech.example.com:80", True),
        ("http://[::1]:8000", "[::1]:8000", True),
        ("https://app.example.com", "speech.example.com", True),
        ("https://APP.example.com", "speech.example.com", True),
        ("http://127.0.0.1:3000", "127.0.0.1:8000", True),
        ("http://127.0.0.1:3001", "127.0.0.1:8000", False),  # another port is another page
        ("http://localhost:8000", "127.0.0.1:8000", False),
        ("http://speech.example.com", "speech.example.com:443", False),
        ("http://app.example.com", "speech.example.com", False),
        ("https://app.example.com.evil.example", "speech.example.com", False),
        ("https://evil.example/https://app.example.com", "speech.example.com", False),
        ("https://speech.example.com.evil.example", "speech.example.com", False),
        ("https://evil-speech.example.com", "speech.example.com", False),
        ("null", "127.0.0.1:8000", False),  # a file, a sandboxed frame
        ("", "", False),
        ("http://", "", True),  # never a browser's
        ("file://", "127.0.0.1:8000", False),
        ("chrome-extension://127.0.0.1:8000", "127.0.0.1:8000", False),
        ("http://127.0.0.1:8000", None, False),
    ],
)
def test_which_pages_may_talk_to_the_server(origin, host, may):
    assert may_talk(origin, host, ALLOWED) is may


@given(st.text(), st.text())
def test_an_origin_of_another_host_never_may(origin, host):
    if may_talk(origin, host, ALLOWED):
        authority = origin.lower().partition("://")[2]
        assert origin.lower() in ALLOWED or host.lower().removesuffix(":80").removesuffix(":443") == authority
