"""One real server for the client's tests: the product's routes over a fake engine, in a process of its own."""

import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
RUNNING = "Uvicorn running on "
START_S = 60.0


@pytest.fixture(scope="session")
def server() -> Iterator[str]:
    """Its address."""
    command = [sys.executable, "-m", "uvicorn", "--factory", "scripts.fake_app:bare", "--port", "0"]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    lines: list[str] = []
    told = threading.Event()

    def read() -> None:
        assert process.stderr is not None
        for line in process.stderr:
            lines.append(line)
            if RUNNING in line:
                told.set()
        told.set()

    threading.Thread(target=read, daemon=True).start()
    try:
        assert told.wait(START_S), "the server does not start"
        assert process.poll() is None, "".join(lines)
        yield lines[-1].partition(RUNNING)[2].split()[0]
    finally:
        process.terminate()
        process.wait(START_S)
