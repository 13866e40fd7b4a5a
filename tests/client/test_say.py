"""The `say` command against the product's own server."""

import asyncio
import io
import os
import re
import select
import signal
import stat
import struct
import subprocess
import sys
import threading
import wave
from collections.abc import Iterator
from pathlib import Path

import pytest

from serve_app.client import say
from serve_app.client.output import PLAYERS, UNKNOWN_BYTES, WavFile, wav_header, write_wav
from serve_app.client.websocket import WebSocketClient
from tests.client.hostile import HANG_S, Exchange, collected, http_server, joined
from tests.client.streams import PCM

TEXT = "Hello there. How are you?"
SUMMARY = re.compile(r"^(\d+\.\d{3}) s of audio, TTFA (\d+\.\d{3}) s, RTF (\d+\.\d{3}); (.+)\n$")


@pytest.fixture(autouse=True)
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No player is installed, and what is written lands in a folder of the test's own."""
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def spoken(server: str) -> bytes:
    """The PCM of TEXT."""
    return joined(asyncio.run(collected(WebSocketClient(server).synthesize(TEXT))))


def install(name: str, script: str) -> None:
    """A player that does what a test wants."""
    player = Path("bin", name)
    player.write_text(f"#!/bin/sh\n{script}\n")
    player.chmod(0o755)


def pcm_of(path: str) -> bytes:
    with wave.open(path) as file:
        assert (file.getnchannels(), file.getsampwidth(), file.getframerate()) == (1, 2, 24000)
        return file.readframes(file.getnframes())


