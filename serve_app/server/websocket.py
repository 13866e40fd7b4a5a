"""WS /invocations-bidirectional-stream: move frames between one accepted socket, its session and the engine.

Three tasks per connection: the reader never waits for audio, so that cancel, ping, close and a disconnect are noticed
at once; the speaker synthesizes the one utterance in hand; the writer alone touches the socket's sending side. What to
do is decided by the session (serve_app/protocol/session.py), which knows no socket.
"""

import asyncio
import json
import logging
import math
import time
from collections import deque
from contextlib import aclosing
from dataclasses import dataclass
from typing import assert_never
from uuid import uuid4

from starlette.types import Receive, Scope
from starlette.types import Send as ASGISend
from starlette.websockets import WebSocket, WebSocketDisconnect

from serve_app.access.callers import Caller
from serve_app.access.keys import SUBPROTOCOL, KeyRing
from serve_app.audio.encoders import AudioEncoder, open_encoder
from serve_app.audio.pcm import duration_s, slices
from serve_app.config import LimitSettings
from serve_app.errors import EngineUnavailable, QueueSaturated, RateLimited, SpeechError, Unauthorized
from serve_app.metrics import ACTIVE_SESSIONS, REFUSALS, SESSIONS_ENDED, Recorder
from serve_app.protocol.framing import audio_frames
from serve_app.protocol.messages import ErrorFrame, Words, dump_frame
from serve_app.protocol.requests import SpeechRequest
from serve_app.protocol.session import Abort, Action, Begin, Close, More, Send, Session, SessionLimits
from serve_app.server.access import caller_of
from serve_app.server.account import Account
from serve_app.server.listener import Listener
from serve_app.server.responses import as_speech_error, error_response
from serve_app.server.speech import Sentences, Speech

log = logging.getLogger(__name__)
ROUTE = "/invocations-bidirectional-stream"

HIGH_WATER_BYTES = 128 * 1024
"""Audio that may wait for the socket before the speaker pauses: 2.7 s of PCM at 24 kHz."""

MAX_CONTROL_FRAMES = 4096
"""Answers that may wait for a client that sends but does not read; past it the client counts as gone."""

REFUSED_FOR = {
    QueueSaturated.code: "inbox",
    RateLimited.code: "key",
    EngineUnavailable.code: "draining",
    Unauthorized.code: "unauthorized",
}
"""Why a session turns a message away that it has not begun, by the error that it answers."""


@dataclass(frozen=True, slots=True)
class AudioFrame:
    """Bytes for one binary frame, the seconds of audio they carry, and the account of their utterance."""

    data: bytes
    duration_s: float
    account: Account


@dataclass(frozen=True, slots=True)
class Settled:
    """No frame: behind it comes no more of an utterance's audio, and its account is closed."""

    account: Account
    outcome: str
    characters: int


type Frame = str | AudioFrame | Settled | Close
"""A control frame, audio, the end of an utterance, the end of the session."""


class Outbox:
    """Frames on their way to one socket, in order."""

    def __init__(self) -> None:
        self._frames: deque[Frame] = deque()
        self._audio_bytes = 0
        self._changed = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()

    def __len__(self) -> int:
        return len(self._frames)

    def put(self, frame: str | Settled | Close) -> None:
        """Append anything but audio; never waits."""
        self._frames.append(frame)
        self._changed.set()

    async def put_audio(self, frame: AudioFrame) -> None:
        """Append an audio frame; waits while HIGH_WATER_BYTES of audio are unsent."""
        await self._room.wait()
        self._frames.append(frame)
        self._count(len(frame.data))
        self._changed.set()

    def drop_audio(self, account: Account) -> float:
        """Barge-in: forget the unsent audio of one utterance, not the end of the one before. Returns its seconds."""
        kept, dropped = deque[Frame](), list[AudioFrame]()
        for frame in self._frames:
            if isinstance(frame, AudioFrame) and frame.account is account:
                dropped.append(frame)
            else:
                kept.append(frame)
        self._frames = kept
        self._count(-sum(len(frame.data) for frame in dropped))
        return sum(frame.duration_s for frame in dropped)

    def settled(self) -> list[Settled]:
        """Utterances whose end is still in here."""
        return [frame for frame in self._frames if isinstance(frame, Settled)]

    async def get(self) -> Frame:
        """The next frame to send; waits for one."""
        while not self._frames:
            self._changed.clear()
            await self._changed.wait()
        frame = self._frames.popleft()
        if isinstance(frame, AudioFrame):
            self._count(-len(frame.data))
        return frame

    def _count(self, audio_bytes: int) -> None:
        self._audio_bytes += audio_bytes
        if self._audio_bytes < HIGH_WATER_BYTES:
            self._room.set()
        else:
            self._room.clear()


