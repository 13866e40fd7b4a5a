"""Three ways to speak a long first sentence, two of which begin sooner: measured, and to be listened to.

    uv run python scripts/first_cut_samples.py [--page FOLDER] [--sentences N] [--voices NAME ...] [--mos]

- whole: the sentence in one pass; what the others are held against, and itself with other noise.
- clauses: each clause is an utterance of its own, with an intonation of its own, joined as sentences are.
- parts: what the server does, see docs/scheduling.md. Durations, pitch and energy are the whole sentence's; its frames
  are cut where the mark begins that a clause ends with, and the network's norms see one part alone.

Prints a table. With --page writes a page with the sounds, the pitch that the model predicts (at which the vocoder's
source sounds) and the joints. --mos adds the opinion score that the package `distillmos` predicts (`uv pip
install --no-deps distillmos xls-r-sqa`).
"""

import argparse
import html
import statistics
import sys
import time
import wave
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import numpy as np
import soxr
import torch
from numpy.typing import NDArray
from torch import Tensor

from scripts.codec_table import WHISPER_RATE, edits, open_whisper, words_of
from serve_app.audio.pcm import MODEL_RATE, Samples, to_s16le
from serve_app.audio.seams import SeamJoiner
from serve_app.config import TextSettings, WeightsSettings
from serve_app.engine.cpu.vocoder import cpu_vocoder
from serve_app.engine.network.stages import Cut, Kokoro, Vocoder, align
from serve_app.engine.weights import build_network, load_weights
from serve_app.text.first_cut import cut_first
from serve_app.text.phonemes import FrontEnd
from serve_app.text.vocab import CLAUSE_ENDS, SPACE, VOCAB

SENTENCES = (
    "When the storm finally reached the coast late on Sunday evening, most of the fishing boats had already been "
    "pulled up onto the sand, and nobody was hurt.",
    "If you would like to change your appointment, please tell me which day suits you best; we have openings on "
    "Tuesday and on Thursday afternoon.",
    "The museum opens at nine in the morning on every day of the week - except for Monday, when the whole building "
    "is closed for cleaning and repairs.",
    "Your parcel left our warehouse this morning, and according to the driver it should be at your door before six,"
    " unless the snow slows him down.",
    "I have looked through all the invoices that you sent me last month, but the one from the printing company "
    "seems to be missing from the folder.",
    "Before you start to paint the wall, wash it with warm water and a little soap, let it dry for a whole day, and"
    " cover the floor with old newspapers.",
    "The first thing you should know about this trail: there is no water along the way, so carry at least two "
    "liters for every person in your group.",
    "She had planned to stay in the village for only two nights; in the end she rented a small house by the river "
    "and never went back to the city.",
    "Would you prefer the room with a view of the garden, which is quiet in the morning, or the larger one on the "
    "street, which has a balcony of its own?",
    "Unfortunately the last train to the airport has been canceled tonight, but there is a bus from the main "
    "square, and it takes about forty minutes.",
)
VOICES = ("af_heart", "am_michael", "bf_emma")
CUT_ABOVE_TOKENS = 80
MARKS = frozenset(VOCAB[symbol] for symbol in CLAUSE_ENDS | {","})
FRAME = 600
HOP = 150
"""Samples: of a frame of the model, and of a spectrum here."""
NEAR_JOINT_S = 0.5
"""How much speech on either side of a joint is compared."""


class Part(NamedTuple):
    """What one pass gives.

    Attributes:
        ends: frames from the part's start to each token's end, pads included, [tokens + 1], from 0.
        f0: Hz, two values a frame.
        first_s: seconds of computing until these samples were there, for a first part.
    """

    samples: Samples
    ends: NDArray[np.int64]
    f0: NDArray[np.float32]
    first_s: float


