"""Joins the segments of one utterance: no dead air, no click, and word times that stay true.

The model puts silence at both edges of every segment: measured at speed 1 over three voices, 0.22-0.39 s before the
speech and 0.39-0.72 s after it; at speed 0.7 the end grows to 1.03 s. Joined as they are, two segments lie a second
apart.

Where a seam has to be shorter, the silence that goes is the next segment's lead and the end of this segment's tail.
Whether another segment follows is not known yet when one ends with punctuation, and an utterance's last tail must
stay as it is. So the part of the tail that a pause never needs is held back: dropped when the next segment comes,
returned by `finish` when none does. It is silence, so a listener waits for nothing.
"""

from typing import NamedTuple

import numpy as np

from serve_app.audio.pcm import MODEL_RATE, Samples

_FRAME = MODEL_RATE // 200
_SILENCE = 10 ** (-45 / 20)
"""A frame of 5 ms below this share of the loudest frame so far (RMS) counts as silence."""

_FADE = MODEL_RATE // 200
_PAUSE_MIN, _PAUSE_MAX = round(0.2 * MODEL_RATE), round(0.45 * MODEL_RATE)
_PAUSE_TAIL = _PAUSE_MIN
"""How much of a tail leaves at once; no more than the shortest pause, so that a seam can always be made."""

_BRIDGE_EDGE = round(0.04 * MODEL_RATE)
"""Silence kept on either side where a sentence was cut between two words; a soft consonant may be below -45 dB."""


class Joined(NamedTuple):
    """Audio to play next.

    Attributes:
        samples: float32 [n].
        trimmed_start_samples: the segment's own sample i is at i - trimmed_start_samples in `samples`; negative where
            silence was put before it.
    """

    samples: Samples
    trimmed_start_samples: int


