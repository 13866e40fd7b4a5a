"""`python deploy/sagemaker.py` as a person types it."""

import subprocess
import sys
from pathlib import Path

import pytest

LAUNCHER = Path(__file__).resolve().parents[2] / "deploy" / "sagemaker.py"


def launched(*arguments, cwd, **options):
    return subprocess.run(
        [sys.executable, str(LAUNCHER), *arguments], cwd=cwd, capture_output=True, text=True, **options
    )


@pytest.mark.parametrize("folder", ["elsewhere", "deploy"])
def test_help_needs_no_sdk_from_any_folder(tmp_path, folder):
    """Heavy modules are made impossible to import, which is what keeps `--help` under a second."""
    for name in ("boto3", "pydantic", "yaml", "torch"):
        (tmp_path / f"{name}.py").write_text("raise ImportError('too early')")
    cwd = LAUNCHER.parent if folder == "deploy" else tmp_path
    done = launched("--help", cwd=cwd, env={"PYTHONPATH": str(tmp_path)})
    assert (done.returncode, done.stderr) == (0, "")
    for command in ("plan", "deploy", "status", "check", "update", "destroy"):
        assert command in done.stdout


def test_the_sdk_is_not_shadowed_by_the_launcher(aws, tmp_path):
    """The file is called sagemaker.py, and Python puts its folder first on the path."""
    done = launched("status", "--json", "--region", "us-east-1", cwd=tmp_path)
    assert done.returncode == 1, done.stderr
    assert '"endpoint": null' in done.stdout
    assert done.stderr == ""


def test_a_missing_extra_is_a_sentence(tmp_path):
    (tmp_path / "boto3.py").write_text("raise ModuleNotFoundError('No module named boto3', name='boto3')")
    done = launched("status", "--region", "us-east-1", cwd=tmp_path, env={"PYTHONPATH": str(tmp_path)})
    assert (done.returncode, done.stderr) == (1, "boto3 is not installed: `uv sync --extra deploy`.\n")


def test_a_missing_region_is_a_sentence_before_anything_is_imported_or_asked(tmp_path):
    done = launched("plan", cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr == (
        "no region is chosen: pass --region, for example `--region us-east-1`, or set it in the file.\n"
    )


def test_without_credentials_it_says_how_to_get_some(aws, monkeypatch, tmp_path):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name)
    done = launched("status", "--region", "us-east-1", cwd=tmp_path)
    assert done.returncode == 1
    assert "there are no AWS credentials: sign in" in done.stderr
    assert "Traceback" not in done.stderr


def test_an_unknown_profile_is_named(aws, tmp_path):
    done = launched("status", "--region", "us-east-1", "--profile", "nobody", cwd=tmp_path)
    assert done.returncode == 1
    assert "profile (nobody) could not be found" in done.stderr


def test_an_unreachable_aws_is_a_sentence(aws, monkeypatch, tmp_path):
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    done = launched("status", "--region", "us-east-1", cwd=tmp_path)
    assert done.returncode == 1
    assert "AWS is not reachable" in done.stderr
    assert "Traceback" not in done.stderr
