"""Folders, a loopback hub and a loopback S3 with small stand-in files: what is fetched, when, and what is said."""

import hashlib
import json
import os
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import boto3
import huggingface_hub
import pytest
from moto.server import ThreadedMotoServer

from serve_app.engine import sources
from serve_app.engine.files import WeightsError
from serve_app.engine.sources import HUB_REPO, HUB_REVISION, fetch_hub, fetch_s3, find_folder, hub_cached, hub_reachable

FILES = {"config.json": b"{}", "kokoro-v1_0.pth": b"model", "voices/af_heart.pt": b"heart", "voices/af_sky.pt": b"sky"}


# --- folders


@pytest.mark.parametrize("inside", [".", "kokoro"])
def test_a_folder_is_found_flat_and_with_one_folder_between(tmp_path, inside):
    folder = tmp_path / inside
    folder.mkdir(exist_ok=True)
    (folder / "kokoro-v1_0.pth").write_bytes(b"model")
    assert find_folder(tmp_path).samefile(folder)


def test_two_folders_between_are_not_searched(tmp_path):
    deep = tmp_path / "a" / "b"
    deep.mkdir(parents=True)
    (deep / "kokoro-v1_0.pth").write_bytes(b"model")
    with pytest.raises(WeightsError, match=rf"no kokoro-v1_0\.pth in {tmp_path} nor one folder below it; put config"):
        find_folder(tmp_path)


def test_a_missing_folder_is_named(tmp_path):
    with pytest.raises(WeightsError, match=rf"weights\.source is {tmp_path}/none, which is no folder"):
        find_folder(tmp_path / "none")


# --- the hub


class LoopbackHub(BaseHTTPRequestHandler):
    """As much of the hub's HTTP interface as its client needs for one repository."""

    files: dict[str, bytes] = {}
    requests: list[str] = []

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def do_GET(self) -> None:
        self._answer(body=True)

    def _answer(self, *, body: bool) -> None:
        self.requests.append(f"{self.command} {self.path}")
        resolve = f"/{HUB_REPO}/resolve/{HUB_REVISION}/"
        if self.path.startswith(f"/api/models/{HUB_REPO}/revision/"):
            siblings = [{"rfilename": name} for name in self.files]
            content = json.dumps({"id": HUB_REPO, "sha": HUB_REVISION, "siblings": siblings}).encode()
        elif self.path.startswith(f"/api/models/{HUB_REPO}/tree/"):
            content = json.dumps(
                [
                    {"type": "file", "path": name, "size": len(data), "oid": hashlib.sha1(data).hexdigest()}
                    for name, data in self.files.items()
                ]
            ).encode()
        elif self.path.startswith(resolve) and self.path.removeprefix(resolve) in self.files:
            content = self.files[self.path.removeprefix(resolve)]
        else:
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Content-Type", "application/json")
        self.send_header("ETag", f'"{hashlib.sha1(content).hexdigest()}"')
        self.send_header("X-Repo-Commit", HUB_REVISION)
        self.end_headers()
        if body:
            self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def hub(monkeypatch) -> Iterator[type[LoopbackHub]]:
    class Hub(LoopbackHub):
        files = FILES | {f"voices/af_voice{number}.pt": b"v" for number in range(52)} | {"README.md": b"readme"}
        requests: list[str] = []

    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    use_endpoint(monkeypatch, f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setattr(sources, "HUB_MODEL_SHA256", hashlib.sha256(FILES["kokoro-v1_0.pth"]).hexdigest())
    yield Hub
    server.shutdown()
    thread.join()
    server.server_close()


def use_endpoint(monkeypatch: pytest.MonkeyPatch, endpoint: str) -> None:
    from huggingface_hub import constants, file_download, hf_api

    template = endpoint + "/{repo_id}/resolve/{revision}/{filename}"
    monkeypatch.setattr(constants, "ENDPOINT", endpoint)
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
    monkeypatch.setattr(file_download, "HUGGINGFACE_CO_URL_TEMPLATE", template, raising=False)
    monkeypatch.setattr(hf_api.api, "endpoint", endpoint)


def test_the_hub_is_fetched_once_and_later_asked_nothing(hub, tmp_path):
    assert hub_reachable()
    folder = fetch_hub(tmp_path, tmp_path / "hub")
    assert {name: (folder / name).read_bytes() for name in FILES} == FILES
    assert not (folder / "README.md").exists()
    hub.requests.clear()
    assert fetch_hub(tmp_path, tmp_path / "hub") == hub_cached(tmp_path / "hub") == folder
    assert hub.requests == []


def test_a_hub_cache_that_lacks_a_voice_is_completed(hub, tmp_path):
    folder = fetch_hub(tmp_path, tmp_path / "hub")
    (folder / "voices" / "af_sky.pt").unlink()
    assert hub_cached(tmp_path / "hub") is None
    fetch_hub(tmp_path, tmp_path / "hub")
    assert (folder / "voices" / "af_sky.pt").read_bytes() == b"sky"


def test_another_model_from_the_hub_is_refused_each_time(hub, tmp_path):
    hub.files = hub.files | {"kokoro-v1_0.pth": b"another model"}
    for _ in range(2):
        with pytest.raises(WeightsError, match="does not have the published SHA-256; remove hexgrad/Kokoro-82M"):
            fetch_hub(tmp_path, tmp_path / "hub")


def test_a_hub_that_answers_for_something_else_is_not_reachable(hub):
    hub.files = {}
    assert not hub_reachable()


def test_a_hub_out_of_reach_is_a_sentence(monkeypatch, tmp_path):
    use_endpoint(monkeypatch, "http://127.0.0.1:9")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)  # else its client tries again for 20 s
    assert not hub_reachable()
    with pytest.raises(WeightsError, match="could not be fetched from the hub .* set weights.source to `packaged`"):
        fetch_hub(tmp_path, tmp_path / "hub")


