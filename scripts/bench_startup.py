"""Start-up from a warm cache to the first 200 on /ping, and what the running stack holds in memory.

`uv run python scripts/bench_startup.py` starts `serve run configs/local.yaml` on a free port, in turn with the same
application over a fake engine and a fake front end, which is what Ray and Serve take by themselves.
Memory is told as PSS, in which a page that several processes share counts once.
"""

import argparse
import re
import statistics
import time
from collections import Counter

import psutil

from scripts.running import Running, local_config, serve_running


def processes(running: Running) -> list[psutil.Process]:
    """`serve run` and everything it has started, Ray's own processes among them."""
    root = psutil.Process(running.process.pid)
    return [root, *root.children(recursive=True)]


def memory_mb(running: Running) -> Counter[str]:
    """PSS in MB by kind of process."""
    held: Counter[str] = Counter()
    for process in processes(running):
        try:
            title = " ".join(process.cmdline()) or process.name()
            replica = re.search(r"ServeReplica:kokoro:(\w+)", title)
            held[replica[1] if replica else "Ray and Serve"] += process.memory_full_info().pss >> 20
        except psutil.NoSuchProcess:
            continue
    return held


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    stacks = {"product": {}, "fake engine": {"import_path": "scripts.fake_app:build", "args": {}}}
    took_s: dict[str, list[float]] = {name: [] for name in stacks}
    held: dict[str, Counter[str]] = {}
    for _ in range(options.repeats):
        for name, changes in stacks.items():
            started_s = time.perf_counter()
            with serve_running(local_config(**changes)) as running:
                took_s[name].append(time.perf_counter() - started_s)
                held[name] = memory_mb(running)
    for name, times_s in took_s.items():
        print(f"{name:>12}: first 200 on /ping after {statistics.median(times_s):.1f} s, median of {len(times_s)}")
    print(f"load average {psutil.getloadavg()[0]:.1f}; memory of the product:")
    for kind, size in held["product"].most_common():
        print(f"{kind:>15}: {size} MB")
    print(f"{'all':>15}: {held['product'].total()} MB")


if __name__ == "__main__":
    main()
