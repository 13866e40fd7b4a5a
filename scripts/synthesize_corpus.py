"""Speak a corpus: Parquet, JSONL or text in; Parquet with audio, words and provenance out.

    uv run --extra corpus python scripts/synthesize_corpus.py IN OUT [--format flac] [--audio-files]

IN is a file or a folder. The same command again goes on where a run was stopped or killed. docs/corpus.md has the
columns, and how it runs on a cluster (RAY_ADDRESS).

Exit status: 0 every row is spoken; 3 all rows are, but for those in rejected.parquet; 4 rows are left that the same
command tries again, in left.parquet; 1 the run could not begin or go on; 2 the command line makes no sense; 130 stopped
by Ctrl-C, 143 by SIGTERM.
"""

import os
import signal
import sys
from collections.abc import Sequence
from types import FrameType

from scripts.corpus.cluster import RunFailed, connected
from scripts.corpus.inputs import InputError
from scripts.corpus.options import parse_options
from scripts.corpus.parts import committed
from scripts.corpus.record import OutputError
from scripts.corpus.run import output_of, synthesize
from scripts.corpus.speaking import KokoroModel, Model
from serve_app.config import SettingsError, load_settings
from serve_app.engine.files import WeightsError
from serve_app.errors import SpeechError

SOME_REJECTED, SOME_LEFT = 3, 4

_FAILURES = (InputError, OutputError, RunFailed, SettingsError, SpeechError, WeightsError)
"""Their messages are sentences for a person."""


class Stopped(BaseException):
    """Ctrl-C or SIGTERM."""

    def __init__(self, signal_number: int) -> None:
        super().__init__(signal_number)
        self.exit_status = 128 + signal_number


def main(given: Sequence[str] | None = None, model: type[Model] = KokoroModel) -> int:
    """Run as the command line says; the exit status. `model` is what speaks."""
    try:
        options = parse_options(given, __doc__ or "")
        settings = load_settings()
        with output_of(options):
            try:
                with connected(os.environ.get("RAY_ADDRESS", "local")):
                    _hear_signals()  # after Ray, which sets its own
                    result = synthesize(options, settings, model)
                    return SOME_LEFT if result.left else SOME_REJECTED if result.rejected else 0
            except Stopped as stop:
                parts = len(committed(options.out))
                print(f"\nStopped; {parts} parts are kept. The same command again goes on from there.", file=sys.stderr)
                return stop.exit_status
    except _FAILURES as exc:
        print(exc, file=sys.stderr)
        return 1


def _hear_signals() -> None:
    """The first signal stops in an orderly way, another one at once."""

    def stop(number: int, _: FrameType | None) -> None:
        for known in (signal.SIGINT, signal.SIGTERM):
            signal.signal(known, signal.SIG_DFL)
        raise Stopped(number)

    for known in (signal.SIGINT, signal.SIGTERM):
        signal.signal(known, stop)


if __name__ == "__main__":
    sys.exit(main())
