"""Refusals as exceptions."""

import pytest

from serve_app.client.errors import UnexpectedAnswer, error_of, refusal
from serve_app.errors import TABLE, SpeechError, TextTooLong


@pytest.mark.parametrize("kind", TABLE)
def test_every_code_of_the_table_is_its_exception_again(kind: type[SpeechError]) -> None:
    error = error_of(kind.code, "why", "r")
    assert type(error) is kind
    assert (error.message, error.request_id) == ("why", "r")


def test_an_error_body_is_read() -> None:
    error = refusal(413, b'{"error": "too long", "code": "text_too_long", "request_id": "r"}')
    assert type(error) is TextTooLong
    assert (error.message, error.request_id) == ("too long", "r")


@pytest.mark.parametrize(
    "body", [b"", b"<html>", b"[]", b'{"error": "x"}', b'{"error": 1, "code": "internal"}', b"\xff"]
)
def test_a_refusal_of_something_else_tells_its_status_and_nothing_of_its_page(body: bytes) -> None:
    error = refusal(502, body)
    assert type(error) is UnexpectedAnswer
    assert error.message == "the server answered with status 502"
