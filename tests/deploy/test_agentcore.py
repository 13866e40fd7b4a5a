"""The launcher from end to end: boto3 against moto with what it lacks, the data plane on loopback."""

import base64
import hashlib
import json
import subprocess
import sys
import wave
from pathlib import Path

import pytest

from deploy import agentcore as launcher
from deploy import runtime
from deploy.resources import LocalFile
from serve_app.client.errors import Unreachable
from tests.client.data_plane import DataPlane, data_plane
from tests.deploy.fake_runtime import REGION, Speaker, agentcore, moto_server

MODEL = "us.amazon.nova-lite-v1:0"
DEPLOY = ["deploy", "--bedrock-model-id", MODEL, "--tts-endpoint", "tts"]


@pytest.fixture(scope="module")
def moto():
    with moto_server() as url:
        yield url


@pytest.fixture
def service(moto):
    with agentcore(moto) as running:
        yield running


@pytest.fixture
def run(service, capsys):
    """Runs the launcher; gives exit status, stdout and stderr."""

    def run(*arguments, speaker=None, content=b"zip", region=REGION):
        def build(folder: Path) -> LocalFile:
            path = folder / "agent.zip"
            path.write_bytes(content)
            return LocalFile(path.name, path, hashlib.sha256(content).hexdigest(), len(content))

        command, *rest = arguments
        status = launcher.main(
            [command, "--region", region, *rest],
            pause=service.pauses.append,
            speech=lambda aws, endpoint: speaker or Speaker(),
            build=build,
        )
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return run


@pytest.fixture
def deployed(service, run):
    service.endpoint()
    assert run(*DEPLOY)[0] == 0
    return service


# --- deploy


def test_deploy_makes_role_bucket_zip_and_runtime_and_waits(service, run):
    service.endpoint()
    speaker = Speaker()
    status, out, err = run(*DEPLOY, "--json", speaker=speaker)
    assert status == 0
    told = json.loads(out)
    assert (told["status"], told["version"], told["name"]) == ("READY", "1", "voice_agent")
    assert told["arn"].startswith(f"arn:aws:bedrock-agentcore:{REGION}:123456789012:runtime/voice_agent-")
    assert told["environment"]["VOICE_AGENT_TTS_ENDPOINT"] == "tts"
    assert (speaker.said, speaker.closed) == (["Hello there."], True)
    assert "1.525 s of audio" in err
    assert err.index("CREATING") < err.index("READY")
    (agent,) = service.runtimes()
    place = agent.agent_runtime_artifact["codeConfiguration"]["code"]["s3"]
    stored = service.client("s3").get_object(Bucket=place["bucket"], Key=place["prefix"])
    assert stored["Body"].read() == b"zip"
    assert place["prefix"] == f"{hashlib.sha256(b'zip').hexdigest()[:16]}/agent.zip"
    assert agent.role_arn.endswith("role/voice-agent-us-east-1-runtime")


def test_deploy_again_changes_nothing(deployed, run):
    status, out, _ = run(*DEPLOY)
    assert status == 0
    assert "version  1" in out
    assert deployed.calls == ["create"]


def test_another_model_is_another_version_with_everything_sent(deployed, run):
    before = deployed.runtimes()[0].__dict__.copy()
    status, out, err = run("deploy", "--bedrock-model-id", "amazon.nova-micro-v1:0", "--tts-endpoint", "tts")
    assert (status, deployed.calls) == (0, ["create", "update"])
    assert "version  2" in out
    assert err.index("UPDATING") < err.rindex("READY")
    (agent,) = deployed.runtimes()
    assert agent.environment_variables["VOICE_AGENT_BEDROCK_MODEL_ID"] == "amazon.nova-micro-v1:0"
    for name in (
        "agent_runtime_artifact",
        "role_arn",
        "network_configuration",
        "protocol_configuration",
        "description",
    ):
        assert getattr(agent, name) == before[name]
    policy = deployed.client("iam").get_role_policy(RoleName="voice-agent-us-east-1-runtime", PolicyName="runtime")
    assert "nova-micro" in json.dumps(policy["PolicyDocument"])
    assert "nova-lite" not in json.dumps(policy["PolicyDocument"])


def test_other_sources_are_another_version(deployed, run):
    assert run(*DEPLOY, content=b"other")[0] == 0
    assert deployed.runtimes()[0].agent_runtime_version == "2"


def test_an_image_needs_no_bucket(service, run):
    service.endpoint()
    image = "123456789012.dkr.ecr.us-east-1.amazonaws.com/agent:1"
    assert run(*DEPLOY, "--image", image)[0] == 0
    assert service.runtimes()[0].agent_runtime_artifact == {"containerConfiguration": {"containerUri": image}}
    assert not service.client("s3").list_buckets()["Buckets"]


def test_the_runtime_is_found_beyond_the_first_page(deployed, run):
    assert run(*DEPLOY, "--name", "another")[0] == 0
    assert deployed.calls == ["create", "create"]
    assert run("status", "--name", "another")[0] == 0


