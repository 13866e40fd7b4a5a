"""Addresses of routes, and when a refused request is made again."""

import pytest

from serve_app.client.address import authorization, http_url, is_loopback, socket_url, wait_before_retry_s


@pytest.mark.parametrize(
    ("server", "http", "socket"),
    [
        ("http://127.0.0.1:8000", "http://127.0.0.1:8000/x", "ws://127.0.0.1:8000/x"),
        ("https://speech.example/", "https://speech.example/x", "wss://speech.example/x"),
        ("ws://[::1]:8000/prefix/", "http://[::1]:8000/prefix/x", "ws://[::1]:8000/prefix/x"),
        ("WSS://speech.example", "https://speech.example/x", "wss://speech.example/x"),
    ],
)
def test_one_address_serves_both_kinds_of_routes(server: str, http: str, socket: str) -> None:
    assert http_url(server, "/x") == http
    assert socket_url(server, "/x") == socket


@pytest.mark.parametrize("server", ["", "127.0.0.1:8000", "localhost", "ftp://x", "http://", "http://x:port"])
def test_what_is_no_address_is_refused(server: str) -> None:
    with pytest.raises(ValueError):
        http_url(server, "/x")


def test_a_key_is_a_header_and_what_no_header_can_carry_is_refused_without_repeating_it() -> None:
    assert authorization(None) == {}
    assert authorization("kokoro_k-1") == {"Authorization": "Bearer kokoro_k-1"}
    for key in ("", "two words", "line\n", "schlüssel"):
        with pytest.raises(ValueError) as refused:
            authorization(key)
        assert not key or key not in str(refused.value)


def test_this_machine_is_known_by_name_and_by_number() -> None:
    assert all(map(is_loopback, ["http://localhost:1/", "ws://127.8.9.1/", "http://[::1]:8000/x"]))
    assert not any(map(is_loopback, ["http://10.0.0.1/", "http://localhost.example/", "http://[fe80::1]/"]))


@pytest.mark.parametrize(
    ("attempt", "status", "retry_after", "wait_s"),
    [
        (1, 503, "1", 1.0),
        (2, 503, "0", 0.0),
        (3, 503, "1", None),
        (1, 503, None, None),
        (1, 503, "11", None),
        (1, 503, "9" * 400, None),
        (1, 503, "-1", None),
        (1, 503, "\u0663", None),
        (1, 503, "Wed, 21 Oct 2026 07:28:00 GMT", None),
        (1, 429, "1", None),
        (1, 500, "1", None),
    ],
)
def test_only_a_503_with_a_short_pause_is_tried_again(
    attempt: int, status: int, retry_after: str | None, wait_s: float | None
) -> None:
    assert wait_before_retry_s(attempt, status, retry_after) == wait_s
