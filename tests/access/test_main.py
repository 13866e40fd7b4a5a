"""`python -m serve_app.access`."""

import stat
import subprocess
import sys

import pytest

from serve_app.access.__main__ import main
from serve_app.access.keys import parse_keys


def test_the_command_prints_a_key_once_and_the_file_gets_its_hash(tmp_path):
    file = tmp_path / "keys"
    command = [sys.executable, "-m", "serve_app.access", "alice", file]
    made = subprocess.run(command, capture_output=True, text=True, check=True)
    key = made.stdout.removesuffix("\n")
    found = parse_keys(file.read_text()).find(key)
    assert found is not None
    assert found.name == "alice"
    assert key not in made.stderr + file.read_text()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_further_keys_are_added_whatever_the_file_ends_with(tmp_path, capsys):
    file = tmp_path / "keys"
    for name in ("alice", "bob", "alice"):
        assert main([name, str(file)]) == 0
        file.write_text(file.read_text().removesuffix("\n"))
    keys = capsys.readouterr().out.split()
    ring = parse_keys(file.read_text())
    assert [ring.find(key).name for key in keys] == ["alice", "bob", "alice"]


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [("a b", "", "name"), ("alice", "some: yaml\n", "line 1"), ("alice", None, "cannot be written")],
)
def test_what_cannot_be_done_is_told_in_a_sentence_and_changes_nothing(tmp_path, capsys, name, content, said):
    file = tmp_path / "keys"
    if content is None:
        file = tmp_path / "no folder" / "keys"
    else:
        file.write_text(content)
    with pytest.raises(SystemExit) as ended:
        main([name, str(file)])
    assert ended.value.code == 2
    printed = capsys.readouterr()
    assert said in printed.err
    assert printed.out == ""
    if content is not None:
        assert file.read_text() == content
