"""One real server for the client's tests: the product's routes over a fake engine, in a process of its own."""

from collections.abc import Iterator

import pytest

from scripts.running import bare_running


@pytest.fixture(scope="session")
def server() -> Iterator[str]:
    """Its address."""
    with bare_running() as running:
        yield running.http
