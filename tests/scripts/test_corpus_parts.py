"""The output's files: whole or not there, and the same again from the same input."""

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from scripts.corpus import parts
from scripts.corpus.parts import (
    Footer,
    Outcome,
    committed,
    part_path,
    read_part,
    sweep,
    write_manifest,
    write_part,
    write_reasons,
)
from scripts.corpus.record import OutputError, Record, held, read_record, write_record
from scripts.corpus.rows import Rejected

TURNED_AWAY = Rejected("c", 3, "c.jsonl", "unknown_voice", "unknown voice 'x'")
LEFT = Rejected("d", 4, "c.jsonl", "internal", "the model failed")
RECORD = Record(
    "2026-01-01T00:00:00+00:00", "1", {"source": "w", "sha256": "0"}, {"format": "wav"}, {"a": {"bytes": 1}}
)


def spoken(row_id, number):
    return {
        "id": row_id,
        "text": "Hi.",
        "text_sha256": "0",
        "audio": row_id.encode(),
        "format": "wav",
        "sample_rate": 24_000,
        "duration_s": 0.75,
        "words": [{"w": "Hi.", "start_s": 0.0, "end_s": 0.5}],
        "file": "c.jsonl",
        "row": number,
        "provenance": {"product": "1", "voice": "af_heart", "speed": 1.0},
    }


def files_below(folder):
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def test_a_part_holds_its_rows_in_input_order_and_what_was_turned_away(tmp_path):
    outcome = Outcome([spoken("b", 2), spoken("a", 1)], 8, [TURNED_AWAY], [LEFT])
    write_part(tmp_path, 4, outcome, audio_files=False)
    table = pq.read_table(part_path(tmp_path, 4))
    assert table.schema.equals(parts.SCHEMA)
    assert table.column("id").to_pylist() == ["a", "b"]
    assert committed(tmp_path) == {4: Footer(2, 8, 1.5, (TURNED_AWAY,), (LEFT,))}
    assert files_below(tmp_path) == ["parts/part-000004.parquet"]


def test_a_part_without_a_single_spoken_row_is_a_part_all_the_same(tmp_path):
    write_part(tmp_path, 0, Outcome([], 3, [TURNED_AWAY]), audio_files=True)
    assert committed(tmp_path)[0].rejected == (TURNED_AWAY,)
    assert pq.read_table(tmp_path / "parts").num_rows == 0


def test_audio_files_lie_beside_their_part_whatever_the_ids_say(tmp_path):
    write_part(tmp_path, 0, Outcome([spoken("../../x", 1), spoken("x", 2)]), audio_files=True)
    write_manifest(tmp_path)
    entries = [json.loads(line) for line in (tmp_path / "manifest.jsonl").read_text().splitlines()]
    assert [entry["id"] for entry in entries] == ["../../x", "x"]
    assert [(tmp_path / entry["audio_file"]).read_bytes() for entry in entries] == [b"../../x", b"x"]
    assert all((tmp_path / entry["audio_file"]).resolve().is_relative_to(tmp_path.resolve()) for entry in entries)


def test_the_same_part_again_is_the_same_to_the_byte(tmp_path):
    for _ in range(2):
        write_part(tmp_path, 0, Outcome([spoken("a", 1)]), audio_files=True)
        first = {name: (tmp_path / name).read_bytes() for name in files_below(tmp_path)}
    write_part(tmp_path, 0, Outcome([spoken("a", 1)]), audio_files=True)
    assert {name: (tmp_path / name).read_bytes() for name in files_below(tmp_path)} == first


def test_a_part_whose_last_rows_came_later_is_the_same_to_the_byte(tmp_path):
    write_part(tmp_path, 0, Outcome([spoken("d", 4), spoken("a", 1)], 12, [TURNED_AWAY]), audio_files=True)
    at_once = {name: (tmp_path / name).read_bytes() for name in files_below(tmp_path)}
    write_part(tmp_path, 0, Outcome([spoken("a", 1)], 9, [TURNED_AWAY], [LEFT]), audio_files=True)
    assert read_part(tmp_path, 1) is None
    outcome = read_part(tmp_path, 0).and_then(Outcome([spoken("d", 4)], 3))
    write_part(tmp_path, 0, outcome, audio_files=True)
    assert {name: (tmp_path / name).read_bytes() for name in files_below(tmp_path)} == at_once


def test_a_failure_before_the_last_file_leaves_no_part(tmp_path, monkeypatch):
    def full(*_: object, **__: object) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(parts.pq, "write_table", full)
    with pytest.raises(OSError, match="no space"):
        write_part(tmp_path, 0, Outcome([spoken("a", 1)]), audio_files=True)
    assert committed(tmp_path) == {}
    assert files_below(tmp_path) == ["audio/part-000000/a.wav"]


def test_what_a_killed_run_had_begun_is_swept_away_and_nothing_else(tmp_path):
    write_part(tmp_path, 0, Outcome([spoken("a", 1)]), audio_files=True)
    kept = files_below(tmp_path)
    for name in ("parts/.part-000001.parquet.x1y2", "audio/part-000000/.b.wav.abcd", ".corpus.json.q_w8"):
        (tmp_path / name).write_bytes(b"half")
    sweep(tmp_path)
    assert files_below(tmp_path) == kept


def test_the_table_of_rejected_rows_is_in_the_order_of_the_input(tmp_path):
    earlier = Rejected("a", 2, "a.jsonl", "bad_request", "text is blank")
    write_reasons(tmp_path / "rejected.parquet", [TURNED_AWAY, earlier])
    rows = pq.read_table(tmp_path / "rejected.parquet").to_pylist()
    assert [Rejected(**row) for row in rows] == [earlier, TURNED_AWAY]


def test_a_run_goes_on_with_the_first_one_s_record(tmp_path):
    write_record(tmp_path, RECORD)
    earlier = read_record(tmp_path)
    assert earlier == RECORD
    later = Record("2027-01-01T00:00:00+00:00", "1", RECORD.weights, RECORD.options, RECORD.input)
    assert later.continuing(earlier).created == RECORD.created


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"product": "2"}, "product was 1, is 2"),
        ({"weights": {"source": "v", "sha256": "1"}}, r"weights were w \(0\), are v \(1\)"),
        ({"options": {"format": "mp3"}}, "format was wav, is mp3"),
        ({"input": {"a": {"bytes": 2}}}, r"the input has changed \(a\)"),
        ({"input": dict.fromkeys("abcde", {"bytes": 1})}, r"the input has changed \(b, c, d and 1 more\)"),
    ],
)
def test_a_run_with_something_else_is_refused_and_told_what(change, told):
    values = {name: getattr(RECORD, name) for name in ("created", "product", "weights", "options", "input")}
    with pytest.raises(OutputError, match=told):
        Record(**values | change).continuing(RECORD)


def test_a_folder_with_other_files_is_refused(tmp_path):
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(OutputError, match="holds other files"):
        read_record(tmp_path)
    (tmp_path / "corpus.json").write_text("{}")
    with pytest.raises(OutputError, match="not a record of this version"):
        read_record(tmp_path)


def test_two_runs_cannot_write_to_one_output(tmp_path):
    with held(tmp_path / "out"):
        with pytest.raises(OutputError, match="another run"), held(tmp_path / "out"):
            pass
        assert read_record(tmp_path / "out") is None
    with held(tmp_path / "out"):
        assert Path(tmp_path / "out").is_dir()
