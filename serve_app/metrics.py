"""The table of metrics: names, units, buckets and every value that a tag may take; and the interface that records them.

The names are the product's: they stay when the place that stores them changes (Ray's metrics API in a replica, nothing
in a plain process or a test). docs/operate.md shows the table, configs/observability/dashboard.json is made from it.
"""

from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Literal, Protocol

from serve_app.errors import TABLE
from serve_app.version import VERSION

OTHER = "other"
"""What a value outside its tag's list is recorded as: whatever a client sends, the number of series is bounded."""


@dataclass(frozen=True, slots=True)
class Tag:
    """A label, and all its values."""

    name: str
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Metric:
    """One time series family. `buckets` are upper bounds in the metric's unit, histograms only."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    description: str
    tags: tuple[Tag, ...] = ()
    buckets: tuple[float, ...] = ()

    def bounded(self, tags: dict[str, str]) -> dict[str, str]:
        """The tags to record with: a value that is not in its list becomes `OTHER`."""
        return {tag.name: tags[tag.name] if tags.get(tag.name) in tag.values else OTHER for tag in self.tags}


def _installed(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "none"


ROUTE = Tag("route", ("/invocations", "/invocations-bidirectional-stream", "/v1/audio/speech"))
OUTCOME = Tag("outcome", ("complete", "cancelled", "disconnected", *(error.code for error in TABLE)))

TTFA_S = Metric(
    "kokoro_ttfa_seconds",
    "histogram",
    "An utterance's turn to its first audio byte handed to the socket, of answers that stream.",
    (ROUTE,),
    (0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 30.0),
)
RTF = Metric(
    "kokoro_rtf",
    "histogram",
    "Inference seconds per second of audio, by utterance.",
    (ROUTE,),
    (0.005, 0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.0),
)
UTTERANCES = Metric("kokoro_utterances_total", "counter", "Utterances that ended, by outcome.", (ROUTE, OUTCOME))
AUDIO_S = Metric("kokoro_audio_seconds_total", "counter", "Seconds of audio spoken.", (ROUTE,))
UTTERANCES_WITH_GAP = Metric(
    "kokoro_utterances_with_gap_total",
    "counter",
    "Utterances whose listener fell silent for want of audio although the text was there.",
    (ROUTE,),
)
GAP_S = Metric("kokoro_gap_seconds_total", "counter", "Seconds of silence in those gaps.", (ROUTE,))
REFUSALS = Metric(
    "kokoro_refusals_total",
    "counter",
    "Sessions, requests and messages turned away, by the bound that was reached.",
    (
        Tag(
            "reason",
            ("sessions", "requests", "inbox", "wait", "queue", "replicas", "draining", "key", "unauthorized", "origin"),
        ),
    ),
)
SENTENCES_IN_HAND = Metric(
    "kokoro_sentences_in_hand",
    "gauge",
    "Sentences that become phonemes or wait for it, on this replica of the Chunker.",
)
SESSIONS_ENDED = Metric(
    "kokoro_sessions_total",
    "counter",
    "WebSocket sessions that ended, by how.",
    (Tag("outcome", ("closed", "disconnected", "stalled", "idle_timeout", "shutdown", "unauthorized", "refused")),),
)
ACTIVE_SESSIONS = Metric("kokoro_active_sessions", "gauge", "Open WebSocket sessions on this replica.")
ACTIVE_REQUESTS = Metric("kokoro_active_requests", "gauge", "HTTP requests in hand on this replica.")
QUEUE_DEPTH = Metric("kokoro_queue_depth", "gauge", "Segments that wait for a forward pass on this replica.")
QUEUE_WAIT_S = Metric(
    "kokoro_queue_wait_seconds",
    "histogram",
    "A segment's wait for its forward pass, by whether its listener had something to hear meanwhile.",
    (Tag("listener", ("silent", "hearing")),),
    (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 2.0, 3.0, 5.0, 10.0, 30.0),
)
BATCH_SEGMENTS = Metric(
    "kokoro_batch_segments",
    "histogram",
    "Segments in one forward pass.",
    (),
    (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128),
)
FRAMES = Metric(
    "kokoro_frames_total",
    "counter",
    "Frames (25 ms) that the vocoder computed: of speech, and padding that fills a batch.",
    (Tag("content", ("speech", "padding")),),
)
BUSY_S = Metric("kokoro_busy_seconds_total", "counter", "Seconds that the model was at work.")
SEGMENTS_CANCELLED = Metric(
    "kokoro_segments_cancelled_total",
    "counter",
    "Segments whose listener left, while they waited or while they were spoken for nobody.",
    (Tag("stage", ("waiting", "running")),),
)
DROPPED_SYMBOLS = Metric("kokoro_dropped_symbols_total", "counter", "Phoneme symbols outside the model's vocabulary.")
GPU_MEMORY_BYTES = Metric(
    "kokoro_gpu_memory_bytes",
    "gauge",
    "Memory of the GPU: reserved by this replica, free for everybody, and in all. Only where there is a CUDA device.",
    (Tag("memory", ("reserved", "free", "total")),),
)
INFO = Metric(
    "kokoro_info",
    "gauge",
    "Always 1: what this replica speaks with.",
    (
        Tag("weights", ("packaged int8", "hub fp32", "folder", "s3")),
        Tag("device", ("cpu", "cuda")),
        Tag("version", (VERSION,)),
        Tag("torch", (_installed("torch"),)),
        Tag("ray", (_installed("ray"),)),
    ),
)

ALL = (
    TTFA_S,
    UTTERANCES_WITH_GAP,
    GAP_S,
    RTF,
    UTTERANCES,
    AUDIO_S,
    REFUSALS,
    ACTIVE_SESSIONS,
    ACTIVE_REQUESTS,
    SESSIONS_ENDED,
    SENTENCES_IN_HAND,
    QUEUE_DEPTH,
    QUEUE_WAIT_S,
    BATCH_SEGMENTS,
    FRAMES,
    BUSY_S,
    SEGMENTS_CANCELLED,
    DROPPED_SYMBOLS,
    GPU_MEMORY_BYTES,
    INFO,
)

THIS_INSTALLATION = {tag.name: tag.values[0] for tag in INFO.tags if len(tag.values) == 1}
"""The tags of INFO that are the same for every replica of this installation: versions."""


class Recorder(Protocol):
    """Counts, sets or observes one value of one metric; never raises, never blocks."""

    def record(self, metric: Metric, value: float = 1.0, /, **tags: str) -> None: ...


class NoRecorder:
    """Records nothing: plain processes and tests."""

    def record(self, metric: Metric, value: float = 1.0, /, **tags: str) -> None:
        return None


NO_RECORDER = NoRecorder()
