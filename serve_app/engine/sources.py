"""Where official files come from: a folder, the Hugging Face hub, an S3 prefix. Each ends as a folder to read.

The official layout is `config.json`, `kokoro-v1_0.pth` and `voices/NAME.pt`, as in the hub's hexgrad/Kokoro-82M.
"""

import hashlib
import json
import logging
import queue
import re
import threading
from pathlib import Path
from typing import Any

from serve_app.engine.files import WeightsError, locked, sha256_of, write_atomically

log = logging.getLogger(__name__)

CONFIG_FILE = "config.json"
MODEL_FILE = "kokoro-v1_0.pth"
VOICES_FOLDER = "voices"

HUB_REPO = "hexgrad/Kokoro-82M"
HUB_REVISION = "f3ff3571791e39611d31c381e3a41a3af07b4987"
HUB_MODEL_SHA256 = "496dba118d1a58f5f3db2efc88dbdc216e0483fc89fe6e47ee1f2c53f18ad1e4"
HUB_VOICES = 54
HUB_PROBE_S = 4.0
_HUB_FILES = [CONFIG_FILE, MODEL_FILE, f"{VOICES_FOLDER}/*.pt"]

_OFFICIAL_NAME = re.compile(r"config\.json|kokoro-v1_0\.pth|voices/[A-Za-z0-9][A-Za-z0-9_-]{0,63}\.pt")
_EXPECTED = f"{CONFIG_FILE}, {MODEL_FILE} and {VOICES_FOLDER}/NAME.pt"


def find_folder(folder: Path) -> Path:
    """The folder in the official layout at `folder` or, as archives unpack, one level below it.

    Raises:
        WeightsError: names the folder that was looked in.
    """
    if not folder.is_dir():
        raise WeightsError(
            f"weights.source is {folder}, which is no folder; use `auto`, `hub`, `packaged`, `s3://bucket/prefix` or a "
            f"folder with {_EXPECTED}"
        )
    for candidate in (folder, *sorted(path for path in folder.iterdir() if path.is_dir())):
        if (candidate / MODEL_FILE).is_file():
            return candidate
    raise WeightsError(
        f"there is no {MODEL_FILE} in {folder} nor one folder below it; put {_EXPECTED} there, for example with "
        "`uv run python scripts/fetch_weights.py --to FOLDER`"
    )


def hub_reachable() -> bool:
    """Does the hub answer for the official files? Takes HUB_PROBE_S at most, whatever the network does."""
    from huggingface_hub import get_hf_file_metadata, hf_hub_url

    answers: queue.SimpleQueue[bool] = queue.SimpleQueue()

    def ask() -> None:
        try:
            url = hf_hub_url(HUB_REPO, CONFIG_FILE, revision=HUB_REVISION)
            # A captive portal answers too, but not with the repository's commit.
            answers.put(get_hf_file_metadata(url, timeout=HUB_PROBE_S).commit_hash == HUB_REVISION)
        except Exception as exc:  # offline mode, resolver, proxy, TLS, HTTP: all of them mean no
            log.info("the hub does not answer (%s)", type(exc).__name__)
            answers.put(False)

    # A thread, because name resolution obeys no timeout; a daemon, so that a stuck one does not keep the process.
    threading.Thread(target=ask, name="hub-probe", daemon=True).start()
    try:
        return answers.get(timeout=HUB_PROBE_S)
    except queue.Empty:
        return False


