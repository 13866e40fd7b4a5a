"""Parts over Ray Data: a pool of actors, each with an engine of its own; the part is written where it is spoken.

What goes through Ray is text one way and a line about each part the other way. The input is read by a task on the
driver's node as parts are wanted, so that neither Ray nor the driver ever holds all of it. An actor that dies is
replaced by Ray Data and its parts are spoken again.
"""

import asyncio
import logging
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import ray
import ray.data
from ray.actor import ActorHandle
from ray.data import ActorPoolStrategy, DataContext

from scripts.corpus.parts import Outcome, read_part, write_part
from scripts.corpus.plan import Corpus, Part
from scripts.corpus.progress import Amount
from scripts.corpus.rows import Rejected, Row
from scripts.corpus.speaking import Identity, Manner, Model, Speaker
from serve_app.config import Settings
from serve_app.engine.files import WeightsError
from serve_app.errors import EngineUnavailable, SpeechError

logger = logging.getLogger(__name__)

PARTS_AT_ONCE = 2
"""Of one actor: while the last rows of a part are coded and written, the engine has the next part's."""

ATTEMPTS = 3
"""Of a part whose actor dies of it, or of something else each time."""

_ROW = pa.struct(
    {
        "id": pa.string(),
        "number": pa.int64(),
        "file": pa.string(),
        "text": pa.string(),
        "voice": pa.string(),
        "speed": pa.float64(),
        "lang": pa.string(),
    }
)
_PART = pa.schema({"index": pa.int64(), "rows": pa.list_(_ROW)})
_ANSWER = pa.schema({"node": pa.string(), "failure": pa.string()})


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


class Telling(Protocol):
    """What an actor says while it works: to a Tally."""

    def begin(self) -> None: ...
    def attempt(self, part: int) -> int: ...
    def tell(self, part: int, amount: Amount) -> None: ...


class Tally:
    """How far each part is, and since when one is spoken. A part that is spoken again counts anew."""

    def __init__(self) -> None:
        self._parts: dict[int, Amount] = {}
        self._attempts: Counter[int] = Counter()
        self._since_s: float | None = None

    def begin(self) -> None:
        """A worker has loaded its model."""
        self._since_s = self._since_s or time.monotonic()

    def attempt(self, part: int) -> int:
        """A worker begins a part; how many have now."""
        self._attempts[part] += 1
        return self._attempts[part]

    def tell(self, part: int, amount: Amount) -> None:
        self._parts[part] = amount

    def total(self) -> tuple[Amount, float]:
        """What is done, and the seconds since the first worker began."""
        elapsed_s = time.monotonic() - self._since_s if self._since_s else 0.0
        return sum(self._parts.values(), Amount()), elapsed_s


class RemoteTally:
    """A Tally in an actor on the node of whoever makes it, and to be asked from anywhere."""

    def __init__(self) -> None:
        self._actor: ActorHandle[Tally] = ray.remote(num_cpus=0, label_selector=_this_node())(Tally).remote()

    def begin(self) -> None:
        self._actor.begin.remote()

    def attempt(self, part: int) -> int:
        count: int = ray.get(self._actor.attempt.remote(part))
        return count

    def tell(self, part: int, amount: Amount) -> None:
        self._actor.tell.remote(part, amount)

    def total(self) -> tuple[Amount, float]:
        total: tuple[Amount, float] = ray.get(self._actor.total.remote())
        return total