class Connection:
    """One accepted socket. `serve` returns how it ended."""

    def __init__(
        self, socket: WebSocket, caller: Caller, speech: Speech, limits: LimitSettings, recorder: Recorder
    ) -> None:
        self._socket, self._speech, self._limits, self._recorder = socket, speech, limits, recorder
        self.caller = caller
        self.session_id = uuid4().hex
        self._session = Session(self.session_id, _session_limits(limits), time.monotonic(), caller.allowance)
        self._listener = Listener(self.session_id)
        self._outbox = Outbox()
        self._sentences = Sentences(final=True)
        self._speaking: asyncio.Task[None] | None = None
        self._sent_s = 0.0
        self._patience: asyncio.TimerHandle | None = None  # of a server that goes away
        self._over = False

    async def serve(self) -> str:
        """Until the client or the session ends it: `closed`, `disconnected`, `idle_timeout`, `shutdown`, `stalled`."""
        reader, writer = asyncio.create_task(self._read()), asyncio.create_task(self._write())
        try:
            await asyncio.wait((reader, writer), return_when=asyncio.FIRST_COMPLETED)
            return writer.result() if writer.done() else reader.result()
        finally:
            self._over = True
            if self._patience is not None:
                self._patience.cancel()
            tasks = [task for task in (reader, writer, self._speaking) if task is not None]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for unsent in self._outbox.settled():
                outcome = "disconnected" if unsent.outcome == "complete" else unsent.outcome
                unsent.account.close(outcome, characters=unsent.characters)

    def shut_down(self, within_s: float | None) -> None:
        """Finish the message in hand, or fail it when the time is up, then close with 1001."""
        self._apply_counted(self._session.shutdown(time.monotonic()))
        if within_s is not None:
            self._patience = asyncio.get_running_loop().call_later(within_s, self._give_up)

    def _give_up(self) -> None:
        self._apply(self._session.give_up())

    def expel(self, error: SpeechError) -> None:
        """End the session now, with the message in hand and those that wait."""
        self._apply_counted(self._session.expel(error, time.monotonic()))

    async def _read(self) -> str:
        while True:
            try:
                async with asyncio.timeout_at(self._deadline()):
                    message = await self._socket.receive()
            except TimeoutError:
                self._apply(self._session.tick(time.monotonic()))
                continue
            if message["type"] == "websocket.disconnect":
                return "disconnected"
            text = message.get("text")
            raw = message["bytes"] if text is None else text
            self._apply_counted(self._session.receive(raw, time.monotonic(), time.time()))
            if len(self._outbox) > MAX_CONTROL_FRAMES:
                return "stalled"
            await asyncio.sleep(0)  # a server may have a whole burst at hand: the writer and other sessions go between

    def _apply_counted(self, actions: list[Action]) -> None:
        """Apply, and count what is refused before it was in hand; the rest is in the account of its utterance."""
        for action in actions:
            match action:
                case Send(frame=ErrorFrame(code=code)) if code in REFUSED_FOR:
                    self._recorder.record(REFUSALS, reason=REFUSED_FOR[code])
        self._apply(actions)

    def _deadline(self) -> float | None:
        idle_deadline_s = self._session.idle_deadline_s
        if idle_deadline_s is None:
            return None
        return asyncio.get_running_loop().time() + max(0.0, idle_deadline_s - time.monotonic())

    def _apply(self, actions: list[Action]) -> None:
        for action in actions:
            match action:
                case Send(frame=frame):
                    self._outbox.put(dump_frame(frame))
                case Begin():
                    self._begin(action)
                case More(sentences=sentences, final=final):
                    self._sentences.add(sentences, final=final)
                case Abort():
                    if self._speaking is not None:
                        self._speaking.cancel()
                case Close():
                    self._outbox.put(action)
                case _:
                    assert_never(action)

    async def _write(self) -> str:
        free_since_s = -math.inf
        while True:
            frame = await self._outbox.get()
            try:
                async with asyncio.timeout(self._limits.send_stall_timeout_s):
                    match frame:
                        case str():
                            await self._socket.send_text(frame)
                        case AudioFrame(data=data, account=account):
                            await self._socket.send_bytes(data)
                            account.sent(free_since_s)
                        case Settled(account=account, outcome=outcome, characters=characters):
                            free_since_s = time.monotonic()
                            account.close(outcome, characters=characters)
                        case Close(code=code, reason=reason):
                            await self._socket.close(code, reason)
                            return reason
            except TimeoutError:
                return "stalled"
            except (WebSocketDisconnect, RuntimeError):  # Starlette raises the latter for a send after the end
                return "disconnected"

    def _begin(self, begin: Begin) -> None:
        request, self._sent_s = begin.request, 0.0
        self._sentences = sentences = Sentences(begin.sentences, final=begin.final)
        account = Account(
            self._recorder,
            self._speech.tracer,
            route=ROUTE,
            session_id=self.session_id,
            request_id=request.request_id,
            waited_s=begin.waited_s,
            caller=self.caller,
        )
        self._speaking = asyncio.create_task(self._speak(request, sentences, account))
        # Not at the end of the task itself: one that is cancelled before its first step never runs at all.
        self._speaking.add_done_callback(lambda task: self._ended(task, request, sentences, account))

    def _ended(
        self, task: "asyncio.Task[None]", request: SpeechRequest, sentences: Sentences, account: Account
    ) -> None:
        """Tell the session how the utterance in hand ended, which begins the next one."""
        now_s = time.monotonic()
        if task.cancelled():
            self._listener.interrupt()
            actions = self._session.aborted(self._sent_s - self._outbox.drop_audio(account), now_s)
            match actions:
                case [Send(frame=ErrorFrame(code=code)), *_] if not self._over:
                    outcome = code
                case _:
                    outcome = "disconnected" if self._over else "cancelled"
        elif isinstance(exc := task.exception(), Exception):
            error = as_speech_error(exc, request.request_id)
            outcome = error.code
            actions = self._session.failed(error, now_s)
        else:
            outcome = "complete"
            actions = self._session.completed(account.audio_s, now_s)
        self._outbox.put(Settled(account, outcome, sentences.characters))
        if not self._over:
            self._apply(actions)

    async def _speak(self, request: SpeechRequest, sentences: Sentences, account: Account) -> None:
        encoder = open_encoder(request.format, request.sample_rate)
        spoken = self._speech.speak(request, sentences, listener=self._listener)
        with account.span.current():
            async with aclosing(spoken):
                async for segment in spoken:
                    account.spoke(segment)
                    if segment.words and request.timestamps:
                        words = [word.as_json() for word in segment.words]
                        self._outbox.put(dump_frame(Words(request_id=request.request_id, words=words)))
                    for samples in slices(segment.samples, segment.sample_rate):
                        await self._send_audio(
                            encoder.encode(samples), encoder, duration_s(len(samples), segment.sample_rate), account
                        )
        if account.audio_s:
            await self._send_audio(encoder.finish(), encoder, 0.0, account)

    async def _send_audio(self, data: bytes, encoder: AudioEncoder, duration_s: float, account: Account) -> None:
        for frame in audio_frames(data, encoder.sample_bytes):
            await self._outbox.put_audio(AudioFrame(frame, duration_s * len(frame) / len(data), account))
            self._sent_s += duration_s * len(frame) / len(data)