class Speaker:
    """The network, stage by stage, one item at a time."""

    def __init__(self) -> None:
        self._weights = load_weights(WeightsSettings())
        self._network: Kokoro = build_network(self._weights)
        self._vocoder: Vocoder = cpu_vocoder(self._network) or self._network.vocode

    def parts(self, ids: Sequence[int], voice: str, cuts: Sequence[int] = (), seed: int = 1) -> list[Part]:
        """
        Args:
            cuts: tokens, the leading pad counted, whose first frame begins a part.
        """
        with torch.inference_mode():
            started_s = time.perf_counter()
            style = self._weights.voices.style(voice, len(ids))
            tokens = torch.tensor([[0, *ids, 0]])
            states = self._network.text(tokens, torch.tensor([tokens.shape[1]]), style, torch.ones(1))
            everything = Cut(torch.tensor([0]), torch.tensor([0]), states.frames)
            hidden, encoded = (
                align(x, states.durations, everything, int(states.frames)) for x in (states.hidden, states.encoded)
            )
            f0, energy = self._network.prosody(hidden, style, states.frames)
            prosody_s = time.perf_counter() - started_s
            ends = np.array([0, *accumulate(states.durations[0].tolist())])
            found = []
            for first, last in pairwise((0, *cuts, tokens.shape[1])):
                started_s = time.perf_counter()
                a, b = int(ends[first]), int(ends[last])
                curve: Tensor = f0[:, 2 * a : 2 * b]
                audio = self._vocoder(
                    encoded[:, a:b].transpose(1, 2).contiguous(),
                    curve.contiguous(),
                    energy[:, 2 * a : 2 * b].contiguous(),
                    style,
                    torch.tensor([b - a]),
                    torch.tensor([seed + first]),
                )
                first_s = prosody_s + time.perf_counter() - started_s
                own = np.clip(ends[first:] - a, None, b - a) if first else np.clip(ends, None, b)
                found.append(Part(audio[0].numpy(), own, curve[0].numpy(), first_s))
            return found


@dataclass(frozen=True, slots=True, eq=False)
class Version:
    """One sentence in one way.

    Attributes:
        starts, ends: sample at which each of the sentence's tokens begins and ends, without the pads; a token that this
            way leaves out begins and ends nowhere, -1.
        joints: samples where parts meet.
        f0: Hz, at every half frame of the audio, 0 where there is none.
    """

    samples: Samples
    starts: NDArray[np.int64]
    ends: NDArray[np.int64]
    joints: tuple[int, ...]
    f0: NDArray[np.float32]
    first_s: float


def in_parts(speaker: Speaker, ids: Sequence[int], voice: str, starts: Sequence[int], seed: int = 1) -> Version:
    """By frames: `starts` are tokens, without the pad, that begin a part; none for the whole."""
    parts = speaker.parts(ids, voice, [start + 1 for start in starts], seed)
    samples, joints, f0 = [], [], []
    for number, part in enumerate(parts):
        audio = part.samples.copy()
        fade = (np.arange(120, dtype=np.float32) + 0.5) / 120
        if number:
            audio[:120] *= fade
        if number < len(parts) - 1:
            audio[-120:] *= fade[::-1]
        samples.append(audio)
        f0.append(part.f0)
        joints.append(sum(map(len, samples)))
    ends, offset = [0], 0
    for part, (first, last) in zip(parts, pairwise((0, *(start + 1 for start in starts), len(ids) + 2)), strict=True):
        ends += [offset + int(end) for end in part.ends[1 : last - first + 1]]
        offset = ends[-1]
    at = FRAME * np.array(ends)
    return Version(
        np.concatenate(samples), at[1:-2], at[2:-1], tuple(joints[:-1]), np.concatenate(f0), parts[0].first_s
    )