class PartSpeaker:
    """An actor of the pool. What keeps it from speaking is its answer: Ray would wrap an exception in its own words.

    An engine that is gone is not: the process ends, and Ray Data starts another one, which gets its parts.
    """

    def __init__(self, job: Job, tally: Telling) -> None:
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
        tally.begin()

    def __call__(self, table: pa.Table) -> pa.Table:
        if self._failure is None:
            [part] = table.to_pylist()
            try:
                self._speak(part["index"], [Row(**row) for row in part["rows"]])
            except OSError as reason:
                self._failure = f"the output cannot be written ({reason.strerror or 'OSError'})"
        answer = {"node": ray.util.get_node_ip_address(), "failure": self._failure}
        return pa.Table.from_pylist([answer], _ANSWER)

    def _load(self) -> Speaker:
        job = self._job
        found = job.model.identify(job.settings)
        if found != job.identity:
            raise RunFailed(
                f"a worker has other weights ({found.source}) than the first one ({job.identity.source}); give every "
                "node the same weights.source and cache"
            )
        return Speaker(*job.model.load(job.settings), job.identity, job.settings)

    def _speak(self, index: int, rows: Sequence[Row]) -> None:
        """Speak what is left of a part, which an earlier attempt or run may have committed. Raises OSError."""
        there = read_part(self._job.out, index)
        left = rows if there is None else there.left_of(rows)
        if self._tally.attempt(index) > ATTEMPTS:
            lost = EngineUnavailable(f"its worker was lost {ATTEMPTS} times")
            outcome = Outcome(left=[Rejected.row_of(row, lost) for row in left])
        else:
            outcome = self._spoken(index, left)
        if there is not None:
            outcome = there.and_then(outcome)
        write_part(self._job.out, index, outcome, audio_files=self._job.audio_files)

    def _spoken(self, index: int, rows: Sequence[Row]) -> Outcome:
        amount = Amount()

        def heard(row: Row, audio_s: float) -> None:
            nonlocal amount
            amount += Amount(1, len(row.text), audio_s)
            self._tally.tell(index, amount)

        speaking = self._speaker.speak(rows, self._job.manner, heard)
        try:
            return asyncio.run_coroutine_threadsafe(speaking, self._loop).result()
        except* EngineUnavailable:
            logger.error("part %d: the engine is gone, and so this worker ends; another one takes the part", index)
            os._exit(1)


@contextmanager
def connected(address: str) -> Iterator[None]:
    """Ray: a small one of this process's own for `local`, else the cluster at `address`."""
    local: dict[str, Any] = {"include_dashboard": False} if address == "local" else {}
    ray.init(address, log_to_driver=True, logging_level=logging.WARNING, **local)
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    context = DataContext.get_current()
    context.target_max_block_size = 1  # a block is sent to a worker, and so it is one row: one part
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


def speak_parts(
    job: Job, corpus: Corpus, finished: Collection[int], workers: int, pool: Pool, tally: Telling
) -> Counter[str]:
    """Speak and commit the parts that are not finished, in any order; how many on which node. Raises RunFailed."""

    def parts(_: pa.Table) -> Iterator[pa.Table]:
        for part in corpus.parts(turn_away=lambda _: None):  # who wanted to know has asked
            if part.index not in finished:
                yield part_table(part)

    read = ray.data.from_items([0]).map_batches(parts, batch_format="pyarrow", num_cpus=0, label_selector=_this_node())
    spoken = read.map_batches(
        PartSpeaker,
        fn_constructor_args=(job, tally),
        batch_size=1,  # a part
        batch_format="pyarrow",
        compute=ActorPoolStrategy(
            size=workers,
            max_tasks_in_flight_per_actor=2 * PARTS_AT_ONCE,
            max_concurrent_calls_per_actor=PARTS_AT_ONCE,
            enable_true_multi_threading=True,
        ),
        num_cpus=pool.num_cpus,
        num_gpus=pool.num_gpus,
    )
    by_node = Counter[str]()
    for answer in spoken.iter_rows():
        if answer["failure"] is not None:
            raise RunFailed(f"a worker cannot go on: {answer['failure']}")
        by_node[answer["node"]] += 1
    return by_node


@contextmanager
def watched(tally: RemoteTally, every_s: float, show: Callable[[Amount, float], None]) -> Iterator[None]:
    """Call `show` with the tally's total every so often, on a thread, and once more at the end."""
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(every_s):
            show(*tally.total())

    watching = threading.Thread(target=watch, daemon=True)
    watching.start()
    try:
        yield
        show(*tally.total())
    finally:
        ended.set()
        watching.join()


def _this_node() -> dict[str, str]:
    """What selects the driver's node."""
    return {"ray.io/node-id": ray.get_runtime_context().get_node_id()}


def part_table(part: Part) -> pa.Table:
    """A part as it goes to its worker: one row, which Ray Data never cuts."""
    return pa.Table.from_pylist([asdict(part)], _PART)
