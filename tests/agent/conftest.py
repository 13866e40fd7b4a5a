"""Tests that are coroutines run under asyncio, through anyio's plugin."""

import pytest


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"
