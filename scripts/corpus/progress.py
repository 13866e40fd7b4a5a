"""How far a run is, for a person: a bar on a terminal, and lines elsewhere. Time is an argument."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TextIO

from tqdm import tqdm

BAR_EVERY_S, LINE_EVERY_S = 1.0, 30.0


@dataclass(frozen=True, slots=True)
class Amount:
    """Rows, the characters of their text, and the seconds of their audio, as far as it is there."""

    rows: int = 0
    characters: int = 0
    audio_s: float = 0.0

    def __add__(self, other: "Amount") -> "Amount":
        return Amount(self.rows + other.rows, self.characters + other.characters, self.audio_s + other.audio_s)


@dataclass(frozen=True, slots=True)
class Progress:
    """
    Attributes:
        total: of the input; without audio, of which nobody knows how much it will be.
        before: what earlier runs had done.
        now: what this one has, `elapsed_s` seconds after it began to speak.
        expected_s: of the audio of `total`, estimated before anything was heard.
    """

    total: Amount
    before: Amount
    expected_s: float
    now: Amount = Amount()
    elapsed_s: float = 0.0

    def at(self, now: Amount, elapsed_s: float) -> "Progress":
        return replace(self, now=now, elapsed_s=elapsed_s)

    @property
    def audio_left_s(self) -> float:
        """About: what is left reads like what is done, by its characters."""
        done = self.before + self.now
        s_per_character = (
            done.audio_s / done.characters if done.characters else self.expected_s / max(1, self.total.characters)
        )
        return (self.total.characters - done.characters) * s_per_character

    @property
    def share(self) -> float:
        """What is done of all, 0 to 1."""
        done = self.before + self.now
        return done.characters / self.total.characters if self.total.characters else 1.0

    @property
    def told(self) -> str:
        done = self.before + self.now
        speed = self.now.audio_s / self.elapsed_s if self.elapsed_s else 0.0
        left = _duration(self.audio_left_s / speed) if speed else "unknown"
        return (
            f"{done.rows}/{self.total.rows} rows  {done.audio_s / 3600:.2f} h of audio, "
            f"{self.audio_left_s / 3600:.2f} h left  {speed:.2f} s/s  ETA {left}"
        )


@contextmanager
def shown(progress: Progress, where: TextIO) -> Iterator[tuple[Callable[[Amount, float], None], float]]:
    """What shows how far it is, by what is done and in how many seconds; and how often it likes to be told."""
    if not where.isatty():
        yield lambda now, elapsed_s: _print_line(progress.at(now, elapsed_s), where), LINE_EVERY_S
        return
    with tqdm(total=1.0, bar_format="{percentage:3.0f}% {bar:10} {desc}", file=where, dynamic_ncols=True) as bar:

        def show(now: Amount, elapsed_s: float) -> None:
            latest = progress.at(now, elapsed_s)
            bar.n = latest.share
            bar.set_description_str(latest.told)

        yield show, BAR_EVERY_S


def _print_line(progress: Progress, where: TextIO) -> None:
    print(f"{progress.share:4.0%}  {progress.told}", file=where, flush=True)


def _duration(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}"