def in_clauses(speaker: Speaker, ids: Sequence[int], voice: str, clauses: Sequence[tuple[int, int]]) -> Version:
    """By utterances: tokens [first, end) of each."""
    joiner, samples, joints, f0 = SeamJoiner(), list[Samples](), list[int](), list[NDArray[np.float32]]()
    starts, ends = np.full(len(ids), -1), np.full(len(ids), -1)
    position, first_s = 0, 0.0
    for number, (first, end) in enumerate(clauses):
        [part] = speaker.parts(ids[first:end], voice)
        joined = joiner.join(part.samples, continues=False, resumes=number > 0)
        origin = position - joined.trimmed_start_samples
        if number:
            joints.append(position)
        else:
            first_s = part.first_s
        own = np.clip(origin + FRAME * part.ends, position, position + len(joined.samples))
        starts[first:end], ends[first:end] = own[1:-2], own[2:-1]
        samples.append(joined.samples)
        position += len(joined.samples)
        skipped = max(0, round(joined.trimmed_start_samples / (FRAME / 2)))
        count = round(position / (FRAME / 2)) - sum(map(len, f0))
        f0.append(np.resize(np.append(part.f0[skipped:], np.zeros(count, np.float32)), count))
    tail = joiner.finish()
    return Version(np.concatenate([*samples, tail]), starts, ends, tuple(joints), np.concatenate(f0), first_s)


def clauses_of(ids: Sequence[int], starts: Sequence[int]) -> list[tuple[int, int]]:
    """Tokens [first, end) of each clause: its mark belongs to it, the blank behind that to none."""
    clauses, first = [], 0
    for start in starts:
        blank = ids.index(VOCAB[SPACE], start)
        while VOCAB[SPACE] in ids[blank + 1 : blank + 3] and ids[blank + 1] in MARKS:  # a dash between two blanks
            blank = ids.index(VOCAB[SPACE], blank + 1)
        clauses.append((first, blank))
        first = blank + 1
    return [*clauses, (first, len(ids))]


# Measures


def levels_db(samples: Samples) -> NDArray[np.float32]:
    """Log spectra, [bins, n], one every HOP samples."""
    spectrum = torch.stft(
        torch.from_numpy(samples), 1024, HOP, window=torch.hann_window(1024), return_complex=True
    ).abs()
    return 20 * torch.log10(spectrum.clamp(min=1e-5)).numpy()


