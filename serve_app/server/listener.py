"""What a session's listener has yet to hear, as far as the server can know. Time is an argument."""

import math

_FIRST_GUESS_S = 0.06
"""Seconds of audio of a phoneme token at speed 1, measured over English sentences of 30 to 200 tokens."""

_NEW_SHARE = 0.1
"""How much the latest segment counts in the pace; voices and languages mix, so it takes about ten to turn it."""


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

    def hear(self, audio_s: float, now_s: float) -> None:
        """More audio was handed on."""
        self._silent_from_s = max(self._silent_from_s, now_s) + audio_s

    def interrupt(self) -> None:
        """The listener has stopped playing, as after a barge-in."""
        self._silent_from_s = -math.inf


class Pace:
    """Seconds of audio that a phoneme token takes, out of the segments so far: how long the next ones will last."""

    def __init__(self) -> None:
        self._token_s = _FIRST_GUESS_S

    def expected_s(self, tokens: int, speed: float) -> float:
        return tokens * self._token_s / speed

    def record(self, tokens: int, speed: float, audio_s: float) -> None:
        self._token_s += _NEW_SHARE * (audio_s * speed / tokens - self._token_s)
