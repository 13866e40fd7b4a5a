"""The real model, loaded once for all tests that speak with it."""

from typing import TYPE_CHECKING

import pytest

from serve_app.config import EngineSettings, WeightsSettings

if TYPE_CHECKING:
    from serve_app.engine.model import Synthesizer


@pytest.fixture(scope="session")
def synthesizer() -> "Synthesizer":
    from serve_app.engine.model import Synthesizer

    return Synthesizer.load(EngineSettings(device="cpu"), WeightsSettings())
