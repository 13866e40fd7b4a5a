"""What one utterance cost and how it ended: one log line, one set of metrics and one span, written in one place."""

import json
import logging
import math
import time

from serve_app.access.callers import ANYBODY, Caller
from serve_app.audio.pcm import duration_s
from serve_app.metrics import AUDIO_S, GAP_S, RTF, TTFA_S, UTTERANCES, UTTERANCES_WITH_GAP, Recorder
from serve_app.server.speech import Spoken
from serve_app.tracing import Tracer

log = logging.getLogger(__name__)

HEARD_GAP_S = 0.02
"""Shorter silence within speech is no gap to a listener: no player holds less audio ready than this."""


class Account:
    """Opened when an utterance's turn comes, closed exactly once: when its last byte was sent, or none will be."""

    def __init__(
        self,
        recorder: Recorder,
        tracer: Tracer,
        *,
        route: str,
        session_id: str,
        request_id: str,
        streamed: bool = True,
        waited_s: float = 0.0,
        caller: Caller = ANYBODY,
    ) -> None:
        """
        Args:
            streamed: the listener hears what is ready. In an answer that comes as a whole neither first audio nor gaps
                are heard.
            waited_s: for its turn, in the session's inbox.
        """
        self._recorder, self._route = recorder, route
        self._ids = {**caller.ids, "session_id": session_id, "request_id": request_id}
        self._streamed = streamed
        self.span = tracer.begin("utterance", ago_s=waited_s, route=route, **self._ids)
        if waited_s:
            self.span.past("waiting", ago_s=waited_s, lasted_s=waited_s)
        self._begun_s = self._spoke_s = time.monotonic()
        self._ttfa_s: float | None = None
        self._segments = 0
        self._gap_s = 0.0
        self.audio_s = 0.0
        self.inference_s = 0.0

    @property
    def elapsed_s(self) -> float:
        """Wall seconds since its turn came."""
        return time.monotonic() - self._begun_s

    @property
    def rtf(self) -> float:
        """Inference seconds per second of audio; 0 without audio."""
        return self.inference_s / self.audio_s if self.audio_s else 0.0

    def spoke(self, spoken: Spoken) -> None:
        """More audio came out of the engine."""
        if not self.audio_s:
            self._spoke_s = time.monotonic()
        self._segments += spoken.segments
        self.audio_s += duration_s(len(spoken.samples), spoken.sample_rate)
        self.inference_s += spoken.inference_s
        if self._streamed and spoken.gap_s >= HEARD_GAP_S:
            self._gap_s += spoken.gap_s

    def sent(self, free_since_s: float = -math.inf) -> None:
        """Audio bytes were handed to the socket; the first ones of a streamed answer count as first audio.

        `free_since_s`: when, on the monotonic clock, the last byte of the utterance before was. Until then its listener
        did not wait for this one, whose turn may have come while a client that is slow to read took the rest.
        """
        if self._streamed and self._ttfa_s is None:
            now_s = time.monotonic()
            self._ttfa_s = now_s - max(self._begun_s, free_since_s)
            self._recorder.record(TTFA_S, self._ttfa_s, route=self._route)
            self.span.past("first audio", ago_s=now_s - self._spoke_s, lasted_s=now_s - self._spoke_s)

    def close(self, outcome: str, *, characters: int) -> None:
        """`complete`, `cancelled`, `disconnected` (also a client that takes nothing), or the code of the error."""
        self._recorder.record(UTTERANCES, route=self._route, outcome=outcome)
        if self.audio_s:
            self._recorder.record(AUDIO_S, self.audio_s, route=self._route)
            self._recorder.record(RTF, self.rtf, route=self._route)
        if self._gap_s:
            self._recorder.record(UTTERANCES_WITH_GAP, route=self._route)
            self._recorder.record(GAP_S, self._gap_s, route=self._route)
        line = {
            "event": "utterance",
            "route": self._route,
            **self._ids,
            "outcome": outcome,
            "characters": characters,
            "segments": self._segments,
            "ttfa_s": None if self._ttfa_s is None else round(self._ttfa_s, 4),
            "gap_s": round(self._gap_s, 3),
            "audio_s": round(self.audio_s, 3),
            "elapsed_s": round(self.elapsed_s, 4),
            "rtf": round(self.rtf, 4),
        }
        log.info("%s", json.dumps(line))
        self.span.set(outcome=outcome, characters=characters, segments=self._segments, audio_s=round(self.audio_s, 3))
        self.span.end()
