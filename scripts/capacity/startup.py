"""How long one more instance takes, from the decision to its first session, by stage."""

import re
from collections.abc import Iterable, Mapping
from datetime import datetime

STAGES = ("provisioning", "image_pull", "weights", "engine_start", "warm_up")
"""In the order in which they happen. SageMaker lays the weights down before the container starts."""

_TIME = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d[.,]\d{3}")
_FIRST_LINE = re.compile("")
_MODEL = re.compile(r"Adding \d+ replicas? to Deployment\(name='Kokoro'")
_READY = re.compile("Application '[^']+' is ready")

MARKERS: dict[str, tuple[re.Pattern[str], re.Pattern[str]]] = {
    "engine_start": (_FIRST_LINE, _MODEL),
    "warm_up": (_MODEL, _READY),
}
"""Stages that a container's log tells, and the lines, Ray Serve's, with which each begins and ends. The stages before
them are over when the container writes its first line.
"""


class StartupError(ValueError):
    """The start-up time is not known. The message says which stages are missing, and how they are given."""


def stages_in(log: Iterable[str]) -> dict[str, float]:
    """Seconds of every stage whose two lines are in the log of a container, the first start in it."""
    seen: dict[re.Pattern[str], datetime] = {}
    wanted = {mark for marks in MARKERS.values() for mark in marks}
    for line in log:
        found = _TIME.search(line)
        if found is None:
            continue
        moment = datetime.fromisoformat(found[0].replace(",", "."))
        for mark in wanted:
            if mark.search(line):
                seen.setdefault(mark, moment)
    return {
        stage: (seen[end] - seen[begin]).total_seconds()
        for stage, (begin, end) in MARKERS.items()
        if begin in seen and end in seen
    }


def stages_of(log: Iterable[str], given_s: Mapping[str, float]) -> dict[str, float]:
    """Every stage, in order; what is given wins over what the log says.

    Raises:
        StartupError: a stage that does not exist, or one that neither tells.
    """
    unknown = set(given_s) - set(STAGES)
    if unknown:
        raise StartupError(f"{', '.join(sorted(unknown))} is no stage of a start; they are {', '.join(STAGES)}")
    known = {**stages_in(log), **given_s}
    missing = [stage for stage in STAGES if stage not in known]
    if missing:
        raise StartupError(
            "how long does it take? " + " ".join(f"--stage {stage}=SECONDS" for stage in missing) + " is missing; "
            "what comes before the container is the time from the endpoint's update to the log's first line"
        )
    return {stage: known[stage] for stage in STAGES}
