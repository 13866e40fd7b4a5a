"""Parts over Ray Data: a pool of actors, each with an engine of its own; the part is written where it is spoken.

What goes through Ray is text one way and a line about each part the other way. Audio does not, so the object store can
stay small. An actor that dies is replaced by Ray Data and its part spoken again.
"""

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import ray
import ray.data
from ray.actor import ActorHandle
from ray.data import ActorPoolStrategy, DataContext
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from scripts.corpus.parts import write_part
from scripts.corpus.plan import Part
from scripts.corpus.progress import Amount
from scripts.corpus.rows import Row
from scripts.corpus.speaking import Identity, Manner, Model, Speaker
from serve_app.config import Settings
from serve_app.engine.files import WeightsError
from serve_app.errors import SpeechError

PARTS_AT_ONCE = 2
"""Of one actor: while the last rows of a part are coded and written, the engine has the next part's."""

_TABLE = pa.schema(
    {
        "part": pa.int64(),
        "id": pa.string(),
        "number": pa.int64(),
        "file": pa.string(),
        "text": pa.string(),
        "voice": pa.string(),
        "speed": pa.float64(),
        "lang": pa.string(),
    }
)


class RunFailed(Exception):
    """The run cannot go on. The message is a sentence; what is done is kept."""


_FAILURES = (RunFailed, SpeechError, WeightsError)


@dataclass(frozen=True, slots=True)
class Pool:
    """How many actors, and what each of them takes of the cluster."""

    workers: int
    num_cpus: float
    num_gpus: float


@dataclass(frozen=True, slots=True)
class Job:
    """What an actor is told once."""

    model: type[Model]
    settings: Settings
    identity: Identity
    manner: Manner
    out: Path
    audio_files: bool


class Tally:
    """How far each part is, and since when one is spoken. A part that is spoken again counts anew."""

    def __init__(self) -> None:
        self._parts: dict[int, Amount] = {}
        self._since_s: float | None = None

    def begin(self) -> None:
        """A worker has loaded its model."""
        self._since_s = self._since_s or time.monotonic()

    def tell(self, part: int, amount: Amount) -> None:
        self._parts[part] = amount

    def total(self) -> tuple[Amount, float]:
        """What is done, and the seconds since the first worker began."""
        elapsed_s = time.monotonic() - self._since_s if self._since_s else 0.0
        return sum(self._parts.values(), Amount()), elapsed_s


class PartSpeaker:
    """An actor of the pool. What keeps it from speaking is its answer: Ray would wrap an exception in its own words."""

    def __init__(self, job: Job, tally: "ActorHandle[Tally]") -> None:
        self._job, self._tally = job, tally
        self._failure: str | None = None
        try:
            self._speaker = self._load()
        except _FAILURES as exc:
            self._failure = str(exc)
            return
        # One loop for the parts that are spoken at once: their rows share the engine, and so its batches.
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, name="speaking", daemon=True).start()
        tally.begin.remote()

    def __call__(self, table: pa.Table) -> pa.Table:
        if self._failure is None:
            [part] = set(table.column("part").to_pylist())
            rows = [Row(**row) for row in table.drop_columns("part").to_pylist()]
            try:
                self._speak(part, rows)
            except* _FAILURES as failures:  # of rows that met the same fate
                self._failure = str(failures.exceptions[0])
            except* OSError as failures:
                reason = failures.exceptions[0]
                self._failure = f"the output cannot be written ({getattr(reason, 'strerror', None) or 'OSError'})"
        return pa.table({"failure": pa.array([self._failure], pa.string())})

    def _load(self) -> Speaker:
        job = self._job
        found = job.model.identify(job.settings)
        if found != job.identity:
            raise RunFailed(
                f"a worker has other weights ({found.source}) than the first one ({job.identity.source}); give every "
                "node the same weights.source and cache"
            )
        return Speaker(*job.model.load(job.settings), job.identity, job.settings)

    def _speak(self, part: int, rows: Sequence[Row]) -> None:
        amount = Amount()

        def heard(row: Row, audio_s: float) -> None:
            nonlocal amount
            amount += Amount(1, len(row.text), audio_s)
            self._tally.tell.remote(part, amount)

        speaking = self._speaker.speak(rows, self._job.manner, heard)
        spoken, footer = asyncio.run_coroutine_threadsafe(speaking, self._loop).result()
        write_part(self._job.out, part, spoken, footer, audio_files=self._job.audio_files)


