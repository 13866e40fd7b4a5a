"""What a conversation can rely on, whichever transport carries it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing

import pytest

from serve_app.client.errors import BrokenAnswer
from serve_app.client.http import HttpClient
from serve_app.client.session import Event, Session, SessionClient, Words
from serve_app.client.types import Chunk
from serve_app.errors import NothingToSpeak, UnknownVoice
from serve_app.protocol.messages import ErrorFrame, SynthesisCancelled, SynthesisComplete, SynthesisStart
from tests.client.hostile import HANG_S, collected, joined

TEXT = "Hello there. How are you?"


async def next_of[E](session: Session, kind: type[E]) -> E:
    """Read on to an event of this kind."""
    async with asyncio.timeout(HANG_S):
        async for event in session:
            if isinstance(event, kind):
                return event
    raise AssertionError("the session has ended")


def audio_of(events: list[Event], request_id: str) -> bytes:
    return joined(event for event in events if isinstance(event, Chunk) and event.request_id == request_id)


def test_the_audio_is_that_of_a_request(client: SessionClient, server: str) -> None:
    over_http = asyncio.run(collected(HttpClient(server).synthesize(TEXT)))
    assert joined(asyncio.run(collected(client.synthesize(TEXT)))) == joined(over_http)


def test_words_come_with_the_audio_they_begin_in(client: SessionClient) -> None:
    chunks = asyncio.run(collected(client.synthesize(TEXT, timestamps=True)))
    words = [word for chunk in chunks if chunk.data for word in chunk.words]
    assert " ".join(word.text for word in words) == TEXT
    assert words[0].start_s == 0.05


def test_the_first_sentence_is_heard_before_the_second_one_is_written(client: SessionClient) -> None:
    async def scenario() -> None:
        first_heard = asyncio.Event()

        async def written() -> AsyncIterator[str]:
            for piece in ("Hel", "lo there.", " How"):
                yield piece
            await first_heard.wait()
            yield " are you?"

        audio = b""
        async with asyncio.timeout(HANG_S):
            async for chunk in client.synthesize(written()):
                first_heard.set()
                audio += chunk.data
        assert audio == joined(await collected(client.synthesize(TEXT)))

    asyncio.run(scenario())


def test_a_text_without_a_piece_has_nothing_to_speak(client: SessionClient) -> None:
    async def nothing() -> AsyncIterator[str]:
        for piece in ():
            yield piece

    with pytest.raises(NothingToSpeak):
        asyncio.run(collected(client.synthesize(nothing())))
    with pytest.raises(NothingToSpeak):
        asyncio.run(collected(client.synthesize("...")))


def test_what_fails_at_the_source_of_a_text_reaches_the_caller(client: SessionClient) -> None:
    class ModelFailed(Exception):
        pass

    async def failing() -> AsyncIterator[str]:
        yield "Hello there. How"
        raise ModelFailed

    with pytest.raises(ModelFailed):
        asyncio.run(collected(client.synthesize(failing())))


def test_sentences_of_one_session_are_heard_in_order_each_as_on_its_own(client: SessionClient, server: str) -> None:
    sentences = ["Hello there.", "This is a post deployment check.", "It has three sentences."]

    async def scenario() -> list[bytes]:
        async with client.session() as session:
            ids = [await session.say(sentence) for sentence in sentences]
            await session.close()
            async with asyncio.timeout(HANG_S):
                events = [event async for event in session]
        assert [event.request_id for event in events if isinstance(event, SynthesisStart)] == ids
        assert [event.request_id for event in events if isinstance(event, SynthesisComplete)] == ids
        return [audio_of(events, request_id) for request_id in ids]

    alone = [joined(asyncio.run(collected(HttpClient(server).synthesize(sentence)))) for sentence in sentences]
    assert asyncio.run(scenario()) == alone


def test_a_session_goes_on_after_a_cancel_and_after_an_error(client: SessionClient) -> None:
    async def scenario() -> None:
        async with client.session(voice="af_bella", timestamps=True) as session:
            long = await session.say("This is a sentence. " * 200)
            assert (await next_of(session, SynthesisStart)).request_id == long
            await next_of(session, Chunk)
            await session.cancel()
            assert (await next_of(session, SynthesisCancelled)).request_id == long
            bad = await session.say("Hello.", voice="nobody")
            assert (await next_of(session, ErrorFrame)).request_id == bad
            fed = await session.feed("Good")
            await session.feed("bye.")
            await session.end()
            assert (await next_of(session, Words)).words[0].text == "Goodbye."
            assert (await next_of(session, Chunk)).request_id == fed
            await session.close()
            assert (await next_of(session, SynthesisComplete)).total_duration_s > 0
            assert [event async for event in session] == []
            with pytest.raises(BrokenAnswer):
                await session.say("Too late.")

    asyncio.run(scenario())


def test_a_wait_for_the_next_event_may_be_given_up(client: SessionClient) -> None:
    async def scenario() -> None:
        async with client.session() as session:
            waiting = asyncio.create_task(anext(session))
            await asyncio.wait({waiting}, timeout=0)
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
            said = await session.say(TEXT)
            assert (await next_of(session, SynthesisComplete)).request_id == said

    asyncio.run(scenario())


def test_twenty_sessions_at_once_do_not_mix(client: SessionClient) -> None:
    texts = [f"Hello{' again' * number}." for number in range(20)]

    async def scenario() -> list[bytes]:
        answers = await asyncio.gather(*(collected(client.synthesize(text)) for text in texts))
        return [joined(chunks) for chunks in answers]

    async def one_by_one() -> list[bytes]:
        return [joined(await collected(client.synthesize(text))) for text in texts]

    assert asyncio.run(scenario()) == asyncio.run(one_by_one())


def test_a_refused_message_is_the_exception_of_its_code(client: SessionClient) -> None:
    with pytest.raises(UnknownVoice, match="af_heart") as caught:
        asyncio.run(collected(client.synthesize(TEXT, voice="af_hart", request_id="mine")))
    assert caught.value.request_id == "mine"


def test_leaving_in_the_middle_is_no_failure(client: SessionClient) -> None:
    async def scenario() -> None:
        async with aclosing(client.synthesize("This is a sentence. " * 200)) as chunks:
            assert (await anext(chunks)).data
        assert joined(await collected(client.synthesize(TEXT)))
        await client.aclose()

    asyncio.run(scenario())