def test_dry_run_tells_what_would_be_made_and_makes_nothing(service, run):
    service.endpoint()
    speaker = Speaker()
    status, out, _ = run(*DEPLOY, "--dry-run", "--json", speaker=speaker)
    assert status == 0
    assert {one["kind"]: one["found"] for one in json.loads(out)} == {
        "IAM role": "missing",
        "S3 bucket": "missing",
        "S3 objects": "missing",
        "agent runtime": "missing",
    }
    assert (service.left(), speaker.said) == ([], [])


def test_dry_run_on_what_is_there_finds_it_as_planned(deployed, run):
    status, out, _ = run(*DEPLOY, "--dry-run")
    assert status == 0
    assert out.count("as planned") == 4
    assert "differs (agentRuntimeArtifact)" in run(*DEPLOY, "--dry-run", content=b"other")[1]


# --- deploy refuses


def test_without_its_endpoint_no_agent_is_made(service, run):
    status, out, err = run(*DEPLOY)
    assert (status, out) == (1, "")
    assert "no SageMaker endpoint tts in us-east-1" in err
    assert service.left() == []


@pytest.mark.parametrize("state", ["Creating", "Failed", "OutOfService"])
def test_an_endpoint_that_is_not_in_service_is_refused_with_its_reason(service, run, state):
    endpoint = service.endpoint()
    endpoint.endpoint_status, endpoint.failure_reason = state, "no capacity"
    status, _, err = run(*DEPLOY)
    assert status == 1
    assert f"tts is {state} (no capacity)" in err
    assert service.left() == []


def test_an_endpoint_that_does_not_speak_is_refused(service, run):
    service.endpoint()
    speaker = Speaker(failure=Unreachable("no connection"))
    status, _, err = run(*DEPLOY, speaker=speaker)
    assert status == 1
    assert "does not speak over a bidirectional stream: no connection" in err
    assert speaker.closed
    assert service.left() == []


@pytest.mark.parametrize("arguments", [["--name", "voice-agent"], ["--bedrock-model-id", "?"], ["--image", "agent:1"]])
def test_what_aws_would_refuse_is_refused_before_it_is_asked(run, arguments):
    status, _, err = run(*DEPLOY, *arguments)
    assert status == 1
    assert err.endswith(".\n")
    assert "Traceback" not in err


def test_a_runtime_of_somebody_else_is_left_alone(service, run):
    service.endpoint()
    service.client("bedrock-agentcore-control").create_agent_runtime(
        agentRuntimeName="voice_agent",
        agentRuntimeArtifact={"containerConfiguration": {"containerUri": "x"}},
        roleArn="arn:aws:iam::123456789012:role/x",
        networkConfiguration={"networkMode": "PUBLIC"},
    )
    status, _, err = run(*DEPLOY)
    assert status == 1
    assert "not made by this deployment: the agent runtime voice_agent" in err
    assert service.left() == ["voice_agent"]
    assert run("destroy", "--yes")[0] == 0
    assert service.left() == ["voice_agent"]


def test_a_role_of_somebody_else_is_left_alone(service, run):
    service.endpoint()
    service.client("iam").create_role(RoleName="voice-agent-us-east-1-runtime", AssumeRolePolicyDocument="{}")
    status, _, err = run(*DEPLOY)
    assert status == 1
    assert "choose another --name" in err
    assert service.calls == []


def test_a_role_that_is_seconds_old_is_waited_for(service, run):
    service.endpoint()
    service.role_unknown = 2
    assert run(*DEPLOY)[0] == 0
    assert service.pauses[:2] == [5, 10]


def test_a_runtime_that_fails_is_told_with_its_reason_and_made_anew_the_next_time(service, run):
    service.endpoint()
    service.fails = "no module named agent"
    status, _, err = run(*DEPLOY)
    assert status == 1
    assert "CREATE_FAILED: no module named agent" in err
    assert "/aws/bedrock-agentcore/runtimes/voice_agent-" in err
    assert run("status")[0] == 1
    assert run(*DEPLOY)[0] == 0
    assert service.calls == ["create", "delete", "create"]


def test_a_failed_update_is_told_and_repaired_by_the_next_one(deployed, run):
    deployed.fails = "the image is for another processor"
    status, _, err = run(*DEPLOY, content=b"other")
    assert status == 1
    assert "UPDATE_FAILED: the image is for another processor" in err
    assert run(*DEPLOY, content=b"other")[0] == 0
    assert deployed.calls == ["create", "update", "update"]


def test_a_change_that_is_going_on_is_waited_for(deployed, run):
    (agent,) = deployed.runtimes()
    agent.status, agent.next_statuses = "UPDATING", ["UPDATING"] * 4 + ["READY"]
    assert run(*DEPLOY, content=b"other")[0] == 0
    assert deployed.calls == ["create", "update"]


def test_a_runtime_that_never_settles_is_given_up(deployed, run, monkeypatch):
    monkeypatch.setattr(runtime, "POLL_S", 300.0)
    (agent,) = deployed.runtimes()
    agent.status, agent.next_statuses = "UPDATING", []
    status, _, err = run(*DEPLOY, content=b"other")
    assert status == 1
    assert "UPDATING for 15 minutes" in err


# --- status


