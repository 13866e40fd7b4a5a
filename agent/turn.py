"""One turn: a prompt in, events out, and exactly one last event, whatever happens."""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, aclosing
from dataclasses import dataclass

from agent.conversation import Conversation
from agent.events import AgentEnd, AgentStart, Event, Failed
from agent.failures import sentence_for
from agent.modes import MODES
from agent.outbox import Outbox
from agent.request import Request
from agent.speaker import Speaker, Speech
from agent.spoken import Spoken

log = logging.getLogger(__name__)

INTERRUPTED = "interrupted: the conversation went on with another prompt"


async def run_turn(
    request: Request,
    conversation: Conversation,
    speech: AbstractAsyncContextManager[Speech],
    filler: str = "",
    clock: Callable[[], float] = time.monotonic,
) -> AsyncGenerator[Event, None]:
    """Answer a prompt, in text and speech.

    Closing the generator, or cancelling whoever iterates, stops model and speech at once, and the conversation then
    remembers what was heard. `filler` is said while a tool runs.
    """
    outbox = Outbox()
    turn = asyncio.create_task(_Turn(request, conversation, speech, filler, outbox, clock).run())
    try:
        while (event := await outbox.take()) is not None:
            yield event
    finally:
        turn.cancel()
        await asyncio.gather(turn, return_exceptions=True)


@dataclass(frozen=True, slots=True)
class _Turn:
    request: Request
    conversation: Conversation
    speech: AbstractAsyncContextManager[Speech]
    filler: str
    outbox: Outbox
    clock: Callable[[], float]

    async def run(self) -> None:
        """Put every event of the turn into the outbox, the last one included."""
        request_id, outcome, began_s = self.request.request_id, "complete", self.clock()
        spoken = Spoken()
        try:
            await self.outbox.put(AgentStart(request_id, self.request.mode))
            async with self.conversation.turn(self.request.heard_s):
                await self._answer(spoken)
            await self.outbox.put(AgentEnd(request_id))
            await self.outbox.end()
        except asyncio.CancelledError:  # the caller has gone, and nobody reads this; or has sent another prompt
            outcome = "interrupted"
            self.outbox.interrupt(Failed(request_id, INTERRUPTED))
            raise
        except Exception as exc:  # the edge: whatever it was becomes the one error event
            outcome = "error"
            await self.outbox.put(Failed(request_id, sentence_for(exc, request_id)))
            await self.outbox.end()
        finally:
            now_s = self.clock()
            log.info(
                "request_id=%s mode=%s outcome=%s elapsed_s=%.3f played_s=%.3f",
                request_id, self.request.mode, outcome, now_s - began_s, spoken.played_s(now_s),
            )  # fmt: skip

    async def _answer(self, spoken: Spoken) -> None:
        conversation, request = self.conversation, self.request
        try:
            async with (
                self.speech as speech,
                aclosing(conversation.answer(request.prompt)) as answer,
            ):
                speaker = Speaker(speech, request, spoken, self.outbox, self.clock)
                await MODES[request.mode](request, answer, speaker, self.outbox, self.filler)
        except BaseException:
            conversation.broke_off(spoken, self.clock())
            raise
        conversation.ended(spoken)
