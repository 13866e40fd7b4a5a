"""What a session's listener has yet to hear, as far as the server can know. Time is an argument."""

import math

from serve_app.line import Line

_PUBLISHED = ((11, 1.0), (27, 1.6), (33, 1.8), (205, 11.0))
"""Phoneme tokens of English sentences, and seconds that they are heard within an answer, at speed 1."""


class Listener:
    """One session's: it plays what is handed on, piece after piece, from the moment it comes.

    It outlives utterances: between the sentences of one answer the listener still hears the one before, although each
    came as a message of its own. `now_s` is any one monotonic clock.
    """

    def __init__(self, session_id: str) -> None:
        self.session_id = session_id
        self._silent_from_s = -math.inf

    def left_s(self, now_s: float) -> float:
        """Seconds of audio that were handed on and not yet heard; 0 in silence."""
        return max(0.0, self._silent_from_s - now_s)

    def silent_s(self, now_s: float, since_s: float) -> float:
        """Seconds of silence so far, what was before `since_s` left out; 0 while something is heard."""
        return max(0.0, now_s - max(self._silent_from_s, since_s))

    def hear(self, audio_s: float, now_s: float) -> None:
        """More audio was handed on."""
        self._silent_from_s = max(self._silent_from_s, now_s) + audio_s

    def interrupt(self) -> None:
        """The listener has stopped playing, as after a barge-in."""
        self._silent_from_s = -math.inf


class Pace:
    """How long segments are heard, by their tokens, out of those spoken so far; before that, from a few sentences."""

    def __init__(self) -> None:
        self._line = Line()
        for tokens, audio_s in _PUBLISHED:
            self._line.record(tokens, audio_s)

    def expected_s(self, tokens: int, speed: float) -> float:
        """Seconds of audio of a segment that is still in the engine."""
        return self._line.at(tokens / speed)

    def record(self, tokens: int, speed: float, audio_s: float) -> None:
        """A segment has been spoken."""
        self._line.record(tokens / speed, audio_s)
