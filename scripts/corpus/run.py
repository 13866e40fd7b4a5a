"""One run from the input to the finished output: what is left to do, done, and told."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime

from scripts.corpus.cluster import Job, Pool, identified, new_tally, pool_for, speak_parts, watched
from scripts.corpus.inputs import InputError, InputFile, find_files, is_inside, read_file
from scripts.corpus.options import Options
from scripts.corpus.parts import committed, sweep, write_manifest, write_rejected
from scripts.corpus.plan import Part, expected_s, plan_parts
from scripts.corpus.progress import Amount, Progress
from scripts.corpus.record import Record, held, read_record, write_record
from scripts.corpus.rows import Rejected, Row, RowCheck
from scripts.corpus.speaking import Identity, Manner, Model, offline
from serve_app.blends import check_voice
from serve_app.config import Settings
from serve_app.protocol.requests import RequestLimits
from serve_app.version import VERSION

TERMINAL_EVERY_S, LOG_EVERY_S = 1.0, 30.0


@contextmanager
def output_of(options: Options) -> Iterator[None]:
    """Keep the output for this run alone. Raises InputError and OutputError, before anything slow is begun."""
    if is_inside(options.out, options.input):
        raise InputError(f"{options.out} is within {options.input}; the output needs a folder of its own")
    read_record(options.out)
    with held(options.out):
        yield


def synthesize(options: Options, settings: Settings, model: type[Model]) -> int:
    """Do what is left of the corpus; how many rows were turned away. Ray is connected, and `output_of` is open.

    Raises InputError, OutputError, RunFailed, WeightsError, SpeechError.
    """
    pool = pool_for(workers=options.workers, threads=options.threads, num_gpus=options.num_gpus)
    settings = offline(settings, threads=options.threads, max_batch=options.batch, on_gpu=pool.num_gpus > 0)
    files, others = find_files(options.input)
    if others:
        _tell(f"{others} files of other kinds are left aside")
    identity = identified(model, settings)
    check_voice(options.defaults.voice, identity.voices)
    record = _record(options, settings, identity, files)
    sweep(options.out)

    rejected = list[Rejected]()
    parts = list(plan_parts(_rows(options, settings, files, rejected), options.part_minutes * 60))
    done = committed(options.out)
    left = [part for part in parts if part.index not in done]
    if done:
        _tell(f"{len(done)} of {len(parts)} parts are there already")
    manner = Manner(options.audio_format, options.sample_rate, options.keeps_text, record.product, record.created)
    job = Job(model, settings, identity, manner, options.out.resolve(), options.audio_files)
    if left:
        before = sum((footer.amount for footer in done.values()), Amount())
        _speak(job, left, pool, _progress(parts, before))
    return _finish(options, rejected)


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


def _rows(options: Options, settings: Settings, files: Sequence[InputFile], rejected: list[Rejected]) -> Iterator[Row]:
    """The rows that can be spoken, as far as can be told without the model; the others are added to `rejected`."""
    limits = RequestLimits(settings.limits.max_text_chars, settings.limits.max_request_age_s)
    check = RowCheck(options.defaults, limits)
    for file in files:
        for row in check.rows(file.name, read_file(file, paragraphs=options.paragraphs)):
            if isinstance(row, Row):
                yield row
            else:
                rejected.append(row)


def _progress(parts: Sequence[Part], before: Amount) -> Progress:
    rows = [row for part in parts for row in part.rows]
    total = Amount(len(rows), sum(len(row.text) for row in rows))
    return Progress(total, before, expected_s=sum(map(expected_s, rows)))


def _speak(job: Job, parts: Sequence[Part], pool: Pool, progress: Progress) -> None:
    terminal = sys.stderr.isatty()
    tally = new_tally()
    _tell(f"{len(parts)} parts to speak, by {min(pool.workers, len(parts))} workers; weights: {job.identity.source}")

    def show(now: Amount, elapsed_s: float) -> None:
        line = progress.at(now, elapsed_s).line()
        print(f"\r{line}\x1b[K" if terminal else line, end="" if terminal else "\n", file=sys.stderr, flush=True)

    with watched(tally, TERMINAL_EVERY_S if terminal else LOG_EVERY_S, show):
        speak_parts(job, parts, pool, tally)
    if terminal:
        print(file=sys.stderr)


def _finish(options: Options, rejected: Sequence[Rejected]) -> int:
    footers = committed(options.out).values()
    rejected = [*rejected, *(row for footer in footers for row in footer.rejected)]
    write_rejected(options.out, rejected)
    if options.audio_files:
        write_manifest(options.out)
    spoken, hours = sum(footer.spoken for footer in footers), sum(footer.audio_s for footer in footers) / 3600
    _tell(
        f"Done: {spoken} rows are spoken, {hours:.2f} h of audio in {len(footers)} parts; {len(rejected)} turned away"
    )
    return len(rejected)


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
