"""Time to first audio through the whole running stack, less the engine's own time, beside a bare server.

`uv run python scripts/bench_gateway.py` runs the application over a fake engine under `serve run`, in each of Ray
Serve's modes, and the same application under uvicorn alone, and asks the two in turn, so that drift hits both. A sample
is one message over an open WebSocket: sent to first binary frame received, less the fake engine's fixed time.
"""

import argparse
import asyncio
import json
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version

import websockets

from scripts.fake_app import ENGINE_COST_S
from scripts.running import ROOT, SERVE_MODES, free_port, local_config, serve_running
from serve_app.server.websocket import ROUTE

MESSAGE = "This is what one sentence of an answer looks like."


@contextmanager
def bare_server() -> Iterator[str]:
    """The application under uvicorn in a process of its own; yields its WebSocket address."""
    port = free_port()
    command = [sys.executable, "-m", "uvicorn", "--factory", "scripts.fake_app:bare", "--port", str(port)]
    process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        next(line for line in process.stderr if "running on" in line)
        yield f"ws://127.0.0.1:{port}{ROUTE}"
    finally:
        process.terminate()
        process.wait(20)


async def first_audio_s(socket: websockets.ClientConnection) -> float:
    """One message; seconds to its first audio, engine excluded."""
    started_s = time.perf_counter()
    await socket.send(json.dumps({"text": MESSAGE}).encode())
    heard_s = None
    async for frame in socket:
        if isinstance(frame, bytes):
            heard_s = heard_s or time.perf_counter()
        elif json.loads(frame)["type"] == "synthesis_complete":
            break
    if heard_s is None:
        raise RuntimeError("no audio came")
    return heard_s - started_s - ENGINE_COST_S


async def measure(addresses: list[str], repeats: int, warm_up: int) -> list[list[float]]:
    """Samples of each address, asked in turn over one session each."""
    samples: list[list[float]] = [[] for _ in addresses]
    sockets = [await websockets.connect(address, compression=None) for address in addresses]
    for round_number in range(warm_up + repeats):
        for socket, kept in zip(sockets, samples, strict=True):
            sample = await first_audio_s(socket)
            if round_number >= warm_up:
                kept.append(sample)
    for socket in sockets:
        await socket.close()
    return samples


def row(mode: str, name: str, samples: list[float]) -> str:
    p50, p95 = statistics.median(samples), statistics.quantiles(samples, n=20)[-1]
    return f"| {mode} | {name} | {p50 * 1000:.2f} | {p95 * 1000:.2f} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=200)
    parser.add_argument("--mode", choices=SERVE_MODES, action="append", help="one of Ray Serve's modes; default: all")
    options = parser.parse_args()
    print(f"ray {version('ray')}, Python {platform.python_version()}, {options.repeats} messages each, asked in turn")
    print("| mode | server | p50 ms | p95 ms |\n| --- | --- | --- | --- |")
    for mode in options.mode or SERVE_MODES:
        config = local_config(import_path="scripts.fake_app:build", args={})
        with bare_server() as bare, serve_running(config, SERVE_MODES[mode]) as stack:
            ours, plain = asyncio.run(measure([stack.websocket, bare], options.repeats, warm_up=20))
        print(row(mode, "serve run", ours))
        print(row(mode, "uvicorn alone", plain), flush=True)


if __name__ == "__main__":
    main()
