"""Which pinned packages have known advisories: `uv run python scripts/list_advisories.py [--osv all.zip] [--offline]`.

Two sources, either of which may be missing:

- `--osv PATH`: a copy of the OSV database for PyPI, which osv.dev exports as one zip file (or a folder of its JSON
  records). Fetched once where there is a network, it is read where there is none.
- `pip-audit`, run by `uv tool run`, which asks PyPI; not with `--offline`.

The last lines say which source was asked, how old its data is, and what nobody was asked about.
Exit status: 0 nothing is known of any pin, 1 at least one advisory, 3 nothing known, but some pins had no answer.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

ROOT = Path(__file__).resolve().parent.parent
ADVISORIES, UNANSWERED = 1, 3
PIP_AUDIT = ("uv", "tool", "run", "pip-audit", "--no-deps", "--disable-pip", "--format", "json", "--requirement")
PIP_AUDIT_WITHIN_S = 600
SHOWN = 8
NOT_LOOKED_AT = "Debian's packages in the images and what wheels bring in binary form; scan the built image for those"


@dataclass(frozen=True, slots=True, order=True)
class Pin:
    """A package at one version; `name` in its canonical form."""

    name: str
    version: str

    def __str__(self) -> str:
        return f"{self.name}=={self.version}"


@dataclass(frozen=True, slots=True, order=True)
class Advisory:
    """One that holds for a pin. `aliases`: its ids elsewhere; `fixed`: versions without it, where that is known."""

    pin: Pin
    id: str
    aliases: tuple[str, ...] = ()
    fixed: tuple[str, ...] = ()

    def __str__(self) -> str:
        also = f" ({', '.join(self.aliases)})" if self.aliases else ""
        return f"{self.pin}: {self.id}{also}, fixed in {', '.join(self.fixed) or 'no version yet'}"


@dataclass(slots=True)
class Answer:
    """What one source says: `of` how old its data is, or why there was no answer."""

    source: str
    of: str
    asked: set[Pin] = field(default_factory=set)
    advisories: list[Advisory] = field(default_factory=list)


def pins_of(root: Path) -> set[Pin]:
    """Every pin of pyproject.toml and of the images' requirement files."""
    uv = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["uv"]
    lines = [*uv["constraint-dependencies"], *uv["build-constraint-dependencies"]]
    for file in sorted((root / "deploy").glob("*requirements.txt")):
        joined = file.read_text().replace("\\\n", " ")
        lines += [line.partition(" --hash")[0] for line in joined.splitlines() if "==" in line]
    return set(pins_in(lines))


def pins_in(requirements: Iterable[str]) -> Iterator[Pin]:
    """The pins among requirements, whatever platform they are for."""
    for requirement in map(Requirement, requirements):
        for specifier in requirement.specifier:
            if specifier.operator == "==":
                yield Pin(canonicalize_name(requirement.name), specifier.version)


# OSV


def ask_osv(path: Path, pins: set[Pin]) -> Answer:
    """Look up the pins in a copy of the database."""
    answer, newest = Answer(f"the OSV records in {path.name}", "empty"), ""
    by_name: dict[str, list[Pin]] = {}
    for pin in sorted(pins):
        by_name.setdefault(pin.name, []).append(pin)
    count = 0
    for record in _records(path):
        count += 1
        newest = max(newest, record.get("modified", ""))
        if "withdrawn" not in record:
            answer.advisories += advisories_of(record, by_name)
    if count:
        answer.of, answer.asked = f"{count} records, the newest of {newest[:10]}", set(pins)
    return answer


def advisories_of(record: Mapping[str, Any], by_name: Mapping[str, Sequence[Pin]]) -> Iterator[Advisory]:
    """The pins that a record of the OSV schema is about."""
    for affected in record.get("affected", ()):
        package = affected.get("package", {})
        if package.get("ecosystem") != "PyPI":
            continue
        for pin in by_name.get(canonicalize_name(package["name"]), ()):
            if is_affected(pin.version, affected):
                events = [event for each in affected.get("ranges", ()) for event in each["events"]]
                fixed = tuple(sorted({event["fixed"] for event in events if "fixed" in event}, key=_order))
                yield Advisory(pin, record["id"], tuple(record.get("aliases", ())), fixed)


