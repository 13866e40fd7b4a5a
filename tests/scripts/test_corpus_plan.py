"""Which rows share a part, what audio files are called, and how far a run says it is."""

from io import StringIO

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scripts.corpus.inputs import find_files
from scripts.corpus.names import file_name
from scripts.corpus.plan import MAX_PART_ROWS, WINDOW_ROWS, Corpus, expected_s, plan_parts
from scripts.corpus.progress import Amount, Progress, shown
from scripts.corpus.rows import Defaults, Row
from serve_app.protocol.requests import RequestLimits


def row(number, characters, speed=1.0):
    return Row(str(number), number, "c.txt", "a" * characters, "af_heart", speed, None)


@given(st.lists(st.integers(1, 2000), max_size=200), st.integers(1, 100))
def test_every_row_is_in_one_part_and_parts_are_bounded(lengths, part_s):
    rows = [row(number, characters) for number, characters in enumerate(lengths)]
    parts = list(plan_parts(rows, part_s))
    assert sorted(r.number for part in parts for r in part.rows) == list(range(len(rows)))
    assert [part.index for part in parts] == list(range(len(parts)))
    assert all(len(part.rows) == 1 or sum(map(expected_s, part.rows)) <= part_s for part in parts)
    assert parts == list(plan_parts(iter(rows), part_s))


def test_rows_of_about_the_same_length_share_a_part():
    parts = list(plan_parts([row(number, (30, 300)[number % 2]) for number in range(20)], 25.0))
    assert [{len(r.text) for r in part.rows} for part in parts][0] == {30}
    assert {len(r.text) for r in parts[-1].rows} == {300}


def test_slow_speech_counts_as_longer():
    assert expected_s(row(1, 150, speed=0.5)) == 2 * expected_s(row(1, 150))


def test_a_part_of_very_short_rows_is_bounded_by_their_number():
    assert len(next(plan_parts([row(n, 1) for n in range(MAX_PART_ROWS + 5)], 1e9)).rows) == MAX_PART_ROWS


def test_of_the_rows_no_more_than_a_window_is_read_ahead():
    read = []

    def rows():
        for number in range(3 * WINDOW_ROWS):
            read.append(number)
            yield row(number, 10)

    next(plan_parts(rows(), 600.0))
    assert len(read) <= WINDOW_ROWS + 1


def test_a_corpus_is_the_same_parts_and_turns_away_the_same_rows_whenever_it_is_read(tmp_path):
    (tmp_path / "c.jsonl").write_text('{"text": "One.", "id": 1}\n{"text": " "}\n{"text": "Two.", "id": 1}\n' * 2)
    files, _ = find_files(tmp_path)
    corpus = Corpus(tuple(files), False, Defaults("af_heart", 1.0, None), RequestLimits(100, 56.0), 60.0)
    first, second = [], []
    assert list(corpus.parts(first.append)) == list(corpus.parts(second.append))
    assert first == second
    assert [(rejected.row, rejected.code) for rejected in first] == [
        (2, "bad_request"),
        (3, "duplicate_id"),
        (4, "duplicate_id"),
        (5, "bad_request"),
        (6, "duplicate_id"),
    ]


@pytest.mark.parametrize("row_id", ["utt0001", "a_b-c", "7"])
def test_a_plain_id_is_its_own_file_name(row_id):
    assert file_name(row_id, "wav") == f"{row_id}.wav"


@given(st.text(min_size=1, max_size=128).filter(str.isprintable))
def test_a_file_name_never_leaves_its_folder(row_id):
    name = file_name(row_id, "flac")
    assert "/" not in name
    assert not name.startswith((".", "-"))
    assert name.count(".") == 1
    assert len(name) < 120
    assert name.isascii()


def test_ids_that_look_alike_have_names_of_their_own():
    ids = ["../x", "x", "X", "x ", "./x", "..", "a/b", "a_b", "A/B", "é", "e", "~", "x" * 80, "x" * 81]
    names = {file_name(row_id, "wav").lower() for row_id in ids}
    assert len(names) == len(ids)


def test_formats_have_the_extensions_that_players_know():
    assert [file_name("a", name) for name in ("wav", "mp3", "opus", "aac")] == ["a.wav", "a.mp3", "a.opus", "a.m4a"]


def test_progress_tells_rows_hours_rate_and_time_left():
    progress = Progress(Amount(100, 10_000), Amount(20, 2_000, 7200.0), expected_s=700.0)
    with shown(progress, lines := StringIO()) as (show, _):
        show(Amount(30, 3_000, 10_800.0), 1080.0)
    assert lines.getvalue() == " 50%  50/100 rows  5.00 h of audio, 5.00 h left  10.00 s/s  ETA 0:30:00\n"


def test_progress_before_any_audio_is_an_estimate_without_an_end():
    progress = Progress(Amount(10, 1_000), Amount(), expected_s=3600.0)
    assert progress.told == "0/10 rows  0.00 h of audio, 1.00 h left  0.00 s/s  ETA unknown"


def test_on_a_terminal_progress_is_a_bar_with_the_same_figures():
    class Terminal(StringIO):
        def isatty(self):
            return True

    progress = Progress(Amount(100, 10_000), Amount(20, 2_000, 7200.0), expected_s=700.0)
    with shown(progress, terminal := Terminal()) as (show, _):
        show(Amount(30, 3_000, 10_800.0), 1080.0)
    *_, last = terminal.getvalue().rstrip().split("\r")
    assert last == " 50% #####      50/100 rows  5.00 h of audio, 5.00 h left  10.00 s/s  ETA 0:30:00"