class SeamJoiner:
    """The seams of one utterance. The start of the first segment and the end of the last stay as the model made them,
    so an utterance of one segment is `join` + `finish`, sample for sample.

    After punctuation the pause becomes what the model gave, within 0.2-0.45 s; where the text was cut between two
    words, at most 0.08 s of silence is left. A segment without speech adds to the silence around it, and is bounded
    with it. A pause that somebody asked for is a call of `pause` between two of `join`; it takes the place of the
    silence that the seam would have had, so that it is as long as asked for from speech to speech.
    """

    def __init__(self) -> None:
        self._loudest = 0.0
        self._held: Samples = np.zeros(0, np.float32)
        self._tail_samples: int | None = None
        self._tail_left_samples = 0
        self._bridges = False
        self._owed: int | None = None
        """Samples of a pause that are still to come, negative if more silence has left already; None: no pause."""
        self._last = np.float32(0)

    def join(
        self,
        samples: Samples,
        continues: bool,
        resumes: bool = False,
        *,
        begun: bool = False,
        unfinished: bool = False,
    ) -> Joined:
        """The next segment, float32 [n] at the model's rate, as it follows on what `join` returned before.

        Args:
            continues: the sentence goes on in the next segment, cut without punctuation.
            resumes: the sentence of the segment before goes on in this one, as is known only now; at most 0.24 s of
                silence are left.
            begun, unfinished: the segment was cut off the one before it, or the next one off it, within a silence whose
                length is right: nothing is taken or put there.
        """
        self._bridges = self._bridges or resumes
        start, end = self._speech(samples)
        if begun:
            head, trimmed = self._follow(samples[:end]), 0
        elif self._tail_samples is None:
            head, trimmed = samples[:end], 0
        elif start == len(samples):
            return self._hold(samples, continues)
        else:
            head, trimmed = self._head(samples, start, end)
        tail = samples[end:]
        kept = len(tail) if unfinished else min(len(tail), _BRIDGE_EDGE if continues else _PAUSE_TAIL)
        joined = np.concatenate((head, tail[:kept]))
        if continues:
            fade = _ramp(len(joined))
            joined[len(joined) - len(fade) :] *= fade[::-1]
        self._held = tail[:0] if continues else tail[kept:]
        self._tail_samples, self._tail_left_samples, self._bridges = len(tail), kept, continues
        self._owed = None
        self._last = joined[-1] if len(joined) else np.float32(0)
        return Joined(joined, trimmed)

    def pause(self, samples: int) -> Samples:
        """Silence to play now, of a pause of `samples` between speech and speech; calls in a row add up.

        At the start of the utterance the pause lasts until the first speech, at its end from the last one on. What is
        missing to its exact length comes with the next `join`, which keeps so much of its segment's own lead, or with
        `finish`. The least is what left already and 0.04 s.
        """
        if self._owed is None:
            self._owed, self._held = -self._tail_left_samples, self._held[:0]
            self._tail_samples = self._tail_samples or 0
        self._owed += samples
        silence = np.zeros(max(self._owed - _BRIDGE_EDGE, 0), np.float32)
        self._owed -= len(silence)
        if len(silence):
            fade = _ramp(len(silence))
            silence[: len(fade)] += self._last * fade[::-1]
            self._last = silence[-1]
        return silence

    def finish(self) -> Samples:
        """The rest of the last segment's silence, or of the pause after it; call once, at the end."""
        held, self._held = self._held, np.zeros(0, np.float32)
        return np.concatenate((np.zeros(max(self._owed or 0, 0), np.float32), held))

    def _hold(self, silence: Samples, continues: bool) -> Joined:
        """Take a segment without speech as more of the tail before it."""
        assert self._tail_samples is not None
        moved = -len(self._held)
        self._held = np.concatenate((self._held, silence))
        self._tail_samples += len(silence)
        self._bridges = self._bridges and continues
        return Joined(silence[:0], moved)

    def _speech(self, samples: Samples) -> tuple[int, int]:
        """Where the speech begins and ends; a silent segment is all lead."""
        frames = samples[: len(samples) // _FRAME * _FRAME].reshape(-1, _FRAME)
        levels = np.sqrt(np.mean(np.square(frames), axis=1))
        self._loudest = max(self._loudest, float(levels.max(initial=0.0)))
        loud = np.flatnonzero(levels > self._loudest * _SILENCE)
        if not len(loud):
            return len(samples), len(samples)
        return int(loud[0]) * _FRAME, (int(loud[-1]) + 1) * _FRAME

    def _head(self, samples: Samples, start: int, end: int) -> tuple[Samples, int]:
        """Silence and speech that follow on the tail which already left, and how far the segment's start moved."""
        assert self._tail_samples is not None
        if self._owed is not None:
            missing = max(self._owed, _BRIDGE_EDGE)
            lead = min(start, missing)
            filler = missing - lead
        elif self._bridges:
            lead, filler = min(start, _BRIDGE_EDGE), 0
        else:
            pause = min(max(self._tail_samples + start, _PAUSE_MIN), _PAUSE_MAX)
            missing = pause - self._tail_left_samples
            lead = min(start, missing)
            filler = missing - lead
        return self._follow(samples[start - lead : end], filler), start - lead - filler

    def _follow(self, samples: Samples, filler: int = 0) -> Samples:
        """`filler` samples of silence, and these faded in."""
        head = np.concatenate((np.zeros(filler, np.float32), samples))
        fade = _ramp(len(samples))
        head[filler : filler + len(fade)] *= fade
        # From where the last samples stopped: the part that left could not be faded, it might have been the end.
        fade = _ramp(len(head))
        head[: len(fade)] += self._last * fade[::-1]
        return head


def _ramp(available: int) -> Samples:
    """0 to 1 over at most 5 ms, as far as `available` samples go."""
    count = min(_FADE, available)
    return (np.arange(count, dtype=np.float32) + np.float32(0.5)) / np.float32(max(count, 1))
