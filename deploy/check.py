"""Does a deployed endpoint keep its promises? Each one is tried over the live endpoint, and told with its figures.

Nothing here stops at the first broken promise, and nothing is taken on trust: audio is counted in bytes.
"""

import argparse
import asyncio
import json
import statistics
import struct
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, TextIO

from deploy.options import add_setting_arguments, session_for, settings_from
from deploy.terminal import print_json

if TYPE_CHECKING:
    from serve_app.client.session import Session, SessionClient

SENTENCES = ("Hello there.", "This is a post deployment check.", "It has three sentences.")
PUBLISHED_BYTES = {"fp32 weights": (73_200, 108_000, 98_400), "8-bit weights": (74_400, 105_600, 98_400)}
"""Of the published live test, as PCM of 24 kHz with the default voice, and what the 8-bit copy of the weights gives."""

TEXT = (
    "One moment, please. I am looking at your order. It left the warehouse this morning. The driver has nine stops "
    "before yours. You are on the way home, I hope. It will be there before six. Is there anything else?"
)
LATE = 0.7
"""A stream of seven sentences that begins after this part of the time that all of them take is none."""

BYTES_PER_SECOND = 48_000
WAV_HEADER_BYTES = 44


@dataclass(frozen=True)
class Finding:
    """One promise, whether it was kept, and what was seen."""

    promise: str
    kept: bool
    seen: str


class Broken(Exception):
    """A promise was not kept; the message says what was seen instead."""


@dataclass(frozen=True)
class Wishes:
    """How much to try, and what to hold the endpoint to.

    Attributes:
        sessions: at the same time.
        utterances: for the percentiles of the time to first audio.
        ttfa_p95_s: that the 95th percentile has to keep to.
        published: bytes of SENTENCES that are right, by the weights that give them.
    """

    sessions: int = 8
    utterances: int = 10
    ttfa_p95_s: float = 1.0
    published: Mapping[str, tuple[int, ...]] = field(default_factory=lambda: PUBLISHED_BYTES)


@dataclass(frozen=True)
class Target:
    """An endpoint and the ways to it.

    Attributes:
        runtime: boto3's `sagemaker-runtime` client.
        status: of the endpoint, and why it failed; None where there is no such thing, as for a local endpoint.
    """

    endpoint: str
    runtime: Any
    bidirectional: "SessionClient"
    status: Callable[[], tuple[str, str]] | None = None


async def check(target: Target, wishes: Wishes) -> AsyncIterator[Finding]:
    """Try every promise in turn."""
    from botocore.exceptions import BotoCoreError, ClientError

    from serve_app.errors import SpeechError

    promises: list[tuple[str, Callable[[Target, Wishes], Awaitable[str]]]] = [
        ("a whole answer has true sizes", _whole_answer),
        ("a bad request is refused with its code", _refusal),
        ("a response stream begins before it ends", _response_stream),
        ("one session speaks three sentences in order", _three_sentences),
        ("first audio is early", _first_audio),
        ("sessions run side by side, each as if alone", _side_by_side),
    ]
    if target.status is not None:
        promises.insert(0, ("the endpoint is in service", _in_service))
    for promise, attempt in promises:
        try:
            yield Finding(promise, True, await attempt(target, wishes))
        except (Broken, SpeechError, ClientError, BotoCoreError, TimeoutError) as exc:
            yield Finding(promise, False, str(exc) or "nothing came in time")


async def _in_service(target: Target, _: Wishes) -> str:
    assert target.status is not None
    status, failure = await asyncio.to_thread(target.status)
    if status != "InService":
        raise Broken(f"{status}{failure and ': '}{failure}")
    return status


async def _invoke(target: Target, body: dict[str, Any]) -> tuple[str, bytes]:
    """Content type and body of an answer that comes at once."""

    def read() -> tuple[str, bytes]:
        answer = target.runtime.invoke_endpoint(
            EndpointName=target.endpoint, ContentType="application/json", Body=json.dumps(body)
        )
        return answer["ContentType"], answer["Body"].read()

    return await asyncio.to_thread(read)


async def _whole_answer(target: Target, _: Wishes) -> str:
    media_type, wav = await _invoke(target, {"text": SENTENCES[0], "stream": False})
    if media_type != "audio/wav" or wav[:4] != b"RIFF":
        raise Broken(f"{media_type}, {len(wav)} bytes, is no WAV file")
    told = struct.unpack("<I", wav[40:44])[0]
    if told != len(wav) - WAV_HEADER_BYTES or not told:
        raise Broken(f"the header tells {told} bytes of audio, and {len(wav) - WAV_HEADER_BYTES} follow")
    return f"{told} bytes, {told / BYTES_PER_SECOND:.3f} s"


