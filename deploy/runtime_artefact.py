"""The agent as a zip for AgentCore's codeConfiguration: the sources that it imports, and packages for arm64.

The same inputs give the same bytes, so that the zip's hash can name it and an unchanged agent is not deployed again.
"""

import ast
import hashlib
import shutil
import subprocess
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

from deploy.errors import DeployError
from deploy.resources import LocalFile
from deploy.runtime_plan import ENTRY_POINT
from deploy.sources import ROOT

REQUIREMENTS = ROOT / "deploy" / "agent-requirements.txt"
MAIN = ROOT / "deploy" / "runtime_main.py"
FILE_NAME = "agent.zip"
MAX_ZIP_BYTES = 250 * 1024**2
MAX_UNPACKED_BYTES = 750 * 1024**2
"""AgentCore's limits."""

_PACKAGES = ("agent", "serve_app")
_LONG_AGO = (1980, 1, 1, 0, 0, 0)  # the first moment that a zip can name

Install = Callable[[Path], None]
"""Puts the packages into a folder."""


def build_artefact(into: Path, install: Install | None = None, root: Path = ROOT) -> LocalFile:
    """Write the zip into the folder `into`.

    Raises:
        DeployError: uv is missing or fails, or the zip is larger than AgentCore takes.
    """
    target = into / FILE_NAME
    with tempfile.TemporaryDirectory() as packages:
        (install or install_packages)(Path(packages))
        files = {name: root / name for name in sources(root)} | {ENTRY_POINT: MAIN} | dict(_installed(Path(packages)))
        unpacked_bytes = sum(path.stat().st_size for path in files.values())
        _check("unpacked", unpacked_bytes, MAX_UNPACKED_BYTES)
        _write_zip(target, files)
    size_bytes = target.stat().st_size
    _check("zipped", size_bytes, MAX_ZIP_BYTES)
    return LocalFile(FILE_NAME, target, hashlib.sha256(target.read_bytes()).hexdigest(), size_bytes)


def sources(root: Path = ROOT) -> list[str]:
    """The agent, and the product's own modules that it imports, at whatever depth, with their packages' __init__.py."""
    found: set[str] = set()
    agent = (path for path in (root / "agent").rglob("*") if path.is_file() and path.suffix != ".pyc")
    to_read = [path.relative_to(root).as_posix() for path in agent]
    while to_read:
        name = to_read.pop()
        if name in found:
            continue
        found.add(name)
        parents = [f"{parent.as_posix()}/__init__.py" for parent in Path(name).parents if parent.name]
        to_read += [parent for parent in parents if (root / parent).is_file()]
        if name.endswith(".py"):
            to_read += _imported(root, (root / name).read_text())
    return sorted(found)


def install_packages(into: Path) -> None:
    """uv, for the machine that AgentCore runs: Linux on arm64, Python 3.12, wheels only. Raises DeployError."""
    uv = shutil.which("uv")
    if uv is None:
        raise DeployError(
            "uv is not installed, which fetches the agent's packages for arm64: see https://docs.astral.sh/uv/, or "
            "deploy an image with --image"
        )
    # fmt: off
    command = [
        uv, "pip", "install", "--quiet", "--target", str(into), "--python-version", "3.12",
        "--python-platform", "aarch64-manylinux2014", "--only-binary", ":all:", "--require-hashes",
        "--requirement", str(REQUIREMENTS),
    ]
    # fmt: on
    done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        raise DeployError(f"uv could not fetch the agent's packages: {' '.join(done.stderr.split())[-500:]}")


def _imported(root: Path, source: str) -> Iterator[str]:
    """Files of the product that a module names in an import, inside functions too."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            modules = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        else:
            continue
        for module in modules:
            if module.split(".")[0] in _PACKAGES:
                path = module.replace(".", "/")
                yield from (name for name in (f"{path}.py", f"{path}/__init__.py") if (root / name).is_file())


def _installed(folder: Path) -> Iterator[tuple[str, Path]]:
    """The packages, without what differs from one machine to the next: scripts, and the lists with their hashes."""
    for path in folder.rglob("*"):
        name = path.relative_to(folder)
        if path.is_file() and name.parts[0] not in {"bin", ".lock"} and not {"__pycache__", "RECORD"} & {*name.parts}:
            yield name.as_posix(), path


def _write_zip(target: Path, files: dict[str, Path]) -> None:
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in sorted(files):
            entry = zipfile.ZipInfo(name, _LONG_AGO)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o100644 << 16
            archive.writestr(entry, files[name].read_bytes())


def _check(what: str, size_bytes: int, most_bytes: int) -> None:
    if size_bytes > most_bytes:
        raise DeployError(
            f"the agent is {size_bytes / 1024**2:.0f} MB {what}, and AgentCore takes {most_bytes / 1024**2:.0f}: "
            "deploy an image with --image"
        )
