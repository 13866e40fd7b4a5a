"""One WebSocket conversation without the socket: client frames and the runner's reports in, actions out.

The session decides, its runner acts: it applies every action, in the order in which the calls returned them, and
reports how the utterance in hand ended. Time is an argument: `now_s` of one monotonic clock, `epoch_s` of the calendar.

One utterance is in hand, the others wait in a bounded inbox. Each accepted message, and each run of `text_delta`
messages as a whole, ends in exactly one of `synthesis_complete`, `synthesis_cancelled` and `error`.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any

from serve_app.access.allowance import UNBOUNDED, Allowance
from serve_app.errors import (
    BadRequest,
    EngineUnavailable,
    IdleTimeout,
    NothingToSpeak,
    QueueSaturated,
    SpeechError,
    TextTooLong,
)
from serve_app.protocol import messages
from serve_app.protocol.messages import (
    Cancel,
    ClientMessage,
    Ping,
    Pong,
    Say,
    ServerFrame,
    SynthesisCancelled,
    SynthesisComplete,
    SynthesisStart,
    TextDelta,
    TextEnd,
    error_frame,
    parse_message,
)
from serve_app.protocol.requests import (
    UNKNOWN_REQUEST_ID,
    RequestLimits,
    SpeechRequest,
    check_age,
    check_text,
    too_long,
    validate,
    whole_characters,
)
from serve_app.text.chunker import IncrementalSentenceChunker, split_sentences

NORMAL_CLOSURE, GOING_AWAY = 1000, 1001  # RFC 6455, section 7.4.1


@dataclass(frozen=True, slots=True)
class SessionLimits(RequestLimits):
    """Bounds on one session.

    max_message_bytes: one client frame. Past it: TextTooLong, unread; to decode more would hold up other sessions.
    inbox_messages: utterances that may wait behind the one in hand.
    inbox_bytes: UTF-8 bytes of text that may wait there. Past either: QueueSaturated, and nothing is kept.
    session_idle_timeout_s: without text or a ping, and with nothing left to speak, after which the session ends.
    """

    max_message_bytes: int
    inbox_messages: int
    inbox_bytes: int
    session_idle_timeout_s: float


@dataclass(frozen=True, slots=True)
class Send:
    """Send a control frame, after everything that was produced before it."""

    frame: ServerFrame


@dataclass(frozen=True, slots=True)
class Begin:
    """Start to synthesize an utterance, which is then in hand. Not `final`: `More` follows.

    `waited_s`: since its message came, or the first of its text_delta messages.
    """

    request: SpeechRequest
    sentences: tuple[str, ...]
    final: bool
    waited_s: float


@dataclass(frozen=True, slots=True)
class More:
    """Further sentences of the utterance in hand; `final`: the last ones, maybe none."""

    sentences: tuple[str, ...]
    final: bool


@dataclass(frozen=True, slots=True)
class Abort:
    """Stop the utterance in hand, drop its unsent audio, then call `Session.aborted`."""


@dataclass(frozen=True, slots=True)
class Close:
    """Close the connection, after everything that was produced before. The last action of a session.

    reason: `closed` (by the client's wish), `shutdown`, or the code of the error that ended it.
    """

    code: int
    reason: str


Action = Send | Begin | More | Abort | Close


class State(Enum):
    """What the next `text_delta` or `text_end` belongs to."""

    OPEN = auto()
    FEEDING = auto()  # an utterance that is being written
    SPOILED = auto()  # one that has failed: its rest is swallowed up to text_end
    CUT = auto()  # one that was cancelled: a late text_end is forgiven, a text_delta begins a new one
    CLOSING = auto()  # nothing: the client sent `close`
    CLOSED = auto()


@dataclass(slots=True, eq=False)
class _Utterance:
    """An accepted text. `text_bytes` counts what is not yet given to the runner."""

    request: SpeechRequest
    received_s: float
    text_bytes: int = 0
    ended: bool = True  # nothing is added to it any more
    begun_s: float = 0.0
    stopped: bool = False
    error: SpeechError | None = None  # why it was stopped; None: cancelled

    @property
    def request_id(self) -> str:
        return self.request.request_id

    @property
    def ready(self) -> bool:
        """It can begin: there is something to say, or there never will be."""
        return True

    def take(self) -> tuple[str, ...]:
        """The sentences for the runner."""
        self.text_bytes = 0
        return tuple(split_sentences(self.request.text))


@dataclass(slots=True, eq=False)
class _Fed(_Utterance):
    """An accepted run of `text_delta` messages."""

    ended: bool = False
    chars: int = 0
    half_character: str = ""
    sentences: list[str] = field(default_factory=list)
    chunker: IncrementalSentenceChunker = field(default_factory=IncrementalSentenceChunker)

    @property
    def ready(self) -> bool:
        return self.ended or bool(self.sentences)

    def take(self) -> tuple[str, ...]:
        sentences, self.sentences, self.text_bytes = tuple(self.sentences), [], 0
        return sentences

    def feed(self, text: str) -> None:
        self.chars += len(text)
        text = self.half_character + text
        self.half_character = text[-1:] if "\ud800" <= text[-1:] <= "\udbff" else ""
        whole = whole_characters(text)
        self.text_bytes += len(whole.encode())
        self.sentences += self.chunker.feed(whole)

    def end(self) -> None:
        tail = self.chunker.flush()
        self.sentences += [] if tail is None else [tail]
        self.ended = True


class Session:
    """The state of one connection; see the module. After Close, and after `disconnected`, every call returns []."""

    def __init__(self, session_id: str, limits: SessionLimits, now_s: float, allowance: Allowance = UNBOUNDED) -> None:
        """`allowance`: the caller's, which other sessions may draw on too."""
        self.session_id = session_id
        self._limits = limits
        self._allowance = allowance
        self._state = State.OPEN
        self._hand: _Utterance | None = None
        self._inbox: deque[_Utterance] = deque()
        self._fed: _Fed | None = None  # FEEDING: the last of the inbox, or the one in hand
        self._spoiled_id = UNKNOWN_REQUEST_ID
        self._ending: Close | None = None  # what to do once nothing is left to speak
        self._active_s = now_s

    @property
    def idle_deadline_s(self) -> float | None:
        """When `tick` ends the session, unless a text or a ping comes; None while there is something to speak.

        An utterance that is still being written counts as nothing to speak: it waits for the client.
        """
        if self._state is State.CLOSED or any(each is not self._fed for each in self._unfinished()):
            return None
        return self._active_s + self._limits.session_idle_timeout_s

    def receive(self, raw: str | bytes, now_s: float, epoch_s: float) -> list[Action]:
        """A client frame, text or binary. Raises nothing, whatever it holds: a bad one is answered by an error frame.

        After `close` only `cancel` and `ping` are heard; other messages are ignored, without an answer.
        """
        if self._state is State.CLOSED:
            return []
        try:
            if len(raw) > self._limits.max_message_bytes:
                raise TextTooLong(f"the message is larger than {self._limits.max_message_bytes} bytes")
            message = parse_message(raw)
        except (BadRequest, TextTooLong) as error:
            return [] if self._state is State.CLOSING else [Send(error_frame(error, error.request_id))]
        transition = TRANSITIONS.get((self._state, type(message)))
        if transition is None:
            request_id = message.request_id if isinstance(message, Say) else UNKNOWN_REQUEST_ID
            return [Send(error_frame(BadRequest(_GAPS[self._state]), request_id))]
        self._state, handle = transition
        return handle(self, message, now_s, epoch_s)

    def completed(self, total_duration_s: float, now_s: float) -> list[Action]:
        """The utterance in hand was spoken to its end. It is cancelled all the same if that was already asked for."""
        if self._state is State.CLOSED:
            return []
        hand = self._in_hand()
        if hand.stopped:
            return self.aborted(total_duration_s, now_s)
        if not hand.ended:
            raise RuntimeError("completed, but its text has not ended")
        elapsed_s = now_s - hand.begun_s
        return self._settle(SynthesisComplete(hand.request_id, float(total_duration_s), elapsed_s), now_s)

    def failed(self, error: SpeechError, now_s: float) -> list[Action]:
        """The utterance in hand failed. The next one begins, unless the error ends the session."""
        if self._state is State.CLOSED:
            return []
        hand = self._in_hand()
        if self._fed is hand:
            self._spoil(hand)
        if isinstance(error, NothingToSpeak):
            return self._settle(SynthesisComplete(hand.request_id, 0.0, now_s - hand.begun_s), now_s)
        return self._settle(error_frame(error, hand.request_id), now_s, error)

    def aborted(self, sent_duration_s: float, now_s: float) -> list[Action]:
        """The answer to Abort, with the seconds of audio that were sent. [] if the utterance had ended by itself."""
        hand = self._hand
        if hand is None or not hand.stopped:
            return []
        if hand.error is not None:
            return self._settle(error_frame(hand.error, hand.request_id), now_s, hand.error)
        return self._settle(SynthesisCancelled(hand.request_id, float(sent_duration_s)), now_s)

    def tick(self, now_s: float) -> list[Action]:
        """End the session if `idle_deadline_s` has passed."""
        deadline_s = self.idle_deadline_s
        if deadline_s is None or now_s < deadline_s:
            return []
        error = IdleTimeout(f"no text and no ping for {self._limits.session_idle_timeout_s:g} s")
        if self._fed is not None:
            return self._fail_fed(self._fed, error, now_s)
        return [Send(error_frame(error)), *self._end_with(error, now_s)]

    def shutdown(self, now_s: float) -> list[Action]:
        """The server goes away: finish the utterance in hand, refuse what waits and what comes, then close."""
        if self._state is State.CLOSED:
            return []
        self._ending = Close(GOING_AWAY, "shutdown")
        return self._refuse_waiting(_shutting_down()) + self._advance(now_s)

    def give_up(self) -> list[Action]:
        """After `shutdown`: the server waits no longer for the utterance in hand, which fails."""
        if self._hand is None:
            return []
        if self._hand is self._fed:
            self._spoil(self._fed)
        return self._stop_hand(_shutting_down())

    def expel(self, error: SpeechError, now_s: float) -> list[Action]:
        """The client may go on no longer: what is in hand and what waits fails with `error`, which ends the session."""
        if self._state is State.CLOSED:
            return []
        if not self._unfinished():
            return [Send(error_frame(error)), *self._end_with(error, now_s)]
        if self._hand is not None and self._hand is self._fed:
            self._spoil(self._fed)
        stopped = [] if self._hand is None else self._stop_hand(error)
        return stopped + self._end_with(error, now_s)

    def disconnected(self) -> list[Action]:
        """The client has gone: stop what is in hand, forget the rest."""
        actions: list[Action] = [] if self._hand is None or self._hand.stopped else [Abort()]
        self._close()
        return actions

    # What each message does; the state has already changed as TRANSITIONS says.

    def _say(self, message: Say, now_s: float, epoch_s: float) -> list[Action]:
        text_bytes = len(message.text.encode())
        try:
            check_text(message.text, self._limits)
            self._admit(message, text_bytes, now_s, epoch_s)
        except SpeechError as error:
            return [Send(error_frame(error, message.request_id))]
        self._take(message.text, now_s)
        self._inbox.append(_Utterance(_request(message), now_s, text_bytes))
        return self._advance(now_s)

    def _start_feeding(self, message: TextDelta, now_s: float, epoch_s: float) -> list[Action]:
        try:
            self._admit(message, 0, now_s, epoch_s)
        except SpeechError as error:
            self._state, self._spoiled_id = State.SPOILED, message.request_id
            return [Send(error_frame(error, message.request_id))]
        self._fed = _Fed(_request(message, text=""), now_s)
        self._inbox.append(self._fed)
        return self._feed(message, now_s, epoch_s)

    def _feed(self, message: TextDelta, now_s: float, _epoch_s: float) -> list[Action]:
        fed = self._being_fed()
        if fed.chars + len(message.text) > self._limits.max_text_chars:
            return self._fail_fed(fed, too_long(self._limits), now_s)
        self._take(message.text, now_s)
        fed.feed(message.text)
        if fed is self._hand:
            sentences = fed.take()
            return [More(sentences, final=False)] if sentences else []
        actions = self._advance(now_s)
        if self._waiting_bytes() > self._limits.inbox_bytes:
            actions += self._fail_fed(fed, _saturated("bytes of text", self._limits.inbox_bytes), now_s)
        return actions

    def _end_feeding(self, _message: ClientMessage, now_s: float, _epoch_s: float) -> list[Action]:
        fed, self._fed = self._being_fed(), None
        fed.end()
        return [More(fed.take(), final=True)] if fed is self._hand else self._advance(now_s)

    def _swallow(self, message: TextDelta, now_s: float, epoch_s: float) -> list[Action]:
        """The rest of a failed run, unless it says that it is another one: then its text_end got lost."""
        if "request_id" not in message.model_fields_set or message.request_id == self._spoiled_id:
            return []
        self._state = State.FEEDING
        return self._start_feeding(message, now_s, epoch_s)

    def _cancel(self, message: Cancel, now_s: float, _epoch_s: float) -> list[Action]:
        """Drop one utterance, or all.

        One that had ended before the cancel arrived cannot be told from one that never was: either is answered by a
        `synthesis_cancelled` of 0 s, after the `synthesis_complete` that it may have had.
        """

        def hit(request_id: str) -> bool:
            return message.request_id is None or message.request_id == request_id

        dropped = [each for each in self._unfinished() if hit(each.request_id)]
        self._inbox = deque(each for each in self._inbox if not hit(each.request_id))
        actions = [_cancelled(each.request_id) for each in dropped if each is not self._hand]
        if self._fed in dropped or (self._state is State.SPOILED and hit(self._spoiled_id)):
            self._fed, self._state = None, State.CUT
        if self._hand in dropped:
            actions += self._stop_hand(None)
        elif not dropped:
            actions.append(_cancelled(message.request_id or UNKNOWN_REQUEST_ID))
        return actions + self._advance(now_s)

    def _finish(self, message: ClientMessage, now_s: float, epoch_s: float) -> list[Action]:
        self._ending = Close(NORMAL_CLOSURE, "closed")
        return self._advance(now_s) if self._fed is None else self._end_feeding(message, now_s, epoch_s)

    def _pong(self, _message: Ping, now_s: float, _epoch_s: float) -> list[Action]:
        self._active_s = now_s
        return [Send(Pong())]

    def _ignore(self, _message: ClientMessage, _now_s: float, _epoch_s: float) -> list[Action]:
        return []

    # The hand and the inbox.

    def _unfinished(self) -> list[_Utterance]:
        return [*([] if self._hand is None else [self._hand]), *self._inbox]

    def _waiting_bytes(self) -> int:
        return sum(each.text_bytes for each in self._inbox)

    def _in_hand(self) -> _Utterance:
        if self._hand is None:
            raise RuntimeError("no utterance is in hand")
        return self._hand

    def _being_fed(self) -> _Fed:
        if self._fed is None:
            raise RuntimeError("no utterance is being fed")
        return self._fed

    def _admit(self, message: Say | TextDelta, text_bytes: int, now_s: float, epoch_s: float) -> None:
        """Raises RequestStale, EngineUnavailable, RateLimited, QueueSaturated."""
        check_age(message, self._limits, epoch_s)
        if self._ending is not None:
            raise _shutting_down()
        self._allowance.check(now_s)
        if self._hand is None and not self._inbox:
            return  # it does not wait
        if len(self._inbox) >= self._limits.inbox_messages:
            raise _saturated("messages", self._limits.inbox_messages)
        if self._waiting_bytes() + text_bytes > self._limits.inbox_bytes:
            raise _saturated("bytes of text", self._limits.inbox_bytes)

    def _take(self, text: str, now_s: float) -> None:
        """It was let in: it spends, and puts off the end of a silent session."""
        self._allowance.spend(len(text), now_s)
        self._active_s = now_s

    def _advance(self, now_s: float) -> list[Action]:
        """Take the next utterance in hand if it has something to say; end the session if nothing is left to say."""
        actions: list[Action] = []
        while self._hand is None and self._inbox and self._inbox[0].ready:
            next_up = self._inbox.popleft()
            sentences = next_up.take()
            actions.append(Send(SynthesisStart(next_up.request_id)))
            if sentences:
                self._hand, next_up.begun_s = next_up, now_s
                waited_s = now_s - next_up.received_s
                actions.append(Begin(next_up.request, sentences, final=next_up.ended, waited_s=waited_s))
            else:
                actions.append(Send(SynthesisComplete(next_up.request_id, 0.0, 0.0)))
        if self._ending is not None and self._hand is None and not self._inbox:
            actions.append(self._ending)
            self._close()
        return actions

    def _settle(self, frame: ServerFrame, now_s: float, error: SpeechError | None = None) -> list[Action]:
        """The utterance in hand has ended, in `frame`."""
        self._hand, self._active_s = None, now_s
        return [Send(frame), *(self._advance(now_s) if error is None else self._end_with(error, now_s))]

    def _stop_hand(self, error: SpeechError | None) -> list[Action]:
        hand = self._in_hand()
        if hand.stopped:
            return []
        hand.stopped, hand.error = True, error
        return [Abort()]

    def _fail_fed(self, fed: _Utterance, error: SpeechError, now_s: float) -> list[Action]:
        self._spoil(fed)
        if fed is self._hand:
            return self._stop_hand(error)
        self._inbox.remove(fed)
        return [Send(error_frame(error, fed.request_id)), *self._end_with(error, now_s)]

    def _spoil(self, fed: _Utterance) -> None:
        self._fed, self._state, self._spoiled_id = None, State.SPOILED, fed.request_id

    def _end_with(self, error: SpeechError, now_s: float) -> list[Action]:
        """Go on after an error, or end the session where the error says so."""
        if error.close_code is None:
            return self._advance(now_s)
        self._ending = Close(error.close_code, error.code)
        return self._refuse_waiting(error) + self._advance(now_s)

    def _refuse_waiting(self, error: SpeechError) -> list[Action]:
        refused = list(self._inbox)
        self._inbox.clear()
        if self._fed in refused:
            self._spoil(refused[-1])
        return [Send(error_frame(error, each.request_id)) for each in refused]

    def _close(self) -> None:
        self._state, self._hand, self._fed = State.CLOSED, None, None
        self._inbox.clear()


Handler = Callable[[Session, Any, float, float], list[Action]]

TRANSITIONS: dict[tuple[State, type[ClientMessage]], tuple[State, Handler]] = {
    # A gap is an `error` frame, and nothing else changes. Ending as a whole is apart: see `Session._advance`.
    (State.OPEN, Say): (State.OPEN, Session._say),
    (State.OPEN, TextDelta): (State.FEEDING, Session._start_feeding),  # refused: SPOILED
    (State.OPEN, Cancel): (State.OPEN, Session._cancel),
    (State.OPEN, messages.Close): (State.CLOSING, Session._finish),
    (State.OPEN, Ping): (State.OPEN, Session._pong),
    (State.FEEDING, TextDelta): (State.FEEDING, Session._feed),  # past a bound: SPOILED
    (State.FEEDING, TextEnd): (State.OPEN, Session._end_feeding),
    (State.FEEDING, Cancel): (State.FEEDING, Session._cancel),  # if it hits what is being fed: CUT
    (State.FEEDING, messages.Close): (State.CLOSING, Session._finish),
    (State.FEEDING, Ping): (State.FEEDING, Session._pong),
    (State.SPOILED, Say): (State.SPOILED, Session._say),
    (State.SPOILED, TextDelta): (State.SPOILED, Session._swallow),  # with another request_id: FEEDING
    (State.SPOILED, TextEnd): (State.OPEN, Session._ignore),
    (State.SPOILED, Cancel): (State.SPOILED, Session._cancel),  # if it hits what failed: CUT
    (State.SPOILED, messages.Close): (State.CLOSING, Session._finish),
    (State.SPOILED, Ping): (State.SPOILED, Session._pong),
    (State.CUT, Say): (State.CUT, Session._say),
    (State.CUT, TextDelta): (State.FEEDING, Session._start_feeding),
    (State.CUT, TextEnd): (State.OPEN, Session._ignore),
    (State.CUT, Cancel): (State.CUT, Session._cancel),
    (State.CUT, messages.Close): (State.CLOSING, Session._finish),
    (State.CUT, Ping): (State.CUT, Session._pong),
    (State.CLOSING, Say): (State.CLOSING, Session._ignore),
    (State.CLOSING, TextDelta): (State.CLOSING, Session._ignore),
    (State.CLOSING, TextEnd): (State.CLOSING, Session._ignore),
    (State.CLOSING, Cancel): (State.CLOSING, Session._cancel),
    (State.CLOSING, messages.Close): (State.CLOSING, Session._ignore),
    (State.CLOSING, Ping): (State.CLOSING, Session._pong),
}

_GAPS: dict[State, str] = {
    State.OPEN: "text_end without a text_delta before it",
    State.FEEDING: "a text may not come between text_delta and text_end; send text_end first",
}


def _request(message: Say | TextDelta, **changes: str) -> SpeechRequest:
    return validate(SpeechRequest, {**message.model_dump(exclude={"type"}), **changes})


def _cancelled(request_id: str) -> Action:
    return Send(SynthesisCancelled(request_id, 0.0))


def _saturated(what: str, bound: int) -> QueueSaturated:
    return QueueSaturated(f"too much is waiting in this session; at most {bound} {what} may")


def _shutting_down() -> EngineUnavailable:
    return EngineUnavailable("the server is shutting down; connect again")