async def _refusal(target: Target, _: Wishes) -> str:
    from botocore.exceptions import ClientError

    try:
        await _invoke(target, {"text": SENTENCES[0], "voice": "nobody"})
    except ClientError as exc:
        status = exc.response.get("OriginalStatusCode")
        told = str(exc.response.get("OriginalMessage", ""))
        if status == 400 and '"unknown_voice"' in told:
            return "400 unknown_voice"
        raise
    raise Broken("a voice that does not exist was spoken with")


async def _response_stream(target: Target, _: Wishes) -> str:
    def read() -> tuple[bytes, float]:
        began_s = time.monotonic()
        body = {"text": TEXT, "format": "pcm"}
        answer = target.runtime.invoke_endpoint_with_response_stream(
            EndpointName=target.endpoint, ContentType="application/json", Body=json.dumps(body)
        )
        parts, first_s = [], 0.0
        for event in answer["Body"]:
            if "PayloadPart" not in event:
                raise Broken(f"the stream broke off: {', '.join(event)}")
            parts.append(event["PayloadPart"]["Bytes"])
            first_s = first_s or time.monotonic() - began_s
        return b"".join(parts), first_s

    streamed, first_s = await asyncio.to_thread(read)
    began_s = time.monotonic()
    whole = (await _invoke(target, {"text": TEXT, "format": "pcm", "stream": False}))[1]
    whole_s = time.monotonic() - began_s
    if not streamed or len(streamed) != len(whole):
        raise Broken(f"{len(streamed)} bytes came as a stream, and {len(whole)} at once")
    seen = f"{len(streamed) / BYTES_PER_SECOND:.2f} s of audio, begun after {first_s:.2f} s; at once {whole_s:.2f} s"
    if first_s > LATE * whole_s:
        raise Broken(seen)
    return seen


@dataclass(frozen=True)
class _Heard:
    audio: bytes
    first_audio_s: float


async def _say(session: "Session", text: str) -> _Heard:
    """One utterance of an open session. Raises Broken, SpeechError."""
    from serve_app.client.errors import error_of
    from serve_app.client.types import Chunk
    from serve_app.protocol.messages import ErrorFrame, SynthesisComplete

    began_s, first_s, audio = time.monotonic(), 0.0, b""
    request_id = await session.say(text)
    async for event in session:
        match event:
            case Chunk():
                first_s = first_s or time.monotonic() - began_s
                audio += event.data
            case SynthesisComplete():
                if event.request_id != request_id:
                    raise Broken("an utterance was answered that was not the one in hand")
                return _Heard(audio, first_s)
            case ErrorFrame():
                raise error_of(event.code, event.message, event.request_id)
    raise Broken("the session ended before it answered")


async def _three(session: "Session") -> tuple[int, ...]:
    """Bytes of the three sentences, one message each, and a polite end."""
    heard = [await _say(session, sentence) for sentence in SENTENCES]
    await session.close()
    async for _ in session:
        raise Broken("something came after the last sentence")
    return tuple(len(each.audio) for each in heard)


async def _three_sentences(target: Target, wishes: Wishes) -> str:
    async with target.bidirectional.session() as session:
        got = await _three(session)
    weights = next((name for name, published in wishes.published.items() if published == got), None)
    if weights is None:
        raise Broken(f"{_sizes(got)}; published are {' or '.join(map(_sizes, wishes.published.values()))}")
    return f"{_sizes(got)}, as published for {weights}"


async def _first_audio(target: Target, wishes: Wishes) -> str:
    async with target.bidirectional.session() as session:
        heard = [await _say(session, SENTENCES[1]) for _ in range(wishes.utterances)]
    times_s = sorted(each.first_audio_s for each in heard)
    p50_s, p95_s = statistics.median(times_s), times_s[int(0.95 * (len(times_s) - 1) + 0.5)]
    figures = f"p50 {p50_s:.3f} s, p95 {p95_s:.3f} s, slowest {times_s[-1]:.3f} s of {len(times_s)}"
    if p95_s > wishes.ttfa_p95_s:
        raise Broken(f"{figures}; p95 was to be at most {wishes.ttfa_p95_s:g} s")
    return figures