@pytest.mark.parametrize("transport", ["ws", "http", "sse"])
def test_a_wav_file_is_written_and_the_speed_is_told(
    server: str, spoken: bytes, transport: str, capfd: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--url", server, "--transport", transport, "--output", "a.wav"]
    assert say.main([*TEXT.split(), *arguments]) == 0
    assert pcm_of("a.wav") == spoken
    stdout, stderr = capfd.readouterr()
    told = SUMMARY.match(stderr)
    assert told is not None
    assert float(told[1]) == pytest.approx(len(spoken) / 48000, abs=0.001)
    assert told[4] == "written to a.wav"
    assert stdout == ""
    assert sorted(os.listdir()) == ["a.wav", "bin"]


def test_options_reach_the_server(server: str, spoken: bytes) -> None:
    arguments = ["--url", server, "--speed", "0.5", "--voice", "af_bella", "--lang", "a", "--output", "slow.wav"]
    assert say.main([TEXT, *arguments]) == 0
    assert len(pcm_of("slow.wav")) > 1.5 * len(spoken)


def test_without_a_player_a_file_is_written(server: str, spoken: bytes, capfd: pytest.CaptureFixture[str]) -> None:
    assert say.main([TEXT, "--url", server]) == 0
    assert pcm_of("speech.wav") == spoken
    assert "written to speech.wav" in capfd.readouterr().err


@pytest.mark.parametrize("name", PLAYERS)
def test_the_player_that_is_there_gets_the_audio(
    server: str, spoken: bytes, name: str, capfd: pytest.CaptureFixture[str]
) -> None:
    install(name, '/bin/cat > heard; echo "$@" > told; echo noise; echo noise >&2')
    assert say.main([TEXT, "--url", server]) == 0
    assert Path("heard").read_bytes() == spoken
    assert "24000" in Path("told").read_text()
    assert not Path("speech.wav").exists()
    stdout, stderr = capfd.readouterr()
    assert stderr.endswith(f"; played by {name}\n")
    assert "noise" not in stdout + stderr


@pytest.mark.parametrize("script", ["exit 1", "/bin/cat > heard; exit 1"])
def test_where_the_player_fails_the_audio_is_in_a_file(
    server: str, spoken: bytes, script: str, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    install("aplay", script)
    assert say.main([f"{TEXT} " * 20, "--url", server]) == 0
    assert pcm_of("speech.wav").startswith(spoken[:20000])
    assert caplog.records == []
    assert capfd.readouterr().err.endswith("written to speech.wav, as aplay could not play it\n")


def test_standard_output_is_a_wav_stream_and_nothing_else(
    server: str, spoken: bytes, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    install("aplay", "exit 1")
    assert say.main([TEXT, "--url", server, "--output", "-"]) == 0
    assert capfdbinary.readouterr().out == wav_header(24000, UNKNOWN_BYTES) + spoken
    assert struct.unpack("<I", wav_header(24000, UNKNOWN_BYTES)[4:8]) == (0xFFFFFFFF,)


@pytest.fixture
def typist(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """The end of a pipe whose other end is standard input."""
    reading, writing = os.pipe()
    with os.fdopen(reading) as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        yield writing


def test_standard_input_is_spoken_while_it_is_written(server: str, spoken: bytes, typist: int) -> None:
    """The typist ends the text only when its first sentence has been played."""
    os.mkfifo("heard")
    install("aplay", "/bin/cat > heard")

    def type_and_listen() -> None:
        os.write(typist, b"Hello there. How are")
        with open("heard", "rb") as player:
            first = player.read(1)
            os.write(typist, b" you?")
            os.close(typist)
            heard.append(first + player.read())

    heard: list[bytes] = []
    thread = threading.Thread(target=type_and_listen)
    thread.start()
    assert say.main(["-", "--url", server]) == 0
    thread.join()
    assert heard == [spoken]


@pytest.mark.parametrize("transport", ["ws", "http"])
def test_no_character_of_standard_input_is_cut(
    server: str, typist: int, transport: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(say, "_READ_BYTES", 1)
    text = "Caf\u00e9 \U0001f327 na\u00efve."
    os.write(typist, text.encode() + "\U0001f327".encode()[:2])
    os.close(typist)
    assert say.main(["-", "--url", server, "--transport", transport, "--output", "a.wav"]) == 0
    assert pcm_of("a.wav") == joined(asyncio.run(collected(WebSocketClient(server).synthesize(text))))


def test_standard_input_may_be_a_file(server: str, spoken: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("text").write_text(TEXT)
    with open("text") as file:
        monkeypatch.setattr(sys, "stdin", file)
        assert say.main(["-", "--url", server, "--output", "a.wav"]) == 0
    assert pcm_of("a.wav") == spoken


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--voice", "af_hart"], "say: unknown voice 'af_hart'; did you mean af_heart"),
        (["--transport", "sse", "--speed", "9"], "say: speed must be a number from 0.25 to 4.0"),
    ],
)
def test_a_refusal_is_one_sentence(
    server: str, arguments: list[str], sentence: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert say.main([TEXT, "--url", server, "--output", "a.wav", *arguments]) == 1
    stdout, stderr = capfd.readouterr()
    assert stderr.startswith(sentence)
    assert stderr.count("\n") == 1
    assert stdout == ""
    assert not Path("a.wav").exists()


@pytest.mark.parametrize("transport", ["ws", "http", "sse"])
def test_a_server_that_is_not_there_is_told_with_how_to_start_one(
    transport: str, capfd: pytest.CaptureFixture[str]
) -> None:
    async def free_address() -> str:
        async with http_server(lambda exchange: exchange.hung_up()) as server:
            return server.url

    url = asyncio.run(free_address())
    assert say.main([TEXT, "--url", url, "--transport", transport]) == 3
    assert (
        capfd.readouterr().err == f"say: no server answers at {url}; uv run serve run configs/local.yaml starts one\n"
    )


def test_an_answer_that_breaks_off_leaves_the_old_file(capfd: pytest.CaptureFixture[str]) -> None:
    Path("a.wav").write_bytes(b"old")

    async def broken(exchange: Exchange) -> None:
        await exchange.answer("audio/pcm;rate=24000", [PCM], whole=False)

    async def scenario() -> int:
        async with http_server(broken) as server:
            arguments = [TEXT, "--url", server.url, "--transport", "http", "--output", "a.wav"]
            return await asyncio.to_thread(say.main, arguments)

    assert asyncio.run(scenario()) == 1
    assert capfd.readouterr().err == "say: the answer broke off\n"
    assert Path("a.wav").read_bytes() == b"old"
    assert sorted(os.listdir()) == ["a.wav", "bin"]


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        [TEXT, "--url", "127.0.0.1:8000"],
        [TEXT, "--transport", "pigeon"],
        [TEXT, "--speed", "fast"],
        [TEXT, "--output", "no/such/folder/a.wav"],
        [TEXT, "--output", "."],
    ],
)
def test_wrong_arguments_are_refused_before_anything_is_spoken(
    arguments: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        say.main(arguments)
    assert caught.value.code == 2
    assert capfd.readouterr().out == ""


def test_a_file_is_replaced_as_a_whole_with_the_usual_rights() -> None:
    Path("a.wav").write_bytes(b"old")
    old = os.umask(0o027)
    try:
        write_wav(Path("a.wav"), PCM, 24000)
    finally:
        os.umask(old)
    assert pcm_of("a.wav") == PCM
    assert stat.S_IMODE(os.stat("a.wav").st_mode) == 0o640
    assert sorted(os.listdir()) == ["a.wav", "bin"]


def test_a_link_stays_and_a_pipe_is_written_to() -> None:
    os.symlink("real.wav", "link.wav")
    write_wav(Path("link.wav"), PCM, 24000)
    assert Path("link.wav").is_symlink()
    assert pcm_of("real.wav") == PCM

    os.mkfifo("pipe.wav")
    heard: list[bytes] = []
    reader = threading.Thread(target=lambda: heard.append(Path("pipe.wav").read_bytes()))
    reader.start()
    asyncio.run(_finished(WavFile(Path("pipe.wav"))))
    reader.join()
    assert heard == [wav_header(24000, len(PCM)) + PCM]


async def _finished(sink: WavFile) -> None:
    await sink.write(PCM, 24000)
    await sink.finish()


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_is_one_line_that_is_written_over() -> None:
    screen = Screen()
    progress = say.Progress(screen)
    progress.begin(10.0)
    progress.begin(11.0)
    progress.heard(0.5, 10.25)
    progress.heard(1.5, 11.0)
    progress.finish("played")
    lines = screen.getvalue().split("\r")
    assert lines[1] == "0.500 s of audio, TTFA 0.250 s, RTF 0.500\x1b[K"
    assert lines[2] == "2.000 s of audio, TTFA 0.250 s, RTF 0.500\x1b[K"
    assert lines[3] == "\x1b[K2.000 s of audio, TTFA 0.250 s, RTF 0.500; played\n"


def test_an_interrupt_silences_the_player_and_prints_no_traceback(server: str) -> None:
    install("aplay", "echo $$ > told; exec /bin/sleep 1000")
    os.mkfifo("told")
    command = [sys.executable, "-m", "serve_app.client.say", "-", "--url", server]
    root = Path(say.__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": str(root)}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, env=environment) as running:
        assert running.stdin is not None
        running.stdin.write(b"Hello there. And")
        running.stdin.flush()
        player = os.pidfd_open(int(Path("told").read_text()))
        running.send_signal(signal.SIGINT)
        _, stderr = running.communicate(timeout=HANG_S)
    assert (running.returncode, stderr) == (say.INTERRUPTED, b"")
    assert select.select([player], [], [], HANG_S)[0] == [player], "the player has ended"
    os.close(player)
