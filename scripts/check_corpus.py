"""A corpus on two machines: `uv run --extra corpus python scripts/check_corpus.py` (as root, Linux).

Ray runs on machines that are namespaces of this one (scripts/cluster). A corpus is spoken on one of them, on both, and
on both with one of them lost in the middle, each time from the head as docs/corpus.md says. Exits 1 when a promise is
broken. The engine is one of tones, and each machine has a GPU by name, or with --real it is the model on a CPU.
"""

import argparse
import json
import os
import re
import secrets
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from scripts.cluster.machines import CANNOT_ISOLATE, CannotIsolate, Machine, addresses, network
from scripts.cluster.stack import RAY, until
from scripts.corpus.parts import committed
from scripts.corpus.record import RECORD_FILE
from scripts.loadtest.speech import script
from scripts.promises import CameNot, Promises
from scripts.running import ROOT

START_WITHIN_S, RUN_WITHIN_S = 180.0, 600.0


@dataclass(frozen=True, slots=True)
class Run:
    """What a run of the command said."""

    status: int
    told: str

    @property
    def by_node(self) -> dict[str, int]:
        found = re.search(r"Parts by node: (.+)", self.told)
        return {node: int(count) for node, count in re.findall(r"([0-9.]+) (\d+)", found[1])} if found else {}

    @property
    def audio_s_per_s(self) -> float:
        return float(re.findall(r"([0-9.]+) s/s", self.told)[-1])


class Cluster:
    """Ray on a head and on machines that join it, and the command on the head."""

    def __init__(self, folder: Path, *, real: bool) -> None:
        self._folder, self._real, self._addresses = folder, real, addresses()
        self._environment = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "RAY_AUTH_TOKEN": secrets.token_hex(32),
            "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "1",
        }
        self._machines: list[Machine] = []
        self.head = self.start("--head")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for machine in self._machines[::-1]:
            machine.remove()

    def start(self, *role: str) -> Machine:
        """A machine that is the head, or joins it."""
        address = next(self._addresses)
        command = [RAY, "start", *(role or [f"--address={self.head.address}:6379"]), f"--node-ip-address={address}"]
        command += ["--num-cpus=2", f"--num-gpus={0 if self._real else 1}", "--disable-usage-stats"]
        machine = Machine(address, command, self._environment, self._folder / f"{address}.log")
        self._machines.append(machine)
        until(lambda: "Ray runtime started" in machine.output.read_text(), START_WITHIN_S, f"Ray on {address}")
        return machine

    def speak(self, corpus: Path, out: Path, *, as_job: bool = False) -> Run:
        """Run the command on the head, to its end."""
        module = [str(ROOT / "scripts" / "synthesize_corpus.py")] if self._real else ["-m", "scripts.tones_corpus"]
        command = [sys.executable, *module, str(corpus), str(out), "--part-minutes=0.2", "--audio-files"]
        if self._real:
            command += ["--workers=2"]
        before = len(self.head.output.read_bytes())
        status = 0
        try:
            if as_job:
                self.head.run(RAY, "job", "submit", "--address=http://127.0.0.1:8265", "--", *command)
            else:
                self.head.run("env", "RAY_ADDRESS=auto", *command)
        except subprocess.CalledProcessError as exc:
            status = exc.returncode
        told = self.head.output.read_bytes()[before:].decode()
        if as_job and (found := re.search(r"command failed with exit code (\d+)", told)):
            status = int(found[1])  # of the job, where that of `ray job submit` is 1
        return Run(status, told)


