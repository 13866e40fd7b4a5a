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
import time
from importlib.metadata import version

import websockets

from scripts.fake_app import ENGINE_COST_S
from scripts.running import SERVE_MODES, bare_running, local_config, serve_running

MESSAGE = "This is what one sentence of an answer looks like."


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
        with bare_running() as bare, serve_running(config, SERVE_MODES[mode]) as stack:
            addresses = [stack.websocket, bare.websocket]
            ours, plain = asyncio.run(measure(addresses, options.repeats, warm_up=20))
        print(row(mode, "serve run", ours))
        print(row(mode, "uvicorn alone", plain), flush=True)


if __name__ == "__main__":
    main()