def test_a_refused_connection_means_not_reachable(monkeypatch):
    use_endpoint(monkeypatch, "http://127.0.0.1:9")
    assert not hub_reachable()


def test_a_hub_that_never_answers_costs_the_probes_time_only(monkeypatch):
    release = threading.Event()
    monkeypatch.setattr(huggingface_hub, "get_hf_file_metadata", lambda *_, **__: release.wait(30))
    monkeypatch.setattr(sources, "HUB_PROBE_S", 0.05)
    assert not hub_reachable()
    release.set()


# --- S3


@pytest.fixture(scope="module")
def s3_server() -> Iterator[str]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def bucket(s3_server, monkeypatch):
    """An S3 bucket with the official layout under `models/kokoro`."""
    for name, value in {
        "AWS_ENDPOINT_URL": s3_server,
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1",
    }.items():
        monkeypatch.setenv(name, value)
    resource = boto3.resource("s3")
    bucket = resource.create_bucket(Bucket="weights")
    for name, content in FILES.items():
        bucket.put_object(Key=f"models/kokoro/{name}", Body=content)
    yield bucket
    bucket.objects.all().delete()
    bucket.delete()


@pytest.fixture
def downloads(monkeypatch) -> list[str]:
    names: list[str] = []
    download = sources._download

    def counted(client, bucket, key, path):
        names.append(key.removeprefix("models/kokoro/"))
        download(client, bucket, key, path)

    monkeypatch.setattr(sources, "_download", counted)
    return names


@pytest.mark.parametrize("uri", ["s3://weights/models/kokoro", "s3://weights/models/kokoro/"])
def test_an_s3_prefix_becomes_a_folder(bucket, tmp_path, uri):
    bucket.put_object(Key="models/kokoro/notes.txt", Body=b"x")
    bucket.put_object(Key="models/kokoro/voices/../../../escaped.pt", Body=b"x")
    bucket.put_object(Key="models/kokoro-old/kokoro-v1_0.pth", Body=b"x")
    folder = fetch_s3(uri, tmp_path)
    assert {name: (folder / name).read_bytes() for name in FILES} == FILES
    stored = {path.name for path in tmp_path.rglob("*") if path.is_file()}
    assert stored == {Path(name).name for name in FILES} | {"etags.json", f"{folder.name}.lock"}


def test_a_second_start_downloads_only_what_changed(bucket, downloads, tmp_path):
    fetch_s3("s3://weights/models/kokoro", tmp_path)
    assert sorted(downloads) == sorted(FILES)
    downloads.clear()
    folder = fetch_s3("s3://weights/models/kokoro", tmp_path)
    assert downloads == []
    bucket.put_object(Key="models/kokoro/voices/af_heart.pt", Body=b"HEART")
    (folder / "voices" / "af_sky.pt").unlink()
    fetch_s3("s3://weights/models/kokoro", tmp_path)
    assert sorted(downloads) == ["voices/af_heart.pt", "voices/af_sky.pt"]
    assert (folder / "voices" / "af_heart.pt").read_bytes() == b"HEART"


def test_a_voice_removed_from_s3_is_removed_here(bucket, tmp_path):
    folder = fetch_s3("s3://weights/models/kokoro", tmp_path)
    bucket.Object("models/kokoro/voices/af_sky.pt").delete()
    fetch_s3("s3://weights/models/kokoro", tmp_path)
    assert os.listdir(folder / "voices") == ["af_heart.pt"]


def test_a_broken_download_leaves_no_half_file_and_goes_on_next_time(bucket, downloads, monkeypatch, tmp_path):
    counted = sources._download

    def break_off(client, bucket, key, path):
        if key.endswith(".pth"):
            raise ConnectionResetError
        counted(client, bucket, key, path)

    monkeypatch.setattr(sources, "_download", break_off)
    with pytest.raises(ConnectionResetError):
        fetch_s3("s3://weights/models/kokoro", tmp_path)
    assert not list(tmp_path.rglob("*.pth*"))
    before = len(downloads)
    monkeypatch.setattr(sources, "_download", counted)
    fetch_s3("s3://weights/models/kokoro", tmp_path)
    assert sorted(downloads) == sorted(FILES)
    assert before > 0


def test_an_empty_prefix_is_a_sentence(bucket, tmp_path):
    with pytest.raises(WeightsError, match=r"no kokoro-v1_0\.pth right under s3://weights/models; put config"):
        fetch_s3("s3://weights/models", tmp_path)


def test_a_missing_bucket_is_a_sentence(bucket, tmp_path):
    with pytest.raises(WeightsError, match="s3://no-such-bucket/x is not readable: S3 answers NoSuchBucket"):
        fetch_s3("s3://no-such-bucket/x", tmp_path)


@pytest.mark.parametrize("uri", ["s3://", "s3://a b/c"])
def test_what_is_no_bucket_is_a_sentence(bucket, tmp_path, uri):
    with pytest.raises(WeightsError, match="is not readable"):
        fetch_s3(uri, tmp_path)


def test_without_boto3_the_extra_is_named(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "boto3", None)
    with pytest.raises(WeightsError, match="needs boto3; install the extra: `uv sync --extra aws`"):
        fetch_s3("s3://weights/models", tmp_path)
