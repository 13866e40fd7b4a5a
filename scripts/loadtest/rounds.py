"""Rounds of sessions against servers, in turn, so that whatever else the machine does falls on all of them."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import asdict, dataclass, replace

from scripts.loadtest.arrivals import Session
from scripts.loadtest.client import BYTES_PER_S, Failure, Heard, Server, Speaker, clock_s
from scripts.loadtest.speech import script
from scripts.loadtest.stats import Answer, judged, playback


@dataclass(frozen=True, slots=True)
class Load:
    """What every server gets.

    Attributes:
        sentences: of each answer.
        listening: a session asks again when its listener has heard the last answer, not when it has come.
        seed: decides texts and arrivals.
        ends_at_s: on `clock_s`; what is on its way then is given up and counted as such, what has not begun is left.
    """

    sentences: int
    listening: bool
    seed: int
    ends_at_s: float


@dataclass(frozen=True, slots=True)
class Place:
    """Where an answer belongs."""

    server: str
    route: str
    round: int
    sessions: int
    session: int
    number: int = 0


async def alternate(
    servers: Sequence[Server],
    routes: Sequence[str],
    rounds: int,
    sessions_of: Callable[[int], Sequence[Session]],
    load: Load,
) -> AsyncIterator[list[Answer]]:
    """Every round against each server over each route, one after the other; who begins changes from round to round.

    In a round, all get the same texts at the same times. Yields what became of each turn.
    """
    for number in range(rounds):
        turn = number % len(servers)
        for route in routes:
            for server in [*servers[turn:], *servers[:turn]]:
                if clock_s() < load.ends_at_s:
                    yield await run_round(server, route, number, sessions_of(number), load)


async def run_round(server: Server, route: str, number: int, sessions: Sequence[Session], load: Load) -> list[Answer]:
    """One round; it is over when every answer has ended."""
    began_s = clock_s()
    async with asyncio.TaskGroup() as tasks:
        running = [
            tasks.create_task(
                _run_session(server, Place(server.name, route, number, len(sessions), at), one, began_s, load)
            )
            for at, one in enumerate(sessions)
        ]
    return [answer for task in running for answer in task.result()]


async def _run_session(server: Server, place: Place, session: Session, began_s: float, load: Load) -> list[Answer]:
    answers: list[Answer] = []
    due_s = began_s + session.starts_s
    speaker = server.speaker(place.route)
    try:
        for number in range(session.answers):
            if due_s >= load.ends_at_s:
                break
            await asyncio.sleep(due_s - clock_s())
            answer, heard_until_s = await _ask(speaker, replace(place, number=number), began_s, due_s, load)
            answers.append(answer)
            due_s = max(clock_s(), heard_until_s) if load.listening else clock_s()
    finally:
        await speaker.aclose()
    return answers


async def _ask(speaker: Speaker, place: Place, round_began_s: float, due_s: float, load: Load) -> tuple[Answer, float]:
    """One answer, and when its listener has heard it all."""
    text = script(load.sentences, f"{load.seed}/{place.round}/{place.session}/{place.number}")
    request_id = f"load-{load.seed}-{place.route}-{place.round}-{place.session}-{place.number}"
    heard, failure, asked_s = Heard(), None, clock_s()
    try:
        async with asyncio.timeout(load.ends_at_s - asked_s):
            await speaker.speak(text, request_id, heard)
    except Failure as exc:
        failure = exc
    except TimeoutError:
        failure = Failure("the load test's time was over")
    ended_s, began_s = clock_s(), asked_s if heard.sent_s is None else heard.sent_s
    audio = [(at_s, size_bytes / BYTES_PER_S) for at_s, size_bytes in heard.arrivals]
    played, audio_s = playback(audio), sum(duration_s for _, duration_s in audio)
    outcome, reason = judged(
        failure.reason if failure else "",
        busy=failure is not None and failure.busy,
        audio_s=audio_s,
        characters=len(text.text),
    )
    answer = Answer(
        **asdict(place),
        request_id=request_id,
        outcome=outcome,
        reason=reason,
        sentences=len(text.sentences),
        characters=len(text.text),
        late_s=asked_s - due_s,
        began_s=began_s - round_began_s,
        connect_s=heard.connect_s,
        ttfa_s=audio[0][0] - began_s if audio else None,
        last_audio_s=audio[-1][0] - began_s if audio else None,
        ended_s=ended_s - began_s,
        audio_s=audio_s,
        gaps=played.gaps,
        silent_s=played.silent_s,
        longest_gap_s=played.longest_gap_s,
        retry_after_s=failure.retry_after_s if failure else None,
    )
    return answer, played.ends_s
