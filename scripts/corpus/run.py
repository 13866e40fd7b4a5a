"""One run from the input to the finished output: what is left to do, done, and told."""

import sys
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime

from scripts.corpus.cluster import Job, Pool, RemoteTally, RunFailed, identified, pool_for, speak_parts, watched
from scripts.corpus.inputs import InputError, InputFile, find_files, is_inside
from scripts.corpus.options import Options
from scripts.corpus.parts import LEFT_FILE, REJECTED_FILE, committed, sweep, write_manifest, write_reasons
from scripts.corpus.plan import Corpus, expected_s
from scripts.corpus.progress import Amount, Progress, shown
from scripts.corpus.record import Record, held, read_record, write_record
from scripts.corpus.rows import Rejected
from scripts.corpus.speaking import Identity, Manner, Model, offline
from serve_app.blends import check_voice
from serve_app.config import Settings
from serve_app.engine.schedule import default_batch
from serve_app.protocol.requests import RequestLimits
from serve_app.version import VERSION


@dataclass(frozen=True, slots=True)
class Survey:
    """What the input holds, as far as can be told without the model."""

    parts: int
    total: Amount
    expected_s: float
    rejected: Sequence[Rejected]


@dataclass(frozen=True, slots=True)
class Result:
    """How many rows are not spoken: for a fault of their own, and for none."""

    rejected: int
    left: int


@contextmanager
def output_of(options: Options) -> Iterator[None]:
    """Keep the output for this run alone. Raises InputError and OutputError, before anything slow is begun."""
    if is_inside(options.out, options.input):
        raise InputError(f"{options.out} is within {options.input}; the output needs a folder of its own")
    read_record(options.out)
    with held(options.out):
        yield


def synthesize(options: Options, settings: Settings, model: type[Model]) -> Result:
    """Do what is left of the corpus. Ray is connected, and `output_of` is open.

    Raises InputError, OutputError, RunFailed, WeightsError, SpeechError.
    """
    pool = pool_for(workers=options.workers, threads=options.threads, num_gpus=options.num_gpus)
    on_gpu = pool.num_gpus > 0
    max_batch = options.batch or default_batch("cuda" if on_gpu else "cpu")
    settings = offline(settings, threads=options.threads, max_batch=max_batch, on_gpu=on_gpu)
    files, others = find_files(options.input)
    if others:
        _tell(f"{others} files of other kinds are left aside")
    identity = identified(model, settings)
    check_voice(options.defaults.voice, identity.voices)
    record = _record(options, settings, identity, files)
    sweep(options.out)

    limits = RequestLimits(settings.limits.max_text_chars, settings.limits.max_request_age_s)
    corpus = Corpus(tuple(files), options.paragraphs, options.defaults, limits, options.part_minutes * 60)
    survey = _survey(corpus)
    done = committed(options.out)
    finished = {index for index, footer in done.items() if not footer.left}
    if done:
        _tell(f"{len(finished)} of {survey.parts} parts are there already")
    manner = Manner(options.audio_format, options.sample_rate, options.keeps_text, record.product, record.created)
    job = Job(model, settings, identity, manner, options.out.resolve(), options.audio_files)
    if len(finished) < survey.parts:
        before = sum((footer.amount for footer in done.values()), Amount())
        _speak(job, corpus, finished, pool, survey.parts, Progress(survey.total, before, survey.expected_s))
    return _finish(options, survey)


def _record(options: Options, settings: Settings, identity: Identity, files: Sequence[InputFile]) -> Record:
    """The record of this output, which the first run writes and every later one has to match."""
    record = Record(
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        product=VERSION,
        weights={"source": identity.source, "sha256": identity.sha256},
        options=options.deciding(settings),
        input={file.name: file.digest() for file in files},
    )
    earlier = read_record(options.out)
    if earlier is not None:
        return record.continuing(earlier)
    write_record(options.out, record)
    return record


def _survey(corpus: Corpus) -> Survey:
    """Read the input once, and keep of it what is bad."""
    rejected = list[Rejected]()
    parts, rows, characters, audio_s = 0, 0, 0, 0.0
    for part in corpus.parts(rejected.append):
        parts += 1
        rows += len(part.rows)
        characters += sum(len(row.text) for row in part.rows)
        audio_s += sum(map(expected_s, part.rows))
    return Survey(parts, Amount(rows, characters), audio_s, rejected)


def _speak(job: Job, corpus: Corpus, finished: Collection[int], pool: Pool, parts: int, progress: Progress) -> None:
    left = parts - len(finished)
    workers = min(pool.workers, left)
    tally = RemoteTally()
    _tell(f"{left} parts to speak, by {workers} workers; weights: {job.identity.source}")
    with shown(progress, sys.stderr) as (show, every_s), watched(tally, every_s, show):
        by_node = speak_parts(job, corpus, finished, workers, pool, tally)
    if len(by_node) > 1:
        _tell("Parts by node: " + ", ".join(f"{node} {count}" for node, count in sorted(by_node.items())))


def _finish(options: Options, survey: Survey) -> Result:
    """Write what belongs to the whole output. Raises RunFailed."""
    footers = committed(options.out)
    if len(footers) != survey.parts:
        raise RunFailed(
            f"{len(footers)} parts are there and {survey.parts} should be; was the input changed meanwhile?"
        )
    rejected = [*survey.rejected, *(row for footer in footers.values() for row in footer.rejected)]
    left = [row for footer in footers.values() for row in footer.left]
    write_reasons(options.out / REJECTED_FILE, rejected)
    write_reasons(options.out / LEFT_FILE, left)
    if options.audio_files:
        write_manifest(options.out)
    spoken = sum(footer.spoken for footer in footers.values())
    hours = sum(footer.audio_s for footer in footers.values()) / 3600
    _tell(
        f"Done: {spoken} rows are spoken, {hours:.2f} h of audio in {len(footers)} parts; {len(rejected)} turned away"
    )
    if left:
        _tell(f"{len(left)} rows are left, for no fault of theirs ({LEFT_FILE}); the same command tries them again")
    return Result(len(rejected), len(left))


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
