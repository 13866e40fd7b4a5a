"""Sessions, a gateway and one engine over a virtual clock. What is heard is played back from the first audio on."""

import heapq
import math
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from scripts.capacity.queue import ServiceCurve
from scripts.scheduling.load import Answer, sentences
from scripts.scheduling.orders import Order
from serve_app.engine.types import Segment
from serve_app.errors import QueueSaturated
from serve_app.server.listener import Listener, Pace


@dataclass(slots=True)
class Heard:
    """One answer as its listener heard it. `ttfa_s` is infinite for one that was refused; `gaps_s`: each silence."""

    ttfa_s: float = math.inf
    gaps_s: list[float] = field(default_factory=list)


class _Utterance:
    """An answer on its way through the gateway, in the manner of serve_app/server/speech.py."""

    def __init__(self, answer: Answer, listener: Listener, pace: Pace) -> None:
        self.answer, self.listener, self.pace = answer, listener, pace
        self.heard = Heard()
        self.silent_from_s = math.inf
        self._asked = self._done = 0

    def ask(self, lookahead: int | None, now_s: float) -> list[Segment]:
        """The segments to submit now."""
        spoken = self.answer.sentences
        upto = len(spoken) if lookahead is None else min(len(spoken), self._done + lookahead)
        segments = []
        for index in range(self._asked, upto):
            ahead_s = sum(self.pace.expected_s(sentence.tokens, 1.0) for sentence in spoken[self._done : index])
            ids, request_id = (1,) * spoken[index].tokens, str(self.answer.number)
            slack_s = self.listener.left_s(now_s) + ahead_s
            segments.append(Segment(self.answer.session_id, request_id, index, ids, "voice", slack_s=slack_s))
        self._asked = max(self._asked, upto)
        return segments

    def spoken(self, now_s: float) -> None:
        """The next segment is there, and is played after what came before."""
        sentence = self.answer.sentences[self._done]
        if self._done == 0:
            self.heard.ttfa_s = now_s - self.answer.asked_s
        elif now_s > self.silent_from_s:
            self.heard.gaps_s.append(now_s - self.silent_from_s)
        self._done += 1
        self.silent_from_s = max(now_s, self.silent_from_s if self._done > 1 else now_s) + sentence.audio_s
        self.pace.record(sentence.tokens, 1.0, sentence.audio_s)
        self.listener.hear(sentence.audio_s, now_s)

    @property
    def ended(self) -> bool:
        return self._done == len(self.answer.sentences)


class Conversations:
    """Sessions that each ask again a while after they have heard the answer before, up to `lasts_s`."""

    def __init__(self, sessions: int, lasts_s: float, *, pause_s: float, seed: int) -> None:
        self._rng = random.Random(f"conversations/{sessions}/{seed}")
        self._lasts_s, self._pause_s = lasts_s, pause_s
        self.first = [
            Answer(f"s{number}", 0, self._rng.uniform(0, 10 + pause_s), sentences(self._rng))
            for number in range(sessions)
        ]

    def after(self, answer: Answer, heard_at_s: float) -> Answer | None:
        """The next one of the same session."""
        asked_s = heard_at_s + self._rng.expovariate(1 / self._pause_s)
        if asked_s > self._lasts_s:
            return None
        return Answer(answer.session_id, answer.number + 1, asked_s, sentences(self._rng))


def simulate(
    order: Order, curve: ServiceCurve, answers: Iterable[Answer], conversations: Conversations | None = None
) -> list[Heard]:
    """Let the engine speak all answers, and those that follow them in `conversations`; in order of asking."""
    coming = [(answer.asked_s, place, answer) for place, answer in enumerate(answers)]
    heapq.heapify(coming)
    place = len(coming)
    utterances: dict[str, _Utterance] = {}
    listeners: dict[str, Listener] = {}
    heard: list[Heard] = []
    pace = Pace()
    now_s = 0.0

    def ask(utterance: _Utterance, at_s: float) -> None:
        for segment in utterance.ask(order.lookahead, at_s):
            order.submit(segment, at_s)

    def come(until_s: float) -> None:
        while coming and coming[0][0] <= until_s:
            at_s, _, answer = heapq.heappop(coming)
            listener = listeners.setdefault(answer.session_id, Listener(answer.session_id))
            utterance = _Utterance(answer, listener, pace)
            heard.append(utterance.heard)
            try:
                ask(utterance, at_s)
            except QueueSaturated:
                continue
            utterances[answer.session_id] = utterance

    while True:
        come(now_s)
        batch = order.begin(now_s)
        if not batch:
            if not coming:
                return heard
            now_s = coming[0][0]
            continue
        now_s += curve.seconds(len(batch))
        come(now_s)
        order.end(now_s)
        for session_id in _sessions(batch):
            utterances[session_id].spoken(now_s)
        for session_id in dict.fromkeys(_sessions(batch)):
            utterance = utterances[session_id]
            if not utterance.ended:
                ask(utterance, now_s)
                continue
            del utterances[session_id]
            if conversations and (following := conversations.after(utterance.answer, utterance.silent_from_s)):
                place += 1
                heapq.heappush(coming, (following.asked_s, place, following))


def _sessions(batch: Sequence[Segment]) -> list[str]:
    return [segment.session_id for segment in batch]
