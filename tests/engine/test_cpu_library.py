import logging
import shutil
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from serve_app.engine.cpu import build
from serve_app.engine.cpu.__main__ import main as build_all
from serve_app.engine.cpu.build import TARGETS, compile_kernels, supported_targets
from serve_app.engine.cpu.library import load_kernels

needs_compiler = pytest.mark.skipif(not shutil.which("g++") or not supported_targets(), reason="no compiler")


def cpuinfo(folder: Path, flags: str) -> Path:
    path = folder / "cpuinfo"
    path.write_text(f"processor\t: 0\nflags\t\t: {flags}\n\nprocessor\t: 1\nflags\t\t: {flags}\n")
    return path


AVX2 = "fpu avx avx2 bmi1 bmi2 f16c fma movbe"
AVX512 = f"{AVX2} avx512f avx512bw avx512cd avx512dq avx512vl"


@pytest.mark.parametrize(
    ("machine", "flags", "names"),
    [
        ("x86_64", f"{AVX512} avx512_bf16", ["avx512-bf16", "avx512", "avx2"]),
        ("x86_64", AVX512, ["avx512", "avx2"]),
        ("x86_64", AVX2, ["avx2"]),
        ("x86_64", "fpu sse2", []),
        ("aarch64", "fp asimd", ["neon"]),
        ("riscv64", "", []),
    ],
)
def test_the_processor_decides_which_kernels_can_run(
    tmp_path: Path, machine: str, flags: str, names: list[str]
) -> None:
    assert [target.name for target in supported_targets(machine, cpuinfo(tmp_path, flags))] == names


def test_a_machine_without_a_description_gets_none(tmp_path: Path) -> None:
    assert supported_targets("x86_64", tmp_path / "none") == []


@needs_compiler
def test_compiled_once_though_two_want_it_and_then_read_from_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled = []

    def counted(compiler: str, target: build.Target, to: Path) -> None:
        compiled.append(target.name)
        compile_kernels(compiler, target, to)

    monkeypatch.setattr(build, "compile_kernels", counted)
    target = supported_targets()[0]
    with ThreadPoolExecutor(2) as threads:
        both = list(threads.map(lambda _: load_kernels(target, tmp_path), range(2)))
    assert all(both)
    assert load_kernels(target, tmp_path)
    assert compiled == [target.name]
    (found,) = (tmp_path / "kernels").glob("*.so")
    assert found.name.startswith(target.name)


@needs_compiler
def test_another_source_is_another_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = supported_targets()[0]
    assert load_kernels(target, tmp_path)
    changed = tmp_path / "kernels.cpp"
    changed.write_text(build.SOURCE.read_text() + "\n// another\n")
    monkeypatch.setattr(build, "SOURCE", changed)
    assert load_kernels(target, tmp_path)
    assert len(list((tmp_path / "kernels").glob("*.so"))) == 2


def broken_compiler(folder: Path) -> None:
    compiler = folder / "g++"
    compiler.write_text("#!/bin/sh\n[ $1 = --version ] && exit 0\necho no such header >&2\nexit 1\n")
    compiler.chmod(compiler.stat().st_mode | stat.S_IXUSR)


@pytest.mark.parametrize("found", ["nothing", "a broken one", "an empty library", "no room"])
def test_without_kernels_there_is_a_line_in_the_log_and_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, found: str
) -> None:
    tools, cache = tmp_path / "bin", tmp_path / "cache"
    tools.mkdir()
    if found != "nothing":
        broken_compiler(tools)
    if found == "an empty library":
        monkeypatch.setattr(build, "compile_kernels", lambda _compiler, _target, to: to.touch())
    if found == "no room":
        cache.write_text("a file, where a folder should be")
    monkeypatch.setenv("PATH", f"{tools}:/bin" if found != "nothing" else str(tools))
    with caplog.at_level(logging.WARNING):
        assert load_kernels(TARGETS[0], cache) is None
    (line,) = caplog.messages
    assert "no native kernels for avx512-bf16" in line
    if found == "a broken one":
        assert line.endswith("no such header")
        assert list((cache / "kernels").glob("*.so")) == []


@needs_compiler
def test_libraries_built_ahead_need_no_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copy = tmp_path / "kernels.cpp"
    copy.write_bytes(build.SOURCE.read_bytes())
    monkeypatch.setattr(build, "SOURCE", copy)
    build_all(tmp_path)
    monkeypatch.setenv("PATH", "")
    for target in supported_targets():
        assert load_kernels(target, tmp_path / "cache")
    assert not (tmp_path / "cache").exists()
