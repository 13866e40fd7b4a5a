"""The check over a local SageMaker endpoint, in front of the product's routes with one promise broken at a time."""

import asyncio
import json

import boto3
import pytest
from botocore.config import Config

from deploy import check as check_module
from deploy.check import SENTENCES, Target, Wishes, check
from deploy.sagemaker import main
from scripts.fake_app import bare
from scripts.local_endpoint.endpoint import endpoint_in_thread
from serve_app.client.bidirectional import BidirectionalClient
from tests.serving import served

IN_SERVICE = "the endpoint is in service"
WHOLE = "a whole answer has true sizes"
REFUSAL = "a bad request is refused with its code"
STREAM = "a response stream begins before it ends"
THREE = "one session speaks three sentences in order"
EARLY = "first audio is early"
BESIDE = "sessions run side by side, each as if alone"


class Breakable:
    """The product's routes, of which `fault` breaks one promise."""

    def __init__(self) -> None:
        self._app = bare()
        self.fault = ""
        self._sessions = 0

    async def __call__(self, scope, receive, send):
        kind = scope["type"]
        if kind == "http" and scope["path"] == "/invocations":
            await self._invocation(scope, receive, send)
        elif kind == "websocket":
            await self._session(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    async def _invocation(self, scope, receive, send):
        message = await receive()
        fields = json.loads(message["body"])
        if self.fault == "any voice" and fields.get("voice") == "nobody":
            message = {**message, "body": json.dumps({**fields, "voice": "af_heart"}).encode()}
        first = [message]

        async def again():
            return first.pop() if first else await receive()

        held = b""

        async def altered(answer):
            nonlocal held
            body = answer.get("body", b"")
            if self.fault == "sizes" and body.startswith(b"RIFF"):
                answer = {**answer, "body": body[:40] + b"\0\0\0\1" + body[44:]}
            if self.fault == "late" and answer["type"] == "http.response.body" and fields.get("stream", True):
                held += body
                if answer.get("more_body"):
                    return
                answer = {**answer, "body": held}
            await send(answer)

        await self._app(scope, again, altered)

    async def _session(self, scope, receive, send):
        if self.fault == "two sessions" and self._sessions == 2:
            await receive()
            await send({"type": "websocket.close", "code": 1013})
            return
        self._sessions += 1

        async def altered(frame):
            if self.fault == "lost audio" and frame.get("bytes"):
                frame = {**frame, "bytes": frame["bytes"][:-2]}
            await send(frame)

        try:
            await self._app(scope, receive, altered)
        finally:
            self._sessions -= 1


@pytest.fixture(scope="module")
def container():
    return Breakable()


@pytest.fixture(scope="module")
def endpoint(container):
    with served(container) as url, endpoint_in_thread(url) as running:
        yield running


@pytest.fixture
def target(endpoint, container, monkeypatch):
    container.fault = ""
    for name in ("AWS_PROFILE", "AWS_ENDPOINT_URL", "AWS_CA_BUNDLE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SSL_CERT_FILE", str(endpoint.certificate))
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", endpoint.credentials.access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", endpoint.credentials.secret_key)
    once = Config(retries={"total_max_attempts": 1})
    session = boto3.Session(region_name="eu-west-1")
    runtime = session.client("sagemaker-runtime", endpoint_url=endpoint.http_url, config=once)
    client = BidirectionalClient("tts", endpoint_uri=endpoint.h2_url, boto_session=session)
    return Target("tts", runtime, client, lambda: ("InService", ""))


def findings(target, **wishes):
    async def all_of_them():
        async with asyncio.timeout(60):
            return [finding async for finding in check(target, Wishes(sessions=3, utterances=3, **wishes))]

    return asyncio.run(all_of_them())


def broken(found):
    return [finding.promise for finding in found if not finding.kept]


@pytest.fixture
def published(target):
    """What is right for the fake engine: what its HTTP side says of each sentence."""
    counts = []
    for sentence in SENTENCES:
        body = json.dumps({"text": sentence, "format": "pcm", "stream": False})
        answer = target.runtime.invoke_endpoint(EndpointName="tts", ContentType="application/json", Body=body)
        counts.append(len(answer["Body"].read()))
    return {"fake weights": tuple(counts)}


def test_a_sound_endpoint_keeps_every_promise(target, published):
    found = findings(target, published=published)
    assert broken(found) == [], [finding.seen for finding in found]
    assert [finding.promise for finding in found] == [IN_SERVICE, WHOLE, REFUSAL, STREAM, THREE, EARLY, BESIDE]


@pytest.mark.parametrize(
    ("fault", "promise"),
    [("sizes", WHOLE), ("any voice", REFUSAL), ("late", STREAM), ("two sessions", BESIDE)],
)
def test_the_promise_that_is_broken_is_named_and_no_other(target, container, published, fault, promise):
    container.fault = fault
    assert broken(findings(target, published=published)) == [promise]


def test_audio_that_is_lost_is_noticed_by_its_bytes(target, container, published):
    container.fault = "lost audio"
    assert THREE in broken(findings(target, published=published))


def test_first_audio_past_the_limit_breaks_its_promise(target, published):
    found = findings(target, published=published, ttfa_p95_s=0.0)
    assert broken(found) == [EARLY]


def test_an_endpoint_that_is_not_in_service_is_told_with_its_reason(target, published):
    target = Target("tts", target.runtime, target.bidirectional, lambda: ("Failed", "no capacity"))
    found = findings(target, published=published)
    assert broken(found) == [IN_SERVICE]
    assert found[0].seen == "Failed: no capacity"


def test_an_endpoint_that_is_not_there_breaks_every_promise_that_needs_it(target):
    nowhere = Target("nobody", target.runtime, target.bidirectional)
    missing = Target(
        "nobody", target.runtime, BidirectionalClient("nobody", region="eu-west-1", endpoint_uri="https://localhost:1")
    )
    assert WHOLE in broken(findings(nowhere))
    assert broken(findings(missing)) == [WHOLE, REFUSAL, STREAM, THREE, EARLY, BESIDE]


def test_the_command_prints_findings_and_exits_by_them(endpoint, target, published, capsys, monkeypatch):
    monkeypatch.setattr(check_module, "PUBLISHED_BYTES", published)
    where = ["--runtime-url", endpoint.http_url, "--bidirectional-uri", endpoint.h2_url, "--region", "eu-west-1"]
    few = ["--sessions", "2", "--utterances", "2"]
    assert main(["check", *where, *few, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [finding["kept"] for finding in told] == [True] * 6
    assert main(["check", *where, *few, "--ttfa-p95", "0"]) == 1
    out = capsys.readouterr()
    assert f"BROKEN  {EARLY}" in out.out
    assert out.err == f"broken: {EARLY}\n"
