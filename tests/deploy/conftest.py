"""One corrected moto for the session, an empty account for each test, and the tool run as its user runs it."""

import functools
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from scripts.running import free_port, python_running
from tests.deploy.fake_aws import AwsScript

REGION = "us-east-1"
FOREIGN_IMAGE = "210987654321.dkr.ecr.us-east-1.amazonaws.com/speech:v1"


@pytest.fixture(scope="session")
def aws_server() -> Iterator[str]:
    """Its address."""
    port = free_port()
    with python_running(port, str(Path(__file__).with_name("fake_aws.py")), str(port)) as running:
        running.line("Running on", str(port))
        yield running.http


@functools.cache
def _lasting_session(**arguments: Any) -> Any:
    """One session, and one client a service, for all runs: to make them anew is half the time of a run."""
    from boto3.session import Session

    class LastingSession(Session):  # type: ignore[misc]
        client = functools.cache(Session.client)

    return LastingSession(**arguments)


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
    return lambda service: _lasting_session(region_name=REGION, profile_name=None).client(service)


@pytest.fixture(scope="session")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files named like the official ones."""
    folder = tmp_path_factory.mktemp("weights")
    (folder / "voices").mkdir()
    for name in ("config.json", "kokoro-v1_0.pth", "voices/af_heart.pt"):
        (folder / name).write_bytes(name.encode())
    return folder


@pytest.fixture(scope="session")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sources that no one else works on."""
    folder = tmp_path_factory.mktemp("checkout")
    (folder / "app").mkdir()
    (folder / "app" / "main.py").write_text("print('speaks')")
    (folder / "Dockerfile").write_text(
        "FROM scratch AS base\nFROM base\nCOPY --from=base /x /x\nCOPY app \\\n  /opt/app\n"
    )
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
def tool(
    aws: AwsScript, weights: Path, checkout: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Tool:
    """deploy/sagemaker.py in this process: real settings, real SDKs, no pauses.

    The image is another account's, so nothing is built; `--set image.uri=null` has CodeBuild build a small checkout.
    """
    from deploy import sources
    from deploy.aws import session
    from deploy.sagemaker import main

    monkeypatch.setattr(session.boto3, "Session", _lasting_session)
    monkeypatch.setattr(sources, "image_sources", functools.partial(sources.image_sources, checkout))

    def run(command: str, *arguments: str, pause: Callable[[float], None] = lambda _: None) -> Outcome:
        capfd.readouterr()
        settings = [f"weights={weights}", f"image.uri={FOREIGN_IMAGE}", "image.builder=codebuild"]
        options = [option for setting in settings for option in ("--set", setting)]
        status = main([command, "--region", REGION, *options, *arguments], pause=pause)
        return Outcome(status, *capfd.readouterr())

    return run
