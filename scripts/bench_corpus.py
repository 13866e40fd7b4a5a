"""Seconds of audio per second: a corpus by scripts/synthesize_corpus.py, and the same rows by POST /invocations.

    uv run --extra corpus python scripts/bench_corpus.py [--rows 60] [--ways 1x2 2x1]
    uv run --extra corpus python scripts/bench_corpus.py --memory 100000 1000000

Rows are asked for one after the other, as a plain loop over a corpus would, from `serve run configs/local.yaml`; then
the corpus is spoken by each way, WORKERSxTHREADS, with the stack stopped. Rates count from the first worker's model
being loaded, and from the stack's being ready; the whole time of a command, start and end included, stands beside.

With --memory: what a corpus of so many rows takes of it, by an engine of tones, in its first minute of speaking.
"""

import argparse
import json
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import httpx
import psutil
import pyarrow.parquet as pq

from scripts.loadtest.speech import script
from scripts.running import ROOT, local_config, serve_running

_RATE = re.compile(r"([0-9.]+) s/s")

MEMORY_FOR_S, LOOK_EVERY_S = 60.0, 2.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=60, help="(default: %(default)s)")
    parser.add_argument("--ways", nargs="+", default=["1x2", "2x1"], metavar="WxT", help="(default: %(default)s)")
    parser.add_argument("--memory", type=int, nargs="+", metavar="ROWS", help="measure this instead")
    options = parser.parse_args()
    if options.memory:
        for rows in options.memory:
            peaks = memory_of(rows)
            print(f"{rows} rows, MB: " + ", ".join(f"{name} {peak >> 20}" for name, peak in peaks.items()), flush=True)
        return
    texts = [script(1 + number % 3, str(number)).text for number in range(options.rows)]
    print(f"{len(texts)} rows of 1 to 3 sentences, load average {psutil.getloadavg()[0]:.1f}")
    plain = by_requests(texts)
    print(f"{'POST /invocations, row by row':32} {plain:6.2f} s/s", flush=True)
    for way in options.ways:
        workers, threads = way.split("x")
        rate, whole_s, audio_s = by_corpus(texts, workers, threads)
        print(
            f"{f'{workers} workers, {threads} threads each':32} {rate:6.2f} s/s, {rate / plain:.2f} times as fast; "
            f"{audio_s:.0f} s of audio in {whole_s:.0f} s from start to end",
            flush=True,
        )


def by_requests(texts: list[str]) -> float:
    """Seconds of audio per second, one request after the other."""
    with serve_running(local_config()) as running, httpx.Client(base_url=running.http, timeout=300.0) as client:
        client.post("/invocations", json={"text": "The first one does not count.", "stream": False})
        began_s, audio_s = time.perf_counter(), 0.0
        for text in texts:
            answer = client.post("/invocations", json={"text": text, "stream": False}).raise_for_status()
            audio_s += float(answer.headers["X-Audio-Duration"])
        return audio_s / (time.perf_counter() - began_s)


def by_corpus(texts: list[str], workers: str, threads: str) -> tuple[float, float, float]:
    """Seconds of audio per second, seconds of the whole command, seconds of audio."""
    with tempfile.TemporaryDirectory() as folder:
        corpus, out = Path(folder, "in.jsonl"), Path(folder, "out")
        corpus.write_text("\n".join(json.dumps({"text": text}) for text in texts))
        command = [sys.executable, "scripts/synthesize_corpus.py", str(corpus), str(out)]
        amount = ["--workers", workers, "--threads", threads, "--part-minutes", "0.5"]
        began_s = time.perf_counter()
        done = subprocess.run([*command, *amount], cwd=ROOT, capture_output=True, text=True, check=False)
        whole_s = time.perf_counter() - began_s
        if done.returncode:
            raise SystemExit(done.stderr)
        audio_s = sum(pq.read_table(out / "parts", columns=["duration_s"]).column("duration_s").to_pylist())
        return float(_RATE.findall(done.stderr)[-1]), whole_s, audio_s


def memory_of(rows: int) -> dict[str, int]:
    """Peaks of the bytes that are the driver's, the reading task's, a worker's alone, and those of Ray's objects."""
    with tempfile.TemporaryDirectory() as folder:
        corpus, out = Path(folder, "in.jsonl"), Path(folder, "out")
        with corpus.open("w") as lines:
            for number in range(rows):
                row = {"id": f"utterance-{number:010}", "text": f"{script(2, str(number % 100)).text:<100.100}"}
                lines.write(json.dumps(row) + "\n")
        command = [sys.executable, "-m", "scripts.tones_corpus", str(corpus), str(out), "--part-minutes", "1"]
        process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.DEVNULL)
        peaks = Counter[str]()
        speaking_since_s: float | None = None
        while speaking_since_s is None or time.monotonic() < speaking_since_s + MEMORY_FOR_S:
            if process.poll() is not None:
                raise SystemExit(f"the run ended with {process.returncode}")
            for name, taken in _memory(process.pid):
                peaks[name] = max(peaks[name], taken)
            if speaking_since_s is None and any(out.glob("parts/part-*")):
                speaking_since_s = time.monotonic()
            time.sleep(LOOK_EVERY_S)
        process.send_signal(signal.SIGINT)
        process.wait(60)
        return dict(peaks)


def _memory(driver: int) -> list[tuple[str, int]]:
    found = []
    for process in [psutil.Process(driver), *psutil.Process(driver).children(recursive=True)]:
        with suppress(psutil.Error):
            said = " ".join(process.cmdline())
            if process.pid == driver:
                found.append(("the driver", process.memory_full_info().uss))
            elif "MapWorker" in said:
                found.append(("a worker", process.memory_full_info().uss))
            elif "(parts)" in said:
                found.append(("the reading task", process.memory_full_info().uss))
            elif "raylet/raylet" in said:
                found.append(("objects", process.memory_info().shared))
    return found


if __name__ == "__main__":
    main()
