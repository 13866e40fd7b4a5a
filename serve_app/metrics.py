"""Metric names, units and buckets, and the interface that records them.

The names are the product's: they stay when the place that stores them changes (Ray's metrics API in a replica, nothing
in a plain process or a test).
"""

from dataclasses import dataclass
from typing import Literal, Protocol


@dataclass(frozen=True, slots=True)
class Metric:
    """One time series family. `buckets` are upper bounds in the metric's unit, histograms only."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    description: str
    tags: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()


TTFA_S = Metric(
    "kokoro_ttfa_seconds",
    "histogram",
    "Request accepted to first audio byte handed to the socket.",
    ("route",),
    (0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 30.0),
)
RTF = Metric(
    "kokoro_rtf",
    "histogram",
    "Inference seconds per second of audio, by utterance.",
    ("route",),
    (0.005, 0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.0),
)
UTTERANCES = Metric("kokoro_utterances_total", "counter", "Utterances that ended, by outcome.", ("route", "outcome"))
AUDIO_S = Metric("kokoro_audio_seconds_total", "counter", "Seconds of audio sent.", ("route",))
SESSIONS_ENDED = Metric("kokoro_sessions_total", "counter", "WebSocket sessions that ended, by how.", ("outcome",))
ACTIVE_SESSIONS = Metric("kokoro_active_sessions", "gauge", "Open WebSocket sessions on this replica.")
QUEUE_DEPTH = Metric("kokoro_queue_depth", "gauge", "Segments that wait for a forward pass on this replica.")
DROPPED_SYMBOLS = Metric("kokoro_dropped_symbols_total", "counter", "Phoneme symbols outside the model's vocabulary.")

ALL = (TTFA_S, RTF, UTTERANCES, AUDIO_S, SESSIONS_ENDED, ACTIVE_SESSIONS, QUEUE_DEPTH, DROPPED_SYMBOLS)


class Recorder(Protocol):
    """Counts, sets or observes one value of one metric; never raises, never blocks."""

    def record(self, metric: Metric, value: float = 1.0, /, **tags: str) -> None: ...


class NoRecorder:
    """Records nothing: plain processes and tests."""

    def record(self, metric: Metric, value: float = 1.0, /, **tags: str) -> None:
        return None
