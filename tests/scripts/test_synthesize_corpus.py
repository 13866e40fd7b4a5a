"""The command: what it refuses before it begins; and, over Ray and tones, that kills lose and double nothing."""

import json
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pyarrow.parquet as pq
import pytest

from scripts.corpus.parts import committed
from scripts.synthesize_corpus import main

ROOT = Path(__file__).resolve().parent.parent.parent
HANG_S = 120.0


@pytest.fixture
def corpus(tmp_path):
    rows = [{"id": f"utt{number}", "text": f"Row {number}. It goes on for a while."} for number in range(16)]
    bad = [
        {"id": "utt3", "text": "Again."},
        {"id": "mute", "text": " "},
        {"id": "voice", "text": "Hi.", "voice": "af_x"},
    ]
    path = tmp_path / "in.jsonl"
    path.write_text("\n".join(map(json.dumps, rows + bad)))
    return path


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--voice", "af\nheart"], "voice must be a voice id"),
        (["--speed", "9"], "speed must be a number from 0.25 to 4.0"),
        (["--format", "opus", "--sample-rate", "44100"], "sample_rate of opus must be one of"),
    ],
)
def test_what_no_row_could_be_spoken_with_is_refused_at_once(corpus, tmp_path, capsys, options, told):
    assert main([str(corpus), str(tmp_path / "out"), *options]) == 1
    assert told in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_an_output_within_its_input_or_among_other_files_is_refused(corpus, tmp_path, capsys):
    assert main([str(tmp_path), str(tmp_path / "out")]) == 1
    assert "the output needs a folder of its own" in capsys.readouterr().err
    assert main([str(corpus), str(tmp_path)]) == 1
    assert "holds other files" in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--workers", "--threads", "--batch"])
def test_a_count_is_at_least_one(corpus, tmp_path, option):
    with pytest.raises(SystemExit) as refusal:
        main([str(corpus), str(tmp_path / "out"), option, "0"])
    assert refusal.value.code == 2


def begin(corpus, out):
    arguments = [str(corpus), str(out), "--part-minutes", "0.05", "--audio-files"]
    return subprocess.Popen(
        [sys.executable, "-m", "tests.scripts.fragile_corpus", *arguments], cwd=ROOT, stderr=subprocess.PIPE, text=True
    )


def worker_of(process):
    below = psutil.Process(process.pid).children(recursive=True)
    return next(child for child in below if "MapWorker" in " ".join(child.cmdline()))


def wait_for(process, condition):
    """Until `condition` holds or the run has ended."""
    deadline_s = time.monotonic() + HANG_S
    while process.poll() is None and not condition():
        assert time.monotonic() < deadline_s
        with suppress(subprocess.TimeoutExpired):
            process.wait(0.05)


def test_what_is_lost_or_fails_loses_and_doubles_no_row_and_turns_none_away(corpus, tmp_path, monkeypatch):
    """An engine, a worker and the driver are lost, and one row fails whenever it is tried."""
    monkeypatch.setenv("FRAGILE_FOLDER", str(tmp_path))
    monkeypatch.setenv("RAY_OVERRIDE_RESOURCES", '{"CPU": 2, "GPU": 2}')  # by name, so that each worker takes one
    (tmp_path / "hindered").touch()
    out = tmp_path / "out"

    def parts():
        return len(committed(out))

    process = begin(corpus, out)
    try:
        wait_for(process, lambda: parts() >= 1)
        assert process.poll() is None, process.communicate()[1]
        worker_of(process).kill()
        there = parts()
        wait_for(process, lambda: parts() >= there + 3)
    finally:
        process.kill()
    _, told = process.communicate(timeout=HANG_S)
    assert "the engine is gone, and so this worker ends" in told
    assert parts() >= 4

    process = begin(corpus, out)
    _, told = process.communicate(timeout=HANG_S)
    assert process.returncode == 4, told
    assert "parts are there already" in told
    assert "Done: 15 rows are spoken" in told
    assert "1 rows are left, for no fault of theirs" in told
    assert "goes on for a while" not in told
    table = pq.read_table(out / "parts")
    assert sorted(table.column("id").to_pylist()) == sorted(f"utt{number}" for number in range(16) if number != 7)
    for row in table.to_pylist():
        assert (out / row["audio_file"]).read_bytes() == row["audio"]
    assert reasons(out / "left.parquet") == [("utt7", "internal")]
    assert reasons(out / "rejected.parquet") == [
        ("utt3", "duplicate_id"),
        ("mute", "bad_request"),
        ("voice", "unknown_voice"),
    ]
    assert len((out / "manifest.jsonl").read_text().splitlines()) == 15


def reasons(path):
    return [(row["id"], row["code"]) for row in pq.read_table(path).to_pylist()]
