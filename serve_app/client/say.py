"""The `say` command: a text in, speech out, and how fast it came."""

import argparse
import asyncio
import codecs
import os
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import TextIO

from serve_app.client.errors import UnexpectedAnswer, Unreachable
from serve_app.client.http import HttpClient
from serve_app.client.output import Pipe, Player, Sink, WavFile, find_player
from serve_app.client.types import Options, SpeechClient, Text
from serve_app.client.websocket import WebSocketClient
from serve_app.errors import SpeechError

KEY = "SPEECH_API_KEY"
DEFAULT_SERVER = "http://127.0.0.1:8000"
DEFAULT_FILE = Path("speech.wav")
FAILED, BAD_ARGUMENTS, UNREACHABLE, INTERRUPTED = 1, 2, 3, 130
_READ_BYTES = 65536

_EPILOG = f"""\
Without --output the audio is played by ffplay, aplay, paplay or play, whichever is found first, else written to
{DEFAULT_FILE}. TTFA is the time from the text to the first audio, RTF wall seconds per second of audio.
The environment variable {KEY} has the server's API key, where it asks for one.
Exit status: 0 spoken, {FAILED} refused or failed, {BAD_ARGUMENTS} wrong arguments, {UNREACHABLE} no server,
{INTERRUPTED} interrupted."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit status. Only `--output -` writes to standard output."""
    parser = _parser()
    args = parser.parse_args(arguments)
    output = None if args.output is None or args.output == "-" else Path(args.output)
    if output is not None and (output.is_dir() or not output.parent.is_dir()):
        parser.error(f"{output} cannot be a file")
    try:
        client = open_client(args.url, args.transport, os.environ.get(KEY))
    except ValueError as exc:
        parser.error(str(exc))
    if args.output == "-":
        sink: Sink = Pipe(sys.stdout.buffer)
    elif output is None and (player := find_player()) is not None:
        sink = Player(player, instead=WavFile(DEFAULT_FILE))
    else:
        sink = WavFile(output or DEFAULT_FILE)
    try:
        asyncio.run(_say(client, args, sink))
    except Unreachable:
        return _complain(
            UNREACHABLE, f"no server answers at {args.url}; uv run serve run configs/local.yaml starts one"
        )
    except SpeechError as exc:
        return _complain(FAILED, exc.message)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # else the interpreter's own flush complains
        return FAILED
    except OSError as exc:
        return _complain(FAILED, f"the audio cannot be written: {exc.strerror}")
    except KeyboardInterrupt:
        return INTERRUPTED
    return 0


def open_client(server: str, transport: str, key: str | None) -> SpeechClient:
    """The client for `ws`, `http` or `sse`. Raises ValueError on an address or a key that is none."""
    if transport == "ws":
        return WebSocketClient(server, key)
    return HttpClient(server, "sse" if transport == "sse" else "binary", key)


class Progress:
    """What is known about the speed so far, on one line. Time is that of one monotonic clock."""

    def __init__(self, screen: TextIO) -> None:
        self._screen = screen
        self._begun_s: float | None = None
        self._first_s = self._last_s = self._audio_s = 0.0

    def begin(self, now_s: float) -> None:
        """There is text to speak; only the first call counts."""
        if self._begun_s is None:
            self._begun_s = now_s

    def heard(self, audio_s: float, now_s: float) -> None:
        """So much more audio has come."""
        if not self._audio_s:
            self._first_s = now_s
        self._last_s = now_s
        self._audio_s += audio_s
        if self._screen.isatty():
            self._screen.write(f"\r{self}\x1b[K")
            self._screen.flush()

    def finish(self, where: str) -> None:
        """The last word."""
        self.clear()
        self._screen.write(f"{self}; {where}\n")

    def clear(self) -> None:
        """Make the line free for something else."""
        if self._screen.isatty():
            self._screen.write("\r\x1b[K")

    def __str__(self) -> str:
        begun_s = self._begun_s or 0.0
        rtf = (self._last_s - begun_s) / self._audio_s if self._audio_s else 0.0
        return f"{self._audio_s:.3f} s of audio, TTFA {self._first_s - begun_s:.3f} s, RTF {rtf:.3f}"


async def _say(client: SpeechClient, args: argparse.Namespace, sink: Sink) -> None:
    progress = Progress(sys.stderr)
    try:
        async with aclosing(client.synthesize(_text(args, progress), **_options(args))) as chunks:
            async for chunk in chunks:
                if chunk.audio.format != "pcm" or chunk.audio.sample_rate is None:
                    raise UnexpectedAnswer("the server did not answer with PCM")
                progress.heard(len(chunk.data) / 2 / chunk.audio.sample_rate, time.monotonic())
                await sink.write(chunk.data, chunk.audio.sample_rate)
        progress.finish(await sink.finish())
    except BaseException:
        await sink.abort()
        progress.clear()
        raise
    finally:
        await client.aclose()


def _text(args: argparse.Namespace, progress: Progress) -> Text:
    if args.text == ["-"]:
        return typed(sys.stdin.fileno(), progress)
    progress.begin(time.monotonic())
    return " ".join(args.text)


async def typed(descriptor: int, progress: Progress) -> AsyncIterator[str]:
    """Text as it comes, in whole characters; bytes that are none are left out. Progress begins with the first of it."""
    decoder = codecs.getincrementaldecoder("utf-8")("ignore")
    while data := await _read(descriptor):
        progress.begin(time.monotonic())
        if text := decoder.decode(data):
            yield text


async def _read(descriptor: int) -> bytes:
    loop = asyncio.get_running_loop()
    readable = asyncio.Event()
    try:
        loop.add_reader(descriptor, readable.set)
    except PermissionError:
        return os.read(descriptor, _READ_BYTES)  # a regular file, which never makes anybody wait
    try:
        await readable.wait()
    finally:
        loop.remove_reader(descriptor)
    return os.read(descriptor, _READ_BYTES)


def _options(args: argparse.Namespace) -> Options:
    options: Options = {}
    if args.voice is not None:
        options["voice"] = args.voice
    if args.speed is not None:
        options["speed"] = args.speed
    if args.lang is not None:
        options["lang"] = args.lang
    return options


def _complain(status: int, sentence: str) -> int:
    print(f"say: {sentence}", file=sys.stderr)
    return status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="say", description="Speak a text.", epilog=_EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("text", nargs="+", help='what to say; "-" reads it from standard input')
    parser.add_argument("--url", default=DEFAULT_SERVER, help="the server (%(default)s)")
    parser.add_argument(
        "--transport",
        choices=("ws", "http", "sse"),
        default="ws",
        help="ws speaks standard input while it is being written, the others when it is whole (%(default)s)",
    )
    parser.add_argument("--voice", help="such as af_heart")
    parser.add_argument("--speed", type=float, help="0.25 to 4.0")
    parser.add_argument("--lang", help="a language code, such as a for American English")
    parser.add_argument("--output", metavar="FILE.wav", help='write a file; "-" is standard output')
    return parser


if __name__ == "__main__":
    sys.exit(main())