def hub_cached(hub_cache: Path | None) -> Path | None:
    """The official files in the hub's cache on this machine, if all are there; asks nobody."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    try:
        folder = Path(
            snapshot_download(
                HUB_REPO,
                revision=HUB_REVISION,
                cache_dir=hub_cache,
                allow_patterns=_HUB_FILES,
                local_files_only=True,
            )
        )
    except (LocalEntryNotFoundError, OSError):
        return None
    voices = sum(1 for _ in folder.glob(f"{VOICES_FOLDER}/*.pt"))
    complete = (folder / MODEL_FILE).is_file() and (folder / CONFIG_FILE).is_file() and voices >= HUB_VOICES
    return folder if complete else None


def fetch_hub(cache: Path, hub_cache: Path | None) -> Path:
    """The official files from the hub; fetches only what its cache lacks, and checks the model's hash once.

    Args:
        cache: ours, for the note that the hash was right.
        hub_cache: the hub's; None: its default place, shared with other programs.
    Raises:
        WeightsError: not reachable, or not the published model.
    """
    verified = cache / f"hub-{HUB_MODEL_SHA256[:12]}.verified"
    if verified.exists() and (folder := hub_cached(hub_cache)):
        return folder
    with locked(verified):
        folder = hub_cached(hub_cache) or _download_hub(hub_cache)
        if sha256_of(folder / MODEL_FILE) != HUB_MODEL_SHA256:
            raise WeightsError(
                f"{MODEL_FILE} from the hub does not have the published SHA-256; remove {HUB_REPO} from the hub's "
                "cache (`hf cache rm`) and start again"
            )
        verified.touch()
    return folder


def _download_hub(hub_cache: Path | None) -> Path:
    from huggingface_hub import snapshot_download

    log.info("fetching the official model and voices from the hub, about 355 MB, once")
    try:
        return Path(
            snapshot_download(
                HUB_REPO,
                revision=HUB_REVISION,
                cache_dir=hub_cache,
                allow_patterns=_HUB_FILES,
            )
        )
    except Exception as exc:  # the hub's client passes on its HTTP library's errors
        raise WeightsError(
            f"{HUB_REPO} could not be fetched from the hub ({type(exc).__name__}); check that this machine reaches it, "
            "or set weights.source to `packaged` or to a folder with the official files"
        ) from exc


def fetch_s3(uri: str, cache: Path) -> Path:
    """The official files under `s3://bucket/prefix`; fetches only those whose size or ETag changed.

    Credentials, region and endpoint are boto3's usual ones.

    Raises:
        WeightsError: boto3 is missing, the prefix is not readable or lacks a file.
    """
    try:
        import boto3
        from botocore.config import Config
        from botocore.exceptions import BotoCoreError, ClientError
    except ImportError as exc:
        raise WeightsError(
            "weights.source is an S3 prefix, which needs boto3; install the extra: `uv sync --extra aws`"
        ) from exc
    bucket, _, prefix = uri.removeprefix("s3://").strip("/").partition("/")
    folder = cache / "s3" / hashlib.sha256(f"{bucket}/{prefix}".encode()).hexdigest()[:16]
    network = Config(connect_timeout=5, read_timeout=60, retries={"total_max_attempts": 3, "mode": "standard"})
    with locked(folder):
        try:
            client = boto3.client("s3", config=network)
            _mirror_s3(client, bucket, f"{prefix}/" if prefix else "", folder)
        except ClientError as exc:
            raise WeightsError(f"{uri} is not readable: S3 answers {exc.response['Error']['Code']}") from exc
        except (BotoCoreError, ValueError) as exc:  # ValueError: the bucket name or endpoint is no valid one
            raise WeightsError(
                f"{uri} is not readable ({type(exc).__name__}); check credentials, region and network"
            ) from exc
    if not (folder / MODEL_FILE).is_file():
        raise WeightsError(f"there is no {MODEL_FILE} right under {uri}; put {_EXPECTED} there")
    return folder


def _mirror_s3(client: Any, bucket: str, prefix: str, folder: Path) -> None:
    index = folder / "etags.json"
    known: dict[str, list[Any]] = json.loads(index.read_text()) if index.exists() else {}
    listed: dict[str, list[Any]] = {}
    for page in client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix):
        for item in page.get("Contents", ()):
            name = item["Key"].removeprefix(prefix)
            if _OFFICIAL_NAME.fullmatch(name):  # also keeps keys such as `../x` from becoming paths
                listed[name] = [item["Size"], item["ETag"]]
    for name in known.keys() - listed.keys():
        (folder / name).unlink(missing_ok=True)
        del known[name]
    for name, version in listed.items():
        path = folder / name
        if known.get(name) != version or not path.is_file() or path.stat().st_size != version[0]:
            _download(client, bucket, prefix + name, path)
            known[name] = version
            _write_text(index, json.dumps(known))


def _download(client: Any, bucket: str, key: str, path: Path) -> None:
    write_atomically(path, lambda part: client.download_file(bucket, key, str(part)))


def _write_text(path: Path, text: str) -> None:
    def write(part: Path) -> None:
        part.write_text(text)

    write_atomically(path, write)
