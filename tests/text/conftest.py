"""The phonemizers take seconds to load, so one set serves all tests of the text layer."""

from typing import Any

import pytest

from serve_app.config import TextSettings
from serve_app.text.phonemes import FrontEnd


@pytest.fixture(scope="session")
def front_end() -> FrontEnd:
    return FrontEnd(TextSettings())


@pytest.fixture(scope="session")
def tagger() -> Any:
    from serve_app.text.english import load_tagger

    return load_tagger()
