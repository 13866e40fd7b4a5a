"""A session for a single text, as `synthesize` wants it: in goes the text, out comes its audio."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager
from dataclasses import replace

from serve_app.client.errors import BrokenAnswer, error_of
from serve_app.client.session import Session, Words
from serve_app.client.types import Chunk, Options, Text, Word
from serve_app.errors import NothingToSpeak
from serve_app.protocol.messages import ErrorFrame, SynthesisCancelled, SynthesisComplete


async def spoken(
    connected: AbstractAsyncContextManager[Session], text: Text, options: Options
) -> AsyncGenerator[Chunk, None]:
    """See `SpeechClient.synthesize`; the session lasts as long as the text."""
    async with connected as session:
        sending = asyncio.create_task(_send(session, text, options))
        try:
            async for chunk in _audio(session):
                yield chunk
        except BrokenAnswer:
            if sending.done():
                sending.result()  # if the source of the text failed, that is the reason
            raise
        finally:
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)


async def _send(session: Session, text: Text, options: Options) -> None:
    if isinstance(text, str):
        await session.say(text, **options)
        return
    try:
        await session.feed("", **options)  # so that a source without a single piece is answered as well
        async for piece in text:
            await session.feed(piece)
        await session.end()
    except Exception:
        await session.cancel()  # its answer ends `_audio`
        raise


async def _audio(session: Session) -> AsyncGenerator[Chunk, None]:
    """The audio of a session's one utterance. Raises SpeechError; being cancelled is a BrokenAnswer."""
    words: tuple[Word, ...] = ()
    heard = False
    async for event in session:
        match event:
            case Chunk():
                yield replace(event, words=words)
                words, heard = (), True
            case Words():
                words += event.words
            case ErrorFrame():
                raise error_of(event.code, event.message, event.request_id)
            case SynthesisCancelled():
                raise BrokenAnswer("the text was cancelled")
            case SynthesisComplete() if not heard:  # over HTTP this is a refusal
                raise NothingToSpeak("the text has no speakable character")
            case SynthesisComplete():
                return
    raise BrokenAnswer("the server ended the session before it answered")
