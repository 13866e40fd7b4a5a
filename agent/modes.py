"""Two ways from a model's text to its sound: while it is being written, or afterwards."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

from agent.conversation import Written
from agent.events import TextDelta
from agent.outbox import Outbox
from agent.request import Request
from agent.speaker import Speaker
from serve_app.text.chunker import IncrementalSentenceChunker, is_speakable

Answer = AsyncIterator[Written]
Mode = Callable[[Request, Answer, Speaker, Outbox, str], Awaitable[None]]


async def run_bidi(request: Request, answer: Answer, speaker: Speaker, outbox: Outbox, filler: str) -> None:
    """Speak every sentence as soon as the model has finished writing it.

    Text and audio meet in the outbox as they happen: audio of sentence 1 can leave while sentence 3 is being written.
    While a tool runs, what was written so far and then `filler` is said. A failure on either side ends the other.
    """
    chunker = IncrementalSentenceChunker()
    text = _Text(request, outbox)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(speaker.listen())
        async for written in answer:
            if isinstance(written, str):
                await text.show(written)
                for sentence in chunker.feed(written):
                    await speaker.say(sentence)
            else:
                await _say_rest(chunker, speaker)
                await text.pause()
                if filler:
                    await text.show(filler)
                    await text.pause()
                    await speaker.say(filler, aside=True)
        await _say_rest(chunker, speaker)
        await speaker.finish()


async def run_batch(request: Request, answer: Answer, speaker: Speaker, outbox: Outbox, filler: str) -> None:
    """Speak the whole answer, in one call, once the model has written it: what most integrations do, to compare."""
    text = _Text(request, outbox)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(speaker.listen())
        async for written in answer:
            if isinstance(written, str):
                await text.show(written)
            else:
                await text.pause()
        if is_speakable(text.whole):
            await speaker.say(text.whole)
        await speaker.finish()


MODES: dict[str, Mode] = {"bidi": run_bidi, "batch": run_batch}


class _Text:
    """The text as the caller sees it grow."""

    def __init__(self, request: Request, outbox: Outbox) -> None:
        self._request, self._outbox = request, outbox
        self._seq = 0
        self.whole = ""

    async def show(self, piece: str) -> None:
        if piece:
            await self._outbox.put(TextDelta(self._request.request_id, self._seq, piece))
            self._seq += 1
            self.whole += piece

    async def pause(self) -> None:
        """What follows is not the same sentence."""
        if self.whole and not self.whole[-1].isspace():
            await self.show(" ")


async def _say_rest(chunker: IncrementalSentenceChunker, speaker: Speaker) -> None:
    rest = chunker.flush()
    if rest is not None:
        await speaker.say(rest)
