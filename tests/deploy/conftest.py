"""One corrected moto for the session, an empty account for each test, and the tool run as its user runs it."""

import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.deploy.fake_aws import AwsScript

REGION = "us-east-1"


@pytest.fixture(scope="session")
def aws_server() -> Iterator[str]:
    """Its address."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, str(Path(__file__).with_name("fake_aws.py")), str(port)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    url = f"http://127.0.0.1:{port}"
    try:
        for _ in range(600):
            try:
                urllib.request.urlopen(f"{url}/script", timeout=1).close()
                break
            except OSError:
                assert process.poll() is None, "moto did not start"
                time.sleep(0.05)  # until the process listens
        yield url
    finally:
        process.terminate()
        process.wait(10)


@pytest.fixture
def aws(aws_server: str, monkeypatch: pytest.MonkeyPatch) -> AwsScript:
    """An empty account that every SDK of this process finds."""
    for name in [name for name in os.environ if name.startswith(("AWS_", "SAGEMAKER_"))]:
        monkeypatch.delenv(name)
    for name, value in {
        "AWS_ENDPOINT_URL": aws_server,
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",
        "AWS_SESSION_TOKEN": "testing",
        "AWS_MAX_ATTEMPTS": "1",
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        "SAGEMAKER_ADMIN_CONFIG_OVERRIDE": os.devnull,
        "SAGEMAKER_USER_CONFIG_OVERRIDE": os.devnull,
    }.items():
        monkeypatch.setenv(name, value)
    script = AwsScript(aws_server)
    script.reset()
    return script


@pytest.fixture
def client(aws: AwsScript) -> Callable[[str], Any]:
    """boto3 clients of the account, to look at it or to play somebody else in it."""
    import boto3

    session = boto3.Session(region_name=REGION)
    return lambda service: session.client(service)


@pytest.fixture(scope="session")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files named like the official ones."""
    folder = tmp_path_factory.mktemp("weights")
    (folder / "voices").mkdir()
    for name in ("config.json", "kokoro-v1_0.pth", "voices/af_heart.pt"):
        (folder / name).write_bytes(name.encode())
    return folder


@dataclass
class Outcome:
    """What one run of the tool left on its streams."""

    status: int
    stdout: str
    stderr: str

    @property
    def json(self) -> Any:
        return json.loads(self.stdout)


Tool = Callable[..., Outcome]


@pytest.fixture
def tool(aws: AwsScript, weights: Path, capfd: pytest.CaptureFixture[str]) -> Tool:
    """deploy/sagemaker.py in this process: real settings, real SDKs, no pauses; built by CodeBuild."""
    from deploy.sagemaker import main

    def run(command: str, *arguments: str) -> Outcome:
        capfd.readouterr()
        settings = ["--region", REGION, "--set", f"weights={weights}", "--set", "image.builder=codebuild"]
        status = main([command, *settings, *arguments], pause=lambda _: None)
        return Outcome(status, *capfd.readouterr())

    return run
