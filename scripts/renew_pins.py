"""Renew every pin: `uv run python scripts/renew_pins.py` resolves the newest versions and writes them down.

pyproject.toml gets the whole resolution, transitive packages and build tools included, as constraints that `uv run`
obeys; the files in deploy/ get what each image installs, with hashes. None of them names a registry, which a lock file
would do in every line.
"""

import re
import subprocess
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PYPROJECT = ROOT / "pyproject.toml"
IMAGES = {
    "requirements.txt": ["--no-default-groups"],  # the server
    "weights-requirements.txt": ["--only-group", "packaged"],  # what bakes the model into it
    "agent-requirements.txt": ["--only-group", "agent-image"],
}
"""Files in deploy/, and what `uv export` is told for each."""
BLOCK = re.compile(r"(# pins: written by scripts/renew_pins\.py\n).*?(# end of pins\n)", re.DOTALL)
EXPORT = ("export", "--quiet", "--no-emit-project", "--no-header", "--no-annotate")


def uv(*arguments: str) -> str:
    """Run uv in the project and return its output."""
    return subprocess.run(["uv", *arguments], cwd=ROOT, check=True, text=True, stdout=subprocess.PIPE).stdout


def write_block(lines: list[str]) -> None:
    """Replace what stands between the two marks in pyproject.toml."""
    text = PYPROJECT.read_text()
    if not BLOCK.search(text):
        raise SystemExit("pyproject.toml has lost the marks around its pins")
    PYPROJECT.write_text(BLOCK.sub(lambda match: match[1] + "".join(f"{line}\n" for line in lines) + match[2], text))


def as_list(name: str, requirements: list[str]) -> list[str]:
    """A TOML array of strings, one a line."""
    return [f"{name} = [", *(f'  "{requirement.replace(chr(34), chr(39))}",' for requirement in requirements), "]"]


def build_pins() -> list[str]:
    """The build backend and what it needs, at their newest versions."""
    requires = tomllib.loads(PYPROJECT.read_text())["build-system"]["requires"]
    resolved = subprocess.run(
        ["uv", "pip", "compile", "--quiet", "--no-header", "--no-annotate", "--upgrade", "-"],
        cwd=ROOT,
        check=True,
        text=True,
        input="\n".join(requires),
        stdout=subprocess.PIPE,
    ).stdout
    return resolved.split("\n")[:-1]


def main() -> None:
    write_block([])
    uv("lock", "--upgrade")
    pins = uv(*EXPORT, "--no-hashes", "--all-extras", "--all-groups").splitlines()
    write_block([*as_list("constraint-dependencies", pins), *as_list("build-constraint-dependencies", build_pins())])
    uv("lock")
    for name, selection in IMAGES.items():
        (ROOT / "deploy" / name).write_text(uv(*EXPORT, *selection))
    print(f"{len(pins)} packages pinned; for the images: {', '.join(f'deploy/{name}' for name in IMAGES)}")


if __name__ == "__main__":
    main()