def is_affected(version: str, affected: Mapping[str, Any]) -> bool:
    """The evaluation of https://ossf.github.io/osv-schema/: listed, or within a range of the ecosystem's order."""
    if version in affected.get("versions", ()):
        return True
    ranges = (each for each in affected.get("ranges", ()) if each["type"] == "ECOSYSTEM")
    return any(_within(Version(version), each["events"]) for each in ranges)


def _within(version: Version, events: Sequence[Mapping[str, str]]) -> bool:
    inside = False
    for event in sorted(events, key=lambda event: _order(next(iter(event.values())))):
        (kind, border), *_ = event.items()
        if kind == "introduced" and (border == "0" or version >= _order(border)):
            inside = True
        elif (kind == "fixed" and version >= _order(border)) or (kind == "last_affected" and version > _order(border)):
            inside = False
    return inside


def _order(version: str) -> Version:
    try:
        return Version(version)
    except InvalidVersion:
        return Version("0")  # of a package that has left PEP 440 behind; its versions are listed one by one


def _records(path: Path) -> Iterator[dict[str, Any]]:
    if path.is_dir():
        for file in sorted(path.rglob("*.json")):
            yield json.loads(file.read_bytes())
    else:
        with zipfile.ZipFile(path) as archive:
            for name in archive.namelist():
                if name.endswith(".json"):
                    yield json.loads(archive.read(name))


# pip-audit


def ask_pip_audit(pins: set[Pin]) -> Answer:
    """Ask PyPI by the ordinary client."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "requirements.txt")
        file.write_text("".join(f"{pin}\n" for pin in sorted(pins)))
        try:
            done = subprocess.run([*PIP_AUDIT, file], capture_output=True, text=True, timeout=PIP_AUDIT_WITHIN_S)
        except (OSError, subprocess.TimeoutExpired) as exc:
            return Answer("PyPI, by pip-audit", f"no answer, {type(exc).__name__}")
    return parse_pip_audit(done.stdout)


def parse_pip_audit(report: str) -> Answer:
    """What pip-audit printed. It counts packages that PyPI says nothing about as fine; here they are unanswered."""
    answer = Answer("PyPI, by pip-audit", "now")
    try:
        dependencies = json.loads(report)["dependencies"]
    except (ValueError, KeyError):
        answer.of = "no answer"
        return answer
    for dependency in dependencies:
        if "skip_reason" in dependency:
            continue
        pin = Pin(canonicalize_name(dependency["name"]), dependency["version"])
        answer.asked.add(pin)
        for found in dependency["vulns"]:
            fixed = tuple(found.get("fix_versions", ()))
            answer.advisories.append(Advisory(pin, found["id"], tuple(found.get("aliases", ())), fixed))
    if not answer.asked:
        answer.of = "no answer"
    return answer


def report(pins: set[Pin], answers: Sequence[Answer]) -> int:
    """Print what is known and what is not; returns the exit status."""
    found = sorted({(advisory.pin, advisory.id): advisory for each in answers for advisory in each.advisories}.values())
    for advisory in found:
        print(advisory)
    for answer in answers:
        print(f"asked: {answer.source} ({answer.of}), about {len(answer.asked & pins)} of {len(pins)} pins")
    if not answers:
        print("asked: nobody")
    unanswered = pins.difference(*(answer.asked for answer in answers))
    if unanswered:
        shown = ", ".join(str(pin) for pin in sorted(unanswered)[:SHOWN])
        more = f" and {len(unanswered) - SHOWN} more" if len(unanswered) > SHOWN else ""
        print(f"nobody had an answer about {len(unanswered)}: {shown}{more}")
    print(f"not looked at: {NOT_LOOKED_AT}")
    print(f"{len(found)} advisories are known of {len(pins)} pins")
    return ADVISORIES if found else UNANSWERED if unanswered else 0


def main(arguments: Sequence[str] | None = None, root: Path = ROOT) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--osv", type=Path, metavar="PATH", help="a zip file or a folder of OSV records")
    parser.add_argument("--offline", action="store_true", help="ask nobody over the network")
    args = parser.parse_args(arguments)
    pins = pins_of(root)
    answers = []
    if args.osv is not None:
        try:
            answers.append(ask_osv(args.osv, pins))
        except (OSError, zipfile.BadZipFile, ValueError) as exc:
            parser.error(f"{args.osv} cannot be read as OSV records: {exc}")
    if not args.offline:
        answers.append(ask_pip_audit(pins))
    return report(pins, answers)


if __name__ == "__main__":
    sys.exit(main())
