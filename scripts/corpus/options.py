"""The command line of scripts/synthesize_corpus.py."""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scripts.arguments import count, positive
from scripts.corpus.rows import Defaults
from serve_app.audio.encoders import check_format
from serve_app.config import Settings
from serve_app.formats import FORMATS
from serve_app.protocol.requests import SpeechOptions, validate

THREADS = 1
PART_MINUTES = 10.0


@dataclass(frozen=True, slots=True)
class Options:
    """What was asked for.

    Attributes:
        workers: None: as many as fit.
        threads, num_gpus: of each worker; `num_gpus` None: one where there are any.
        batch: segments in one forward pass; None: what suits the device.
    """

    input: Path
    out: Path
    defaults: Defaults
    paragraphs: bool
    audio_format: str
    sample_rate: int
    audio_files: bool
    keeps_text: bool
    part_minutes: float
    workers: int | None
    threads: int
    num_gpus: float | None
    batch: int | None

    def deciding(self, settings: Settings) -> dict[str, Any]:
        """What decides what the output holds, by name; the rest may differ from run to run."""
        return {
            "voice": self.defaults.voice,
            "speed": self.defaults.speed,
            "lang": self.defaults.lang,
            "paragraphs": self.paragraphs,
            "format": self.audio_format,
            "sample rate": self.sample_rate,
            "audio files": self.audio_files,
            "text kept": self.keeps_text,
            "part minutes": self.part_minutes,
            "limits.max_text_chars": settings.limits.max_text_chars,
            **{f"text.{name}": value for name, value in settings.text.model_dump().items()},
        }


def parse_options(given: Sequence[str] | None, described: str) -> Options:
    """Exits with a sentence where the command line makes no sense. Raises BadRequest where a value cannot be spoken."""
    parser = argparse.ArgumentParser(description=described, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("input", type=Path, metavar="IN", help="a .parquet, .jsonl[.gz] or .txt[.gz], or a folder")
    parser.add_argument("out", type=Path, metavar="OUT", help="a new folder, or one that an earlier run has left")
    rows = parser.add_argument_group("rows")
    rows.add_argument("--voice", default="af_heart", help="of rows that name none (default: %(default)s)")
    rows.add_argument("--speed", type=float, default=1.0, help="of rows that name none (default: %(default)s)")
    rows.add_argument("--lang", help="of rows that name none (default: the voice's)")
    rows.add_argument("--paragraphs", action="store_true", help="a row of plain text is a paragraph, not a line")
    output = parser.add_argument_group("output")
    output.add_argument("--format", choices=FORMATS, default="wav", help="(default: %(default)s)")
    output.add_argument("--sample-rate", type=int, metavar="HZ", help="(default: the format's own)")
    output.add_argument("--audio-files", action="store_true", help="also a file for each row, and manifest.jsonl")
    output.add_argument("--without-text", action="store_true", help="keep the SHA-256 of each text, not the text")
    output.add_argument(
        "--part-minutes",
        type=positive,
        default=PART_MINUTES,
        metavar="MIN",
        help="audio of one Parquet part, about, which is what a worker loses when it is killed (default: %(default)g)",
    )
    workers = parser.add_argument_group("workers")
    workers.add_argument("--workers", type=count, metavar="N", help="(default: as many as the cluster has room for)")
    workers.add_argument("--threads", type=count, default=THREADS, help="CPUs of a worker (default: %(default)s)")
    workers.add_argument(
        "--num-gpus", type=_share, metavar="GPUS", help="of a worker, such as 0.5 (default: 1 where there are any)"
    )
    workers.add_argument(
        "--batch", type=count, metavar="N", help="segments in one forward pass (default: 16 on a GPU, else 1)"
    )
    found = parser.parse_args(given)
    validate(SpeechOptions, {"voice": found.voice, "speed": found.speed, "lang": found.lang})
    return Options(
        input=found.input,
        out=found.out,
        defaults=Defaults(found.voice, found.speed, found.lang),
        paragraphs=found.paragraphs,
        audio_format=found.format,
        sample_rate=check_format(found.format, found.sample_rate),
        audio_files=found.audio_files,
        keeps_text=not found.without_text,
        part_minutes=found.part_minutes,
        workers=found.workers,
        threads=found.threads,
        num_gpus=found.num_gpus,
        batch=found.batch,
    )


def _share(text: str) -> float:
    share = float(text)
    if not 0 <= share < float("inf"):
        raise ValueError
    return share