def distances(version: Version, whole: Version) -> tuple[float, float]:
    """Log-spectral distance in dB and pitch in semitones (rms), each token's audio drawn out to the whole's length."""
    ours, theirs = levels_db(version.samples), levels_db(whole.samples)
    floor = theirs.max() - 80
    a_loud = theirs.max(0) > theirs.max() - 40
    spectra, tones = [], []
    for token in range(len(whole.starts)):
        first, end = whole.starts[token], whole.ends[token]
        if version.starts[token] < 0 or end <= first:
            continue
        at = np.arange(first, end, HOP)
        there = version.starts[token] + (at - first) * (version.ends[token] - version.starts[token]) / (end - first)
        a = np.maximum(theirs[:, at // HOP], floor)
        b = np.maximum(ours[:, np.minimum((there / HOP).round().astype(int), ours.shape[1] - 1)], floor)
        spectra.append(np.sqrt(np.square(a - b).mean(0)))
        half = FRAME // 2
        a, b = whole.f0[at // half], version.f0[np.minimum((there / half).astype(int), len(version.f0) - 1)]
        voiced = (a > 10) & (b > 10) & (a_loud[at // HOP])
        tones.append(12 * np.log2(b[voiced] / a[voiced]))
    return float(np.concatenate(spectra).mean()), float(np.sqrt(np.square(np.concatenate(tones)).mean()))


class Joint(NamedTuple):
    """How the speech changes over a joint: what is after it against what is before it, and the pause between them."""

    loudness_db: float
    pitch_semitones: float
    pause_s: float


def joint(version: Version, at: int) -> Joint:
    """
    Args:
        at: a sample within the pause.
    """
    step = MODEL_RATE // 200
    frames = version.samples[: len(version.samples) // step * step].reshape(-1, step)
    rms = np.sqrt(np.square(frames).mean(1))
    loud = np.flatnonzero(rms > rms.max() * 10 ** (-45 / 20))
    before, after = loud[loud < at // step][-1], loud[loud >= at // step][0]
    near = round(NEAR_JOINT_S * MODEL_RATE / step)

    def level_db(first: int, end: int) -> float:
        return float(10 * np.log10(np.square(frames[max(first, 0) : end]).mean()))

    def pitch(first: int, end: int) -> float:
        curve = version.f0[max(first, 0) * step * 2 // FRAME : end * step * 2 // FRAME + 1]
        return float(np.median(curve[curve > 10])) if (curve > 10).any() else 1.0

    return Joint(
        level_db(after, after + near) - level_db(before + 1 - near, before + 1),
        12 * float(np.log2(pitch(after, after + near) / pitch(before + 1 - near, before + 1))),
        float(after - before - 1) * step / MODEL_RATE,
    )


def open_mos() -> Callable[[Samples], float]:
    """A predictor of mean opinion scores, 1 to 5, over 16 kHz audio."""
    sys.modules.setdefault("torchaudio", ModuleType("torchaudio"))  # of which only its command line has need
    from distillmos import ConvTransformerSQAModel

    model = ConvTransformerSQAModel().eval()

    def score(samples: Samples) -> float:
        with torch.inference_mode():
            return float(model(torch.from_numpy(samples)[None]))

    return score


class Row(NamedTuple):
    """One sentence, one voice, one way. Steps are how far those at the joints are from the whole's, their median."""

    way: str
    first_s: float
    words: int
    errors: int
    distance_db: float
    semitones: float
    loudness_db: float
    pitch_semitones: float
    pause_s: float
    whole_pause_s: float
    mos: float


def measured(
    way: str, version: Version, whole: Version, starts: Sequence[int], text: str, read: Callable[[Samples], str],
    score: Callable[[Samples], float] | None,
) -> Row:  # fmt: skip
    audio: Samples = soxr.resample(version.samples, MODEL_RATE, WHISPER_RATE).astype(np.float32)
    distance_db, semitones = distances(version, whole)
    places = [int(whole.starts[start]) for start in starts]
    found = [joint(version, at) for at in version.joints or places]
    expected = [joint(whole, at) for at in places]

    def off(field: str) -> float:
        return statistics.median(
            abs(getattr(one, field) - getattr(other, field)) for one, other in zip(found, expected, strict=True)
        )

    return Row(
        way, version.first_s, len(words_of(text)), edits(words_of(text), words_of(read(audio))), distance_db, semitones,
        off("loudness_db"), off("pitch_semitones"), statistics.fmean(one.pause_s for one in found),
        statistics.fmean(one.pause_s for one in expected), score(audio) if score else float("nan"),
    )  # fmt: skip


def table(rows: Sequence[Row]) -> str:
    """In Markdown."""
    lines = [
        "| way | first audio, s of computing | words wrong | spectrum dB | pitch st | loudness step dB | pitch step st "
        "| pause s (whole's) | predicted MOS |",
        "|---|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for way in dict.fromkeys(row.way for row in rows):
        own = [row for row in rows if row.way == way]

        def over(average: Callable[[Iterable[float]], float], field: str, own: Sequence[Row] = own) -> str:
            return f"{average(getattr(row, field) for row in own):.2f}"

        cells = [
            way,
            over(statistics.median, "first_s"),
            f"{sum(row.errors for row in own)} of {sum(row.words for row in own)}",
            over(statistics.fmean, "distance_db"),
            over(statistics.fmean, "semitones"),
            over(statistics.median, "loudness_db"),
            over(statistics.median, "pitch_semitones"),
            f"{over(statistics.median, 'pause_s')} ({over(statistics.median, 'whole_pause_s')})",
            over(statistics.fmean, "mos"),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


# The page


def picture(version: Version) -> str:
    """Loudness as a shape, pitch as a line, joints as marks: an SVG, 100 px a second."""
    step = MODEL_RATE // 100
    frames = version.samples[: len(version.samples) // step * step].reshape(-1, step)
    heights = 40 * np.sqrt(np.square(frames).mean(1)) / 0.2
    shape = " ".join(f"{at},{120 - min(height, 60):.0f}" for at, height in enumerate(heights))
    half_s = FRAME / 2 / MODEL_RATE
    dots = "".join(
        f'<circle cx="{100 * half_s * at:.1f}" cy="{110 - hz / 3.5:.1f}" r="1"/>'
        for at, hz in enumerate(version.f0)
        if hz > 10
    )
    width = 100 * len(version.samples) / MODEL_RATE
    marks = "".join(
        f'<line x1="{100 * at / MODEL_RATE:.0f}" x2="{100 * at / MODEL_RATE:.0f}" y1="0" y2="120" stroke="#c00"/>'
        for at in version.joints
    )
    return (
        f'<svg width="{width:.0f}" height="120"><polygon points="0,120 {shape} {width:.0f},120" fill="#ccc"/>'
        f'<g fill="#036">{dots}</g>{marks}</svg>'
    )


def write_page(folder: Path, samples: Sequence[tuple[str, str, str, Version]], summary: str) -> None:
    """
    Args:
        samples: text, voice, way and what it gave.
    """
    folder.mkdir(parents=True, exist_ok=True)
    lines = [
        "<!doctype html><meta charset=utf-8><title>The first cut</title>",
        "<style>body{font:16px sans-serif;max-width:80em;margin:2em}td{vertical-align:middle}</style>",
        f"<pre>{html.escape(summary)}</pre>",
        "<p>Grey: loudness. Blue: pitch, as predicted. Red: where parts meet.</p>",
    ]
    for number, (text, voice, way, version) in enumerate(samples):
        name = f"{number:03}-{voice}-{way.partition(',')[0]}.wav"
        with wave.open(str(folder / name), "wb") as file:
            file.setparams((1, 2, MODEL_RATE, 0, "NONE", ""))
            file.writeframes(to_s16le(version.samples))
        if way == "whole":
            lines.append(f"<h3>{html.escape(text)} <small>{voice}</small></h3>")
        lines.append(f"<p>{way}<br><audio controls src={name}></audio> {picture(version)}</p>")
    (folder / "index.html").write_text("\n".join(lines))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--page", type=Path, metavar="FOLDER", help="write sounds and a page there")
    parser.add_argument("--sentences", type=int, default=len(SENTENCES), help="only the first so many; %(default)s")
    parser.add_argument("--voices", nargs="+", default=VOICES)
    parser.add_argument("--mos", action="store_true", help="predict opinion scores, with the package distillmos")
    options = parser.parse_args()
    front_end, speaker = FrontEnd(TextSettings()), Speaker()
    read, score = open_whisper(), open_mos() if options.mos else None
    rows, samples = [], []
    for text in SENTENCES[: options.sentences]:
        [piece] = front_end.pieces(text, "a")
        starts = [part.part[0] for part in cut_first(piece, CUT_ABOVE_TOKENS)[1:] if part.part]
        clauses = clauses_of(piece.phoneme_ids, starts)
        for voice in options.voices:
            ids = piece.phoneme_ids
            whole = in_parts(speaker, ids, voice, [])
            versions = {
                "whole": whole,
                "whole, other noise": in_parts(speaker, ids, voice, [], seed=2),
                "clauses": in_clauses(speaker, ids, voice, clauses),
                "parts": in_parts(speaker, ids, voice, starts),
            }
            for way, version in versions.items():
                rows.append(measured(way, version, whole, starts, text, read, score))
                samples.append((text, voice, way, version))
        print(f"{len(rows)} measured", file=sys.stderr, flush=True)
    summary = table(rows)
    print(summary)
    if options.page:
        write_page(options.page, samples, summary)


if __name__ == "__main__":
    main()
