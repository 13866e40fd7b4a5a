"""What a deployment takes from this machine: the official weights as plain files, and the sources of the image."""

import hashlib
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from deploy.errors import DeployError
from deploy.progress import say
from deploy.resources import LocalFile
from serve_app.config import user_cache_folder
from serve_app.engine.files import WeightsError, sha256_of
from serve_app.engine.sources import CONFIG_FILE, MODEL_FILE, VOICES_FOLDER, find_folder

ROOT = Path(__file__).resolve().parent.parent

_COPIES = re.compile(r"^\s*(?:COPY|ADD)\s+(?P<arguments>.+)$", re.MULTILINE | re.IGNORECASE)


def weights_files(source: str, profile: str | None) -> tuple[LocalFile, ...]:
    """The official files of any weights source; a folder is read where it is, others are fetched into the user's cache.

    Links are followed, so that what is uploaded are plain files, whatever the folder was made of.

    Raises:
        DeployError: not available, or incomplete.
    """
    folder = Path(source).expanduser()
    if not folder.is_dir():
        folder = _fetched(source, profile)
    try:
        folder = find_folder(folder)
    except WeightsError as exc:
        raise DeployError(str(exc)) from exc
    voices = sorted(f"{VOICES_FOLDER}/{path.name}" for path in (folder / VOICES_FOLDER).glob("*.pt"))
    if not voices or not (folder / CONFIG_FILE).is_file():
        raise DeployError(f"{folder} lacks {VOICES_FOLDER}/NAME.pt" if not voices else f"{folder} lacks {CONFIG_FILE}")
    return tuple(_local_file(folder, name) for name in (CONFIG_FILE, MODEL_FILE, *voices))


def image_sources(root: Path = ROOT) -> tuple[LocalFile, ...]:
    """The Dockerfile and the files that its COPY lines name, as they lie in the checkout."""
    dockerfile = root / "Dockerfile"
    try:
        text = dockerfile.read_text().replace("\\\n", " ")
    except OSError as exc:
        raise DeployError(f"{dockerfile} is not readable ({exc.strerror}); set image.uri to deploy an image") from exc
    names = {"Dockerfile", *(name for copy in _COPIES.finditer(text) for name in _copied(root, copy["arguments"]))}
    names |= {name for name in (".dockerignore",) if (root / name).is_file()}
    return tuple(_local_file(root, name) for name in sorted(names))


def docker_answers() -> bool:
    """Is there a docker command whose engine runs?"""
    if shutil.which("docker") is None:
        return False
    try:
        return subprocess.run(["docker", "version"], capture_output=True, timeout=20, check=False).returncode == 0
    except subprocess.TimeoutExpired:
        return False


def choose_builder(wanted: Literal["auto", "docker", "codebuild"]) -> Literal["docker", "codebuild"]:
    if wanted == "auto":
        return "docker" if docker_answers() else "codebuild"
    if wanted == "docker" and not docker_answers():
        raise DeployError("image.builder is docker, but no docker engine answers here; start it, or use codebuild")
    return wanted


def _fetched(source: str, profile: str | None) -> Path:
    """In a process of its own, because reading some sources takes torch."""
    folder = user_cache_folder() / "deploy" / hashlib.sha256(source.encode()).hexdigest()[:16]
    command = [sys.executable, str(ROOT / "scripts" / "fetch_weights.py"), "--to", str(folder), "--source", source]
    environment = os.environ | {"PYTHONPATH": str(ROOT)} | ({"AWS_PROFILE": profile} if profile else {})
    say(f"weights: `{source}`, fetched once and then compared")
    done = subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        reason = done.stderr.strip().splitlines()
        raise DeployError(f"the weights `{source}` are not available: {reason[-1] if reason else 'no reason given'}")
    return folder


def _copied(root: Path, arguments: str) -> Iterator[str]:
    words = shlex.split(arguments)
    if any(word.startswith("--from") for word in words):
        return
    *sources, _ = [word for word in words if not word.startswith("--")]
    for source in sources:
        paths = sorted(root.glob(source.rstrip("/")))
        if not paths:
            raise DeployError(f"the Dockerfile copies {source}, which is not in {root}")
        for path in paths:
            for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
                if file.is_file() and "__pycache__" not in file.parts:
                    yield file.relative_to(root).as_posix()


def _local_file(folder: Path, name: str) -> LocalFile:
    path = (folder / name).resolve()
    return LocalFile(name, path, sha256_of(path), path.stat().st_size)
