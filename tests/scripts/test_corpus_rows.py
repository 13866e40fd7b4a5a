"""What a corpus's files hold, row by row, and which rows are turned away."""

import gzip
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from scripts.corpus.inputs import InputError, InputFile, find_files, is_inside, read_file
from scripts.corpus.rows import Defaults, Rejected, Row, RowCheck
from serve_app.errors import BadRequest
from serve_app.protocol.requests import RequestLimits

DEFAULTS = Defaults("af_heart", 1.0, None)


def rows_of(path, *, paragraphs=False, defaults=DEFAULTS, max_text_chars=100):
    check = RowCheck(defaults, RequestLimits(max_text_chars, 56.0))
    files, _ = find_files(path)
    return [row for file in files for row in check.rows(file.name, read_file(file, paragraphs=paragraphs))]


def written(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


def parquet(path, **columns):
    pq.write_table(pa.table(columns), path)
    return path


def told(row):
    return (row.code, row.message)


@pytest.mark.parametrize("name", ["c.jsonl", "c.jsonl.gz", "c.ndjson"])
def test_a_line_of_json_is_a_row_with_its_own_fields_or_the_defaults(tmp_path, name):
    lines = [
        {"text": "One.", "id": "a", "voice": "bf_emma", "speed": 2, "lang": "b", "speaker": [1]},
        {"text": "Two.", "id": 7, "voice": None},
    ]
    path = written(tmp_path / name, b"\xef\xbb\xbf" + "\n\n".join(map(json.dumps, lines)).encode())
    assert rows_of(path, defaults=Defaults("af_sky", 0.5, "a")) == [
        Row("a", 1, name, "One.", "bf_emma", 2, "b"),
        Row("7", 3, name, "Two.", "af_sky", 0.5, "a"),
    ]


def test_a_line_of_text_is_a_row_named_by_its_place(tmp_path):
    path = written(tmp_path / "c.txt.gz", b"One.\r\n\nTwo.\n")
    assert [(row.id, row.text) for row in rows_of(path)] == [("c.txt.gz:1", "One."), ("c.txt.gz:3", "Two.")]


def test_a_paragraph_is_a_row_when_asked_for(tmp_path):
    path = written(tmp_path / "c.txt", b"\n\nOne.\nStill one.\n \n\nTwo.\n\nThree.")
    assert [(row.number, row.text) for row in rows_of(path, paragraphs=True)] == [
        (3, "One.\nStill one."),
        (7, "Two."),
        (9, "Three."),
    ]


def test_parquet_columns_are_read_as_json_would_have_them(tmp_path):
    path = parquet(
        tmp_path / "c.parquet",
        text=pa.array(["One.", "Two."]).dictionary_encode(),
        id=[11, 12],
        speed=pa.array([None, 1.5], pa.float32()),
        voice=pa.array(["bf_emma", None], pa.large_string()),
        other=[{"a": 1}, None],
    )
    assert rows_of(path) == [
        Row("11", 1, "c.parquet", "One.", "bf_emma", 1.0, None),
        Row("12", 2, "c.parquet", "Two.", "af_heart", 1.5, None),
    ]


def test_a_folder_is_read_in_the_order_of_names_and_hidden_files_are_none(tmp_path):
    for name in ("b.txt", "a/z.txt", ".hidden.txt", "_temporary/c.txt"):
        written(tmp_path / name, b"Hello.")
    written(tmp_path / "readme.md", b"Hello.")
    files, others = find_files(tmp_path)
    assert [file.name for file in files] == ["a/z.txt", "b.txt"]
    assert others == 1


@pytest.mark.parametrize(
    ("line", "code", "message"),
    [
        (b'{"text": " "}', "bad_request", "text is blank"),
        (b"{}", "bad_request", "text is missing"),
        (b'{"text": 5}', "bad_request", "text must be a string"),
        (b'{"text": "Hi.", "speed": "2"}', "bad_request", "speed must be a number from 0.25 to 4.0"),
        (b'{"text": "Hi.", "speed": true}', "bad_request", "speed must be a number from 0.25 to 4.0"),
        (
            b'{"text": "Hi.", "id": "a\\nb"}',
            "bad_request",
            "id must be a whole number or a string of 1 to 128 printable characters",
        ),
        (b'{"text": "..."}', "nothing_to_speak", "text has no speakable character"),
        (b'{"text": "%s"}' % (b"a" * 101), "text_too_long", "text is too long; at most 100 characters are accepted"),
        (b'{"text": "\xff"}', "bad_request", "the line is not UTF-8 (byte 10)"),
        (b"[1]", "bad_request", "the line is not a JSON object"),
        (b"secret words", "bad_request", "the line is not JSON (line 1, column 1)"),
    ],
)
def test_a_bad_row_is_turned_away_and_the_next_one_is_read(tmp_path, line, code, message):
    bad, good = rows_of(written(tmp_path / "c.jsonl", line + b'\n{"text": "Hi."}'))
    assert bad == Rejected("c.jsonl:1", 1, "c.jsonl", code, message)
    assert good.text == "Hi."


def test_text_that_is_not_utf8_is_turned_away_in_parquet_and_in_plain_text(tmp_path):
    odd = pa.array([b"Hi.", b"\xffHi.", None]).view(pa.string())
    rows = rows_of(parquet(tmp_path / "c.parquet", text=odd))
    assert rows[0].text == "Hi."
    assert [told(row) for row in rows[1:]] == [
        ("bad_request", "the text is not UTF-8 (byte 0)"),
        ("bad_request", "text is missing"),
    ]
    [row] = rows_of(written(tmp_path / "c.txt", b"Hi \xff"))
    assert told(row) == ("bad_request", "the text is not UTF-8 (byte 3)")


def test_columns_of_another_type_are_turned_away_by_name(tmp_path):
    path = parquet(tmp_path / "c.parquet", text=["Hi.", "Hi."], voice=[[1], None], speed=["1", None])
    ill, well = rows_of(path)
    assert ill.message.startswith("voice must be a voice id")
    assert "speed must be a number" in ill.message
    assert well.voice == "af_heart"


def test_the_first_row_with_an_id_keeps_it(tmp_path):
    path = written(tmp_path / "c.jsonl", b'{"text": "One.", "id": "1"}\n{"text": "Two.", "id": 1}')
    first, second = rows_of(path)
    assert first.text == "One."
    assert second == Rejected("1", 2, "c.jsonl", "duplicate_id", "an earlier row has the same id")


def test_a_refused_row_leaves_its_id_to_the_next_one(tmp_path):
    path = written(tmp_path / "c.jsonl", b'{"text": "", "id": "1"}\n{"text": "Two.", "id": "1"}')
    assert isinstance(rows_of(path)[1], Row)


@pytest.mark.parametrize("name", ["c.jsonl.gz", "c.parquet"])
def test_a_damaged_file_stops_the_run_with_its_name(tmp_path, name):
    path = parquet(tmp_path / "c.parquet", text=["Hi."] * 500)
    content = path.read_bytes() if name == "c.parquet" else gzip.compress(b'{"text": "Hi."}\n' * 500)
    damaged = tmp_path / name
    damaged.write_bytes(content[:-5])
    with pytest.raises(InputError, match=f"{name} cannot be read to its end"):
        list(read_file(InputFile(name, damaged), paragraphs=False))


def test_parquet_without_text_stops_the_run_with_its_columns(tmp_path):
    with pytest.raises(InputError, match="has no column text; its columns are sentence, id"):
        rows_of(parquet(tmp_path / "c.parquet", sentence=["Hi."], id=["1"]))


def test_what_is_no_corpus_is_refused(tmp_path):
    for path, message in (
        (tmp_path, "holds no .parquet"),
        (tmp_path / "nowhere", "there is no"),
        (written(tmp_path / "c.csv", b"text"), "is of no known kind"),
    ):
        with pytest.raises(InputError, match=message):
            find_files(path)


def test_a_digest_tells_a_changed_file(tmp_path):
    path = written(tmp_path / "c.txt", b"Hello.")
    before = InputFile("c.txt", path).digest()
    written(path, b"Hullo.")
    assert InputFile("c.txt", path).digest() != before


def test_an_output_within_the_input_is_noticed_through_links(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "in")
    assert is_inside(tmp_path / "link" / "out", tmp_path / "in")
    assert not is_inside(tmp_path / "inner", tmp_path / "in")


def test_no_message_quotes_the_text(tmp_path):
    lines = [b'{"text": ["secret"]}', b'{"text": "secret", "voice": "secret\\n"}', b'"secret"', b'{"secret": ']
    for line in lines:
        [row] = rows_of(written(tmp_path / "c.jsonl", line))
        assert isinstance(row, Rejected)
        assert "secret" not in row.message


def test_a_refusal_is_of_the_service_s_own_kinds(tmp_path):
    found = dict(read_file(InputFile("c.txt", written(tmp_path / "c.txt", b"\xff")), paragraphs=False))
    assert isinstance(found[1], BadRequest)
