import multiprocessing
import os
from pathlib import Path

import pytest

from serve_app.engine.files import locked, sha256_of, write_atomically


def test_a_written_file_appears_whole_and_readable_for_others(tmp_path):
    path = tmp_path / "new" / "file"
    write_atomically(path, lambda part: Path(part).write_bytes(b"content") and None)
    assert path.read_bytes() == b"content"
    assert path.stat().st_mode & 0o777 == 0o644
    assert os.listdir(path.parent) == ["file"]


def test_a_failed_write_leaves_the_old_content_and_no_rubbish(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"old")

    def fail(part: Path) -> None:
        part.write_bytes(b"half")
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        write_atomically(path, fail)
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["file"]


def test_a_link_is_replaced_by_a_plain_file(tmp_path):
    (tmp_path / "target").write_bytes(b"target")
    (tmp_path / "file").symlink_to(tmp_path / "target")
    write_atomically(tmp_path / "file", lambda part: Path(part).write_bytes(b"new") and None)
    assert not (tmp_path / "file").is_symlink()
    assert (tmp_path / "target").read_bytes() == b"target"


def _count(path: Path, started: "multiprocessing.synchronize.Barrier") -> None:
    started.wait(30)
    for _ in range(200):
        with locked(path):
            path.write_text(str(int(path.read_text()) + 1))


def test_the_lock_holds_between_processes(tmp_path):
    path = tmp_path / "counter"
    path.write_text("0")
    context = multiprocessing.get_context("fork")
    started = context.Barrier(2)
    processes = [context.Process(target=_count, args=(path, started)) for _ in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(30)
    assert path.read_text() == "400"


def test_the_lock_is_free_again_after_a_failure(tmp_path):
    with pytest.raises(ValueError, match="inside"), locked(tmp_path / "file"):
        raise ValueError("inside")
    with locked(tmp_path / "file"):
        pass


def test_sha256(tmp_path):
    (tmp_path / "empty").write_bytes(b"")
    assert sha256_of(tmp_path / "empty") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