@contextmanager
def connected(address: str) -> Iterator[None]:
    """Ray: a small one of this process's own for `local`, else the cluster at `address`."""
    local: dict[str, Any] = {"include_dashboard": False} if address == "local" else {}
    ray.init(address, log_to_driver=True, logging_level=logging.WARNING, **local)
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    context = DataContext.get_current()
    context.enable_progress_bars = False
    context.print_on_execution_start = False
    context.max_consecutive_actor_init_deaths = 3  # one that is killed while it loads is no end of the run
    context.execution_no_progress_timeout_s = -1  # a part may take an hour, and the progress line shows that it moves
    try:
        yield
    finally:
        ray.shutdown()


def pool_for(*, workers: int | None, threads: int, num_gpus: float | None) -> Pool:
    """So many workers as were asked for, or as the cluster has room for. Raises RunFailed where that is none.

    Args:
        num_gpus: of a worker; None: one where the cluster has any.
    """
    there = ray.cluster_resources()
    if num_gpus is None:
        num_gpus = float("GPU" in there)
    room = int(there.get("CPU", 0) // threads)
    if num_gpus:
        room = min(room, int(there.get("GPU", 0) / num_gpus))
    if not room:
        raise RunFailed(
            f"no worker fits: one takes {threads} CPUs and {num_gpus:g} GPUs, and the whole cluster has "
            f"{there.get('CPU', 0):g} and {there.get('GPU', 0):g}; see --threads and --num-gpus"
        )
    return Pool(min(workers or room, room), threads, num_gpus)


def identified(model: type[Model], settings: Settings) -> Identity:
    """What the model is, found out on a node that will speak. Raises what `Model.identify` raises."""

    def identify() -> Identity:
        return model.identify(settings)

    try:
        return ray.get(ray.remote(num_cpus=1)(identify).remote())
    except ray.exceptions.RayTaskError as exc:
        raise exc.cause from exc


def new_tally() -> "ActorHandle[Tally]":
    """On the driver's node: it lives as long as who asks it."""
    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
    return ray.remote(num_cpus=0, scheduling_strategy=here)(Tally).remote()


def speak_parts(job: Job, parts: Sequence[Part], pool: Pool, tally: "ActorHandle[Tally]") -> None:
    """Speak and commit the parts, in any order. Raises RunFailed."""
    parts_at_hand = ray.data.from_arrow([part_table(part) for part in parts])
    spoken = parts_at_hand.map_batches(
        PartSpeaker,
        fn_constructor_args=(job, tally),
        batch_size=None,  # a block, which is a part
        batch_format="pyarrow",
        compute=ActorPoolStrategy(
            size=min(pool.workers, len(parts)),
            max_tasks_in_flight_per_actor=2 * PARTS_AT_ONCE,
            max_concurrent_calls_per_actor=PARTS_AT_ONCE,
            enable_true_multi_threading=True,
        ),
        num_cpus=pool.num_cpus,
        num_gpus=pool.num_gpus,
    )
    for row in spoken.iter_rows():
        if row["failure"] is not None:
            raise RunFailed(f"a worker cannot go on: {row['failure']}")


@contextmanager
def watched(tally: "ActorHandle[Tally]", every_s: float, show: Callable[[Amount, float], None]) -> Iterator[None]:
    """Call `show` with the tally's total every so often, on a thread, and once more at the end."""
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(every_s):
            show(*ray.get(tally.total.remote()))

    watching = threading.Thread(target=watch, daemon=True)
    watching.start()
    try:
        yield
        show(*ray.get(tally.total.remote()))
    finally:
        ended.set()
        watching.join()


def part_table(part: Part) -> pa.Table:
    """A part as it goes to its worker: one block, never cut."""
    return pa.Table.from_pylist([asdict(row) | {"part": part.index} for row in part.rows], _TABLE)