async def _side_by_side(target: Target, wishes: Wishes) -> str:
    async with AsyncExitStack() as stack:
        sessions = [await stack.enter_async_context(target.bidirectional.session()) for _ in range(wishes.sessions)]
        began_s = time.monotonic()
        async with asyncio.TaskGroup() as tasks:
            speaking = [tasks.create_task(_kept(_three(session))) for session in sessions]
        took_s = time.monotonic() - began_s
    results = [each.result() for each in speaking]
    failures = [result for result in results if isinstance(result, Exception)]
    if failures:
        raise Broken(f"{len(failures)} of {len(results)} sessions failed; the first: {failures[0]}")
    sizes = [result for result in results if isinstance(result, tuple)]
    if len(set(sizes)) > 1:
        raise Broken(f"the same sentences had different sizes: {' and '.join(map(_sizes, set(sizes)))}")
    return f"{len(sizes)} sessions, {sum(map(sum, sizes)) / BYTES_PER_SECOND:.1f} s of audio in {took_s:.1f} s"


async def _kept[T](work: Awaitable[T]) -> T | Exception:
    """A failure as a value: the other sessions go on."""
    from serve_app.errors import SpeechError

    try:
        return await work
    except (Broken, SpeechError) as exc:
        return exc


def _sizes(counts: Sequence[int]) -> str:
    return " / ".join(f"{count} B ({count / BYTES_PER_SECOND:.3f} s)" for count in counts)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The subcommand's options."""
    add_setting_arguments(parser)
    parser.add_argument("--sessions", type=int, default=Wishes.sessions, help="at once (default: %(default)s)")
    parser.add_argument(
        "--utterances", type=int, default=Wishes.utterances, help="for the percentiles (default: %(default)s)"
    )
    parser.add_argument(
        "--ttfa-p95", type=float, default=Wishes.ttfa_p95_s, metavar="S", help="to hold it to (default: %(default)s)"
    )
    parser.add_argument("--runtime-url", help="of a local endpoint: its HTTP/1.1 side; there is no control plane then")
    parser.add_argument("--bidirectional-uri", help="of a local endpoint: its HTTP/2 side")
    parser.add_argument("--json", action="store_true", help="the findings as JSON")


def run(options: argparse.Namespace) -> int:
    """1 where a promise was broken."""
    target = _local(options) if options.runtime_url else _deployed(options)
    wishes = Wishes(options.sessions, options.utterances, options.ttfa_p95)
    findings = asyncio.run(_told(target, wishes, sys.stderr if options.json else sys.stdout))
    if options.json:
        print_json([asdict(finding) for finding in findings])
    broken = [finding.promise for finding in findings if not finding.kept]
    print(f"broken: {'; '.join(broken)}" if broken else "every promise is kept", file=sys.stderr)
    return 1 if broken else 0


async def _told(target: Target, wishes: Wishes, where: TextIO) -> list[Finding]:
    findings = []
    async for finding in check(target, wishes):
        print(f"{'ok    ' if finding.kept else 'BROKEN'}  {finding.promise}: {finding.seen}", file=where, flush=True)
        findings.append(finding)
    return findings


def _deployed(options: argparse.Namespace) -> Target:
    from serve_app.client.bidirectional import BidirectionalClient

    settings = settings_from(options)
    aws = session_for(settings)

    def status() -> tuple[str, str]:
        found = aws.client("sagemaker").describe_endpoint(EndpointName=settings.name)
        return found["EndpointStatus"], found.get("FailureReason", "")

    bidirectional = BidirectionalClient(settings.name, region=settings.region, boto_session=aws.session)
    return Target(settings.name, aws.client("sagemaker-runtime"), bidirectional, status)


def _local(options: argparse.Namespace) -> Target:
    """In front of a container on this machine; credentials come from the environment, and are no real ones."""
    import boto3

    from deploy.errors import DeployError
    from serve_app.client.bidirectional import BidirectionalClient

    if not options.bidirectional_uri:
        raise DeployError("a local endpoint has two sides: give --bidirectional-uri as well")
    region, name = options.region or "us-east-1", options.name or "tts"
    session = boto3.Session(region_name=region, profile_name=options.profile)
    runtime = session.client("sagemaker-runtime", endpoint_url=options.runtime_url)
    bidirectional = BidirectionalClient(name, endpoint_uri=options.bidirectional_uri, boto_session=session)
    return Target(name, runtime, bidirectional)