@contextmanager
def meanwhile(cluster: Cluster, corpus: Path, out: Path) -> Iterator[list[Run]]:
    """The command on a thread; its run is there when the context has ended."""
    runs: list[Run] = []
    running = threading.Thread(target=lambda: runs.append(cluster.speak(corpus, out)), daemon=True)
    running.start()
    yield runs
    running.join(RUN_WITHIN_S)
    if not runs:
        raise CameNot(f"waited {RUN_WITHIN_S:.0f} s for the run to end; {len(committed(out))} parts are there")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=200, help="(default: %(default)s)")
    parser.add_argument("--real", action="store_true", help="the model, with one thread a worker")
    options = parser.parse_args()
    promises = Promises()
    try:
        with network(), tempfile.TemporaryDirectory() as folder, Cluster(Path(folder), real=options.real) as cluster:
            corpus = Path(folder, "in.jsonl")
            rows = [
                {"id": f"utt{number}", "text": script(1 + number % 2, str(number)).text}
                for number in range(options.rows)
            ]
            corpus.write_text("\n".join(map(json.dumps, [*rows, {"id": "utt0", "text": "The same id."}])))
            check(cluster, corpus, Path(folder), promises)
    except CannotIsolate as exc:
        print(exc, file=sys.stderr)
        return CANNOT_ISOLATE
    except CameNot as exc:
        print(f"BROKEN  {exc}")
        return 1
    return 1 if promises.broken else 0


def check(cluster: Cluster, corpus: Path, folder: Path, promises: Promises) -> None:
    """One machine, two, and two of which one is lost."""
    alone_out, both_out, lost_out = folder / "alone", folder / "both", folder / "lost"
    alone = cluster.speak(corpus, alone_out)
    parts = len(committed(alone_out))
    seen = f"exit status {alone.status}, {parts} parts, {alone.audio_s_per_s:.1f} s/s"
    promises.keep("one machine speaks every row but the bad one", alone.status == 3, seen)

    second = cluster.start()
    begin_as(alone_out, both_out)
    both = cluster.speak(corpus, both_out)
    growth = both.audio_s_per_s / alone.audio_s_per_s
    seen = f"{told(both.by_node)}; {both.audio_s_per_s:.1f} s/s, {growth:.2f} times one"
    promises.keep("both machines speak", min(both.by_node.values(), default=0) >= parts / 5, seen)
    keep_whole(promises, "the output is the same to the byte", both, alone_out, both_out)

    for path in sorted((both_out / "parts").iterdir())[::2]:
        path.unlink()
    job = cluster.speak(corpus, both_out, as_job=True)
    keep_whole(promises, "a job on the head makes the half of it that was lost again", job, alone_out, both_out)

    begin_as(alone_out, lost_out)
    with meanwhile(cluster, corpus, lost_out) as runs:
        until(lambda: len(committed(lost_out)) >= parts / 4, RUN_WITHIN_S, "a quarter of the parts")
        at = len(committed(lost_out))
        second.kill()
        began_s = time.monotonic()
    [lost] = runs
    print(f"        killed when {at} of {parts} parts were there; the rest took {time.monotonic() - began_s:.1f} s")
    promises.keep("the lost machine was at work", second.address in lost.by_node, told(lost.by_node))
    keep_whole(promises, "and what it had in work is neither lost nor doubled", lost, alone_out, lost_out)


def keep_whole(promises: Promises, promise: str, run: Run, one: Path, other: Path) -> None:
    """The run has ended as the first one, with the same files."""
    wanted, found = contents(one), contents(other)
    differing = [name for name in wanted.keys() | found.keys() if wanted.get(name) != found.get(name)]
    seen = f"exit status {run.status}, {len(differing)} of {len(wanted)} files differ"
    promises.keep(promise, run.status == 3 and not differing, seen)
    if run.status != 3:
        print(run.told[-4000:])


def begin_as(earlier: Path, out: Path) -> None:
    """An output that says it was begun when the earlier one was, as each row has that time in it."""
    out.mkdir()
    shutil.copy(earlier / RECORD_FILE, out)


def contents(out: Path) -> dict[str, bytes]:
    """Every file below `out`, but hidden ones."""
    paths = [path for path in out.rglob("*") if path.is_file() and not path.name.startswith(".")]
    return {path.relative_to(out).as_posix(): path.read_bytes() for path in paths}


def told(by_node: dict[str, int]) -> str:
    return "parts by machine " + (", ".join(f"{node} {count}" for node, count in by_node.items()) or "not told")


if __name__ == "__main__":
    sys.exit(main())