def _session_limits(limits: LimitSettings) -> SessionLimits:
    return SessionLimits(
        max_text_chars=limits.max_text_chars,
        max_message_bytes=limits.max_body_bytes,
        max_request_age_s=limits.max_request_age_s,
        inbox_messages=limits.inbox_messages,
        inbox_bytes=limits.inbox_bytes,
        session_idle_timeout_s=limits.session_idle_timeout_s,
    )


class BidirectionalStream:
    """The WebSocket endpoint: bounds the number of sessions, counts them, and ends them on shutdown.

    Attributes:
        limits: of new sessions; others may be set at any time.
    """

    def __init__(self, speech: Speech, limits: LimitSettings, recorder: Recorder) -> None:
        self._speech, self.limits, self._recorder = speech, limits, recorder
        self._open: set[Connection] = set()
        recorder.record(ACTIVE_SESSIONS, 0)  # from its start on: where no gateway tells, there is none

    async def __call__(self, scope: Scope, receive: Receive, send: ASGISend) -> None:
        socket, caller = WebSocket(scope, receive, send), caller_of(scope)
        try:
            if len(self._open) >= self.limits.max_sessions:
                raise QueueSaturated("all sessions are taken; retry later")
            caller.check_sessions(sum(other.caller.name == caller.name for other in self._open))
        except SpeechError as refused:
            await socket.send_denial_response(error_response(refused))
            self._recorder.record(SESSIONS_ENDED, outcome="refused")
            self._recorder.record(REFUSALS, reason="sessions" if isinstance(refused, QueueSaturated) else "key")
            return
        connection = Connection(socket, caller, self._speech, self.limits, self._recorder)
        self._open.add(connection)  # before the upgrade, which may wait: a burst of them would pass the bound
        self._recorder.record(ACTIVE_SESSIONS, len(self._open))
        outcome = "disconnected"
        try:
            await socket.accept(SUBPROTOCOL if SUBPROTOCOL in scope["subprotocols"] else None)
            outcome = await connection.serve()
        finally:
            self._open.discard(connection)
            self._recorder.record(ACTIVE_SESSIONS, len(self._open))
            self._recorder.record(SESSIONS_ENDED, outcome=outcome)
            line = {"event": "session", **caller.ids, "session_id": connection.session_id, "outcome": outcome}
            log.info("%s", json.dumps(line))

    def expel_those_without(self, keys: KeyRing) -> None:
        """Sessions that were opened with a key that is not among `keys` end at once."""
        for connection in list(self._open):
            if connection.caller.key is not None and connection.caller.key not in keys:
                connection.expel(Unauthorized("the API key of this session has been taken back"))

    def shut_down(self, within_s: float | None = None) -> None:
        """Every session finishes the message in hand, or fails it when the time is up, and closes with 1001."""
        for connection in list(self._open):
            connection.shut_down(within_s)