def test_status_tells_of_an_agent_and_that_there_is_none(deployed, run):
    status, out, _ = run("status", "--json")
    assert (status, json.loads(out)["status"]) == (0, "READY")
    status, out, _ = run("status", "--name", "other")
    assert (status, out) == (1, "other: there is no such agent runtime\n")


# --- invoke


def speak(plane: DataPlane) -> None:
    plane.start()
    plane.event("agent_start", mode="bidi")
    plane.event("text_delta", seq=0, text="Hello ")
    plane.event("audio_stream_start", format="pcm16", voice="af_heart", sample_rate=24000)
    plane.event("audio_chunk", seq=0, data=base64.b64encode(b"\1\0" * 600).decode())
    plane.event("text_delta", seq=1, text="there.")
    plane.event("audio_chunk", seq=1, data=base64.b64encode(b"\2\0" * 600).decode())
    plane.event("audio_stream_end", total_chunks=2, duration_s=0.05)
    plane.event("agent_end")
    plane.end()


def test_invoke_prints_the_text_and_writes_the_audio(deployed, run, monkeypatch, tmp_path):
    out_file = tmp_path / "answer.wav"
    with data_plane(speak) as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL_BEDROCK_AGENTCORE", server.url)
        status, out, err = run(
            "invoke", "Hi", "--mode", "batch", "--voice", "af_sky", "--session", "user-42", "--out", str(out_file)
        )
        ((path, headers, payload),) = server.requests
    assert (status, out) == (0, "Hello there.\n")
    assert "first text after" in err
    assert "first audio after" in err
    assert "0.050 s of audio written" in err
    assert payload == {"prompt": "Hi", "mode": "batch", "voice": "af_sky"}
    assert len(headers["X-Amzn-Bedrock-AgentCore-Runtime-Session-Id"]) >= 33
    assert "voice_agent-" in path
    with wave.open(str(out_file)) as sound:
        assert (sound.getframerate(), sound.getnframes()) == (24_000, 1200)


def test_an_answer_that_breaks_off_writes_nothing_and_fails(deployed, run, monkeypatch, tmp_path):
    def answer(plane: DataPlane) -> None:
        plane.start()
        plane.event("text_delta", seq=0, text="Hello ")
        plane.event("error", message="the model has no room")
        plane.end()

    with data_plane(answer) as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL_BEDROCK_AGENTCORE", server.url)
        status, out, err = run("invoke", "Hi", "--out", str(tmp_path / "answer.wav"))
    assert (status, out) == (1, "Hello ")
    assert "the model has no room" in err
    assert not (tmp_path / "answer.wav").exists()


def test_without_an_agent_there_is_nobody_to_ask(run):
    status, _, err = run("invoke", "Hi")
    assert status == 1
    assert "no agent runtime voice_agent in us-east-1" in err


# --- destroy


def test_destroy_leaves_nothing(deployed, run):
    (agent,) = deployed.runtimes()
    group = f"/aws/bedrock-agentcore/runtimes/{agent.agent_runtime_id}-DEFAULT"
    for name in (group, "/aws/bedrock-agentcore/runtimes/voice_agent2-abcdefghij-DEFAULT"):
        deployed.client("logs").create_log_group(logGroupName=name)
    assert len(json.loads(run("destroy", "--dry-run", "--json")[1])["found"]) == 4
    status, out, err = run("destroy", "--yes", "--json")
    assert status == 0
    assert len(json.loads(out)["removed"]) == 4
    assert err.index("DELETING") < err.index("gone")
    assert deployed.left() == ["/aws/bedrock-agentcore/runtimes/voice_agent2-abcdefghij-DEFAULT"]
    status, out, err = run("destroy", "--yes")
    assert (status, out) == (0, "")
    assert "nothing of voice_agent is left" in err


def test_destroy_goes_on_after_an_interruption(deployed, run):
    deployed.client("bedrock-agentcore-control").delete_agent_runtime(
        agentRuntimeId=deployed.runtimes()[0].agent_runtime_id
    )
    assert run("destroy", "--yes")[0] == 0
    assert deployed.left() == []


def test_destroy_asks_first(deployed, run):
    before = deployed.left()
    status, _, err = run("destroy")  # a test has no terminal
    assert status == 1
    assert "--yes" in err
    assert deployed.left() == before


# --- the command itself


def test_without_credentials_it_says_how_to_sign_in(run, monkeypatch):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name)
    status, out, err = run("status", region="eu-west-1")  # no run before has looked for credentials there
    assert (status, out) == (1, "")
    assert "no AWS credentials" in err


def test_help_works_from_any_folder_without_the_sdk(tmp_path):
    script = Path(launcher.__file__).resolve()
    code = (
        f"import runpy, sys; sys.argv = [{str(script)!r}, 'deploy', '--help']; sys.path[0] = {str(script.parent)!r}\n"
        f"try: runpy.run_path({str(script)!r}, run_name='__main__')\n"
        "except SystemExit: print(sorted({'boto3', 'botocore', 'pydantic', 'strands'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True, timeout=60
    )
    assert "--tts-endpoint NAME" in done.stdout
    assert done.stdout.splitlines()[-1] == "[]"
