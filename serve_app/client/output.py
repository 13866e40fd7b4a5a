"""Where the `say` command puts audio: a WAV file, a pipe, a player."""

import asyncio
import os
import shutil
import struct
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Protocol

UNKNOWN_BYTES = 0xFFFFFFFF - 36
"""The length of audio in the header of a stream, which nobody can go back to."""

PLAYERS: dict[str, str] = {
    "ffplay": "-nodisp -autoexit -loglevel error -f s16le -sample_rate {rate} -i -",
    "aplay": "-q -t raw -f S16_LE -c 1 -r {rate}",
    "paplay": "--raw --format=s16le --channels=1 --rate={rate}",
    "play": "-q -t raw -e signed -b 16 -c 1 -r {rate} -",
}
"""Programs that play PCM s16le from their standard input, and how they are told what it is."""


def wav_header(sample_rate: int, data_bytes: int) -> bytes:
    """The 44 bytes before mono PCM s16le: RIFF, a `fmt ` chunk, the head of a `data` chunk."""
    return struct.pack(
        "<4sI4s4sIHHIIHH4sI",
        *(b"RIFF", 36 + data_bytes, b"WAVE", b"fmt ", 16),
        *(1, 1, sample_rate, 2 * sample_rate, 2, 16),
        *(b"data", data_bytes),
    )


def write_wav(path: Path, pcm: bytes, sample_rate: int) -> None:
    """Write a file at once or not at all: what is there before stays until the new one is whole. Raises OSError."""
    wav = wav_header(sample_rate, len(pcm)) + pcm
    path = path.resolve()  # through a link, which stays
    if path.exists() and not path.is_file():
        path.write_bytes(wav)  # a device or a pipe is written to, not replaced
        return
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(wav)
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(temporary, 0o666 & ~umask)  # mkstemp makes a file for its owner alone
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


class Sink(Protocol):
    """Takes the PCM s16le of one text."""

    async def write(self, pcm: bytes, sample_rate: int) -> None:
        """Take a slice. Raises OSError."""
        ...

    async def finish(self) -> str:
        """The text is over: waits until its audio is where it should be, and says where. Raises OSError."""
        ...

    async def abort(self) -> None:
        """The text failed."""
        ...


class WavFile:
    """A file, written when the audio is whole."""

    def __init__(self, path: Path) -> None:
        self._path, self._pcm, self._sample_rate = path, bytearray(), 0

    async def write(self, pcm: bytes, sample_rate: int) -> None:
        """See `Sink`."""
        self._pcm += pcm
        self._sample_rate = sample_rate

    async def finish(self) -> str:
        """See `Sink`."""
        write_wav(self._path, bytes(self._pcm), self._sample_rate)
        return f"written to {self._path}"

    async def abort(self) -> None:
        """Nothing was written."""


class Pipe:
    """WAV on a stream that cannot be sought, while it comes."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._begun = False

    async def write(self, pcm: bytes, sample_rate: int) -> None:
        """See `Sink`."""
        if not self._begun:
            self._file.write(wav_header(sample_rate, UNKNOWN_BYTES))
            self._begun = True
        self._file.write(pcm)
        self._file.flush()

    async def finish(self) -> str:
        """See `Sink`."""
        return "written to standard output"

    async def abort(self) -> None:
        """Whoever reads sees the end of the stream."""


def find_player() -> str | None:
    """The first of PLAYERS that is installed."""
    return next(filter(shutil.which, PLAYERS), None)


class Player:
    """A program that plays while audio comes. It plays in real time, and the server is not held up by that.

    Where it fails, as on a machine without a sound card, the audio goes to a file.
    """

    def __init__(self, name: str, instead: WavFile) -> None:
        self._name, self._instead = name, instead
        self._process: asyncio.subprocess.Process | None = None

    async def write(self, pcm: bytes, sample_rate: int) -> None:
        """See `Sink`."""
        await self._instead.write(pcm, sample_rate)
        if self._process is None:
            self._process = await asyncio.create_subprocess_exec(
                self._name,
                *PLAYERS[self._name].format(rate=sample_rate).split(),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.DEVNULL,
            )
        stdin = self._process.stdin
        if stdin is not None and not stdin.is_closing():
            stdin.write(pcm)  # without drain(): what the player does not take yet waits in memory

    async def finish(self) -> str:
        """See `Sink`."""
        if self._process is None:
            raise RuntimeError("there is nothing to play")
        if await self._ended(self._process) == 0:
            return f"played by {self._name}"
        return f"{await self._instead.finish()}, as {self._name} could not play it"

    async def abort(self) -> None:
        """Be silent at once."""
        if self._process is not None:
            if self._process.returncode is None:
                self._process.kill()
            await self._ended(self._process)  # else its pipe outlives the event loop, which complains

    async def _ended(self, process: asyncio.subprocess.Process) -> int:
        if process.stdin is not None:
            with suppress(BrokenPipeError, ConnectionResetError):
                process.stdin.close()
                await process.stdin.wait_closed()
        return await process.wait()
