"""How much sooner an agent is heard that speaks while it writes: the same prompts in both modes, in turn.

`uv run python scripts/compare_modes.py` starts the local stack and an agent that reads a five-sentence answer at 40
tokens a second; with `--agent http://HOST:PORT` it asks a running agent, whatever its model and endpoint. Times are the
caller's: from the request to the first text, the first and the last audio, and the gaps that a listener hears who
plays the audio from the first byte on.
"""

import argparse
import base64
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import httpx
import pyarrow as pa
import pyarrow.parquet as pq

from scripts.loadtest.stats import playback
from scripts.running import Running, free_port, local_config, python_running, serve_running
from serve_app.protocol.sse import SseDecoder

MODES = ("bidi", "batch")
BYTES_PER_SECOND = 48_000
"""pcm16 at 24 kHz, which the agent sends unless asked otherwise."""

FIGURES = ("first_text_s", "first_audio_s", "last_audio_s", "gaps_s")
READY_WITHIN_S = 120.0


@dataclass(frozen=True)
class Answer:
    """One prompt in one mode, as its caller saw it. Times are from the request on; a failure has none after it."""

    round: int
    prompt: int
    mode: str
    first_text_s: float | None
    first_audio_s: float | None
    last_audio_s: float | None
    gaps_s: float
    audio_s: float
    characters: int
    error: str


def ask(agent: str, prompt: str, mode: str, round_: int, number: int) -> Answer:
    """Have one prompt answered."""
    decoder, arrivals, first_text_s, characters, error = SseDecoder(), list[tuple[float, float]](), None, 0, "cut off"
    began_s = time.perf_counter()
    with httpx.stream("POST", f"{agent}/invocations", json={"prompt": prompt, "mode": mode}, timeout=120) as response:
        if response.status_code != 200:
            error = f"status {response.status_code}"
        for data in response.iter_bytes():
            now_s = time.perf_counter() - began_s
            for event in (each.json() for each in decoder.feed(data)):
                match event["type"]:
                    case "text_delta":
                        first_text_s = now_s if first_text_s is None else first_text_s
                        characters += len(event["text"])
                    case "audio_chunk":
                        arrivals.append((now_s, len(base64.b64decode(event["data"])) / BYTES_PER_SECOND))
                    case "agent_end":
                        error = ""
                    case "error":
                        error = event["message"]
    return Answer(
        round=round_,
        prompt=number,
        mode=mode,
        first_text_s=first_text_s,
        first_audio_s=arrivals[0][0] if arrivals else None,
        last_audio_s=arrivals[-1][0] if arrivals else None,
        gaps_s=playback(arrivals).silent_s,
        audio_s=sum(duration_s for _, duration_s in arrivals),
        characters=characters,
        error=error,
    )


def compare(agent: str, prompts: Sequence[str], rounds: int) -> list[Answer]:
    """Every prompt in both modes, one after the other, the order of the modes changing from round to round."""
    ask(agent, prompts[0], "bidi", -1, 0)  # warm: connections, code, the engine's shapes
    answers = []
    for round_ in range(rounds):
        for number, prompt in enumerate(prompts):
            for mode in MODES if round_ % 2 == 0 else reversed(MODES):
                answers.append(ask(agent, prompt, mode, round_, number))
    return answers


def median_of(answers: Sequence[Answer], mode: str, figure: str) -> float:
    """Over the answers of a mode that were whole; NaN if none was."""
    values = [getattr(answer, figure) for answer in answers if answer.mode == mode and not answer.error]
    values = [value for value in values if value is not None]
    return statistics.median(values) if values else float("nan")


def table(answers: Sequence[Answer]) -> str:
    """Failures first, then medians of each mode and their ratio."""
    failed = [answer for answer in answers if answer.error]
    lines = [f"answers: {len(answers)}, of which failed: {len(failed)}"]
    lines += [f"  {answer.mode} round {answer.round}: {answer.error}" for answer in failed]
    lines += ["", "| median of | bidi | batch | batch / bidi |", "| --- | --- | --- | --- |"]
    for figure in FIGURES:
        bidi, batch = (median_of(answers, mode, figure) for mode in MODES)
        ratio = f"{batch / bidi:.2f}" if bidi else "-"
        lines.append(f"| {figure} | {bidi:.3f} | {batch:.3f} | {ratio} |")
    return "\n".join(lines)


def plot(answers: Sequence[Answer], path: Path) -> None:
    """Time to the first sound of every answer, by mode."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 2.6), layout="constrained")
    for row, mode in enumerate(MODES):
        heard = [answer.first_audio_s for answer in answers if answer.mode == mode and answer.first_audio_s is not None]
        axes.plot(heard, [row] * len(heard), "o", alpha=0.5)
        axes.plot(median_of(answers, mode, "first_audio_s"), row, "k|", markersize=28, markeredgewidth=2)
    axes.set_yticks(range(len(MODES)), MODES)
    axes.set_ylim(-0.6, len(MODES) - 0.4)
    axes.set_xlim(left=0)
    axes.set_xlabel("seconds from the request to the first sound")
    axes.grid(axis="x", alpha=0.3)
    figure.savefig(path, dpi=110)


@contextmanager
def local_agent(speech: str, *options: str) -> Iterator[Running]:
    """`python -m agent --local` against a speech server, in a process of its own."""
    port = free_port()
    command = ("-m", "agent", "--local", "--port", str(port), "--tts-endpoint", speech, *options)
    with python_running(port, *command) as running:
        running.wait_until_ready(READY_WITHIN_S)
        yield running


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--agent", metavar="URL", help="of a running agent (default: start one, and the stack)")
    parser.add_argument("--prompts", type=Path, metavar="FILE", help="one a line (default: one prompt)")
    parser.add_argument("--rounds", type=int, default=10, help="(default: %(default)s)")
    parser.add_argument("--tokens-per-second", type=float, default=40.0, help="of the reader (default: %(default)s)")
    parser.add_argument("--parquet", type=Path, metavar="FILE", help="every answer, a row each")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="a PNG")
    arguments = parser.parse_args()
    prompts = arguments.prompts.read_text().splitlines() if arguments.prompts else ["How does this work?"]
    with ExitStack() as stack:
        agent = arguments.agent
        if agent is None:
            running = stack.enter_context(serve_running(local_config()))
            pace = ("--tokens-per-second", str(arguments.tokens_per_second))
            agent = stack.enter_context(local_agent(running.http, *pace)).http
        answers = compare(agent.rstrip("/"), [prompt for prompt in prompts if prompt.strip()], arguments.rounds)
    print(table(answers))
    if arguments.parquet:
        pq.write_table(pa.Table.from_pylist([asdict(answer) for answer in answers]), arguments.parquet)
    if arguments.plot:
        plot(answers, arguments.plot)
    sys.exit(any(answer.error for answer in answers))


if __name__ == "__main__":
    main()
