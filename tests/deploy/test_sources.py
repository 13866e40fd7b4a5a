"""What is taken from this machine: official files behind any folder, and what the Dockerfile copies."""

import os
import sys

import pytest

from deploy.errors import DeployError
from deploy.sources import choose_builder, image_sources, weights_files


def test_only_official_files_are_taken_and_links_are_followed(tmp_path, weights):
    folder = tmp_path / "model"
    (folder / "voices").mkdir(parents=True)
    for name in ("config.json", "kokoro-v1_0.pth", "voices/af_heart.pt"):
        (folder / name).symlink_to(weights / name)
    (folder / "README.md").write_text("not of the model")
    files = weights_files(str(tmp_path), None)
    assert [file.name for file in files] == ["config.json", "kokoro-v1_0.pth", "voices/af_heart.pt"]
    assert not any(file.path.is_symlink() for file in files)
    assert [file.size_bytes for file in files] == [11, 15, 18]


def test_a_folder_that_lacks_a_part_is_named(tmp_path):
    with pytest.raises(DeployError, match=r"no kokoro-v1_0\.pth"):
        weights_files(str(tmp_path), None)
    (tmp_path / "kokoro-v1_0.pth").write_bytes(b"1")
    with pytest.raises(DeployError, match=r"lacks voices/NAME\.pt"):
        weights_files(str(tmp_path), None)


def test_other_sources_are_fetched_into_the_cache_by_the_script_as_the_profile(tmp_path, monkeypatch):
    """In a process of its own: some sources take torch to read, which nobody wants here."""
    from deploy import sources

    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts" / "fetch_weights.py").write_text(FETCH)
    monkeypatch.setattr(sources, "ROOT", tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    files = weights_files("s3://bucket/prefix", "somebody")
    assert files[0].path.read_text() == "s3://bucket/prefix as somebody"
    assert files[0].path.is_relative_to(tmp_path / "cache")
    with pytest.raises(DeployError, match="the weights `broken` are not available: the hub does not answer"):
        weights_files("broken", None)


FETCH = """
import os, pathlib, sys
_, _, folder, _, source = sys.argv
if source == "broken":
    sys.exit("the hub does not answer")
folder = pathlib.Path(folder)
(folder / "voices").mkdir(parents=True)
(folder / "config.json").write_text(f"{source} as {os.environ['AWS_PROFILE']}")
(folder / "kokoro-v1_0.pth").write_bytes(b"1")
(folder / "voices" / "af_heart.pt").write_bytes(b"1")
"""


def test_the_image_is_made_of_what_the_dockerfile_copies(checkout):
    assert [file.name for file in image_sources(checkout)] == ["Dockerfile", "app/main.py"]


def test_the_image_of_this_checkout_has_its_sources():
    names = {file.name for file in image_sources()}
    assert {"Dockerfile", "serve_app/app.py", "configs/sagemaker.yaml", "deploy/requirements.txt"} <= names
    assert not any(name.startswith(("tests/", "docs/")) or "__pycache__" in name for name in names)


def test_a_copied_file_that_is_missing_is_named(tmp_path):
    (tmp_path / "Dockerfile").write_text("FROM scratch\nCOPY gone.txt /\n")
    with pytest.raises(DeployError, match=r"copies gone\.txt"):
        image_sources(tmp_path)


@pytest.mark.parametrize(("exit_status", "builder"), [(0, "docker"), (1, "codebuild")])
def test_docker_is_taken_where_its_engine_answers(tmp_path, monkeypatch, exit_status, builder):
    _fake_docker(tmp_path, f"raise SystemExit({exit_status})")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    assert choose_builder("auto") == builder
    if builder == "codebuild":
        with pytest.raises(DeployError, match="no docker engine answers"):
            choose_builder("docker")


def _fake_docker(folder, code):
    docker = folder / "docker"
    docker.write_text(f"#!{sys.executable}\n{code}\n")
    docker.chmod(0o755)
