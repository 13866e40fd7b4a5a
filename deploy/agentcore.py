"""Put the voice agent on Bedrock AgentCore: deploy | status | invoke | destroy.

    python deploy/agentcore.py deploy --region us-east-1 --bedrock-model-id ID --tts-endpoint NAME

docs/deploy-agent.md says what is made, what it costs and how to undo it. Progress goes to stderr, results to stdout.
"""

import sys
from pathlib import Path

if __name__ == "__main__":
    # A file beside this one is named like AWS's SDK, and Python puts its folder first on the path.
    _HERE = Path(__file__).resolve().parent
    sys.path[:] = [str(_HERE.parent), *(entry for entry in sys.path if Path(entry or ".").resolve() != _HERE)]

import argparse
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any

from deploy.errors import DeployError
from deploy.progress import say
from deploy.terminal import confirm_removal, print_json, run_command

if TYPE_CHECKING:
    from deploy.aws.found import Found
    from deploy.aws.session import Aws
    from deploy.resources import Files, LocalFile
    from deploy.runtime import Runtime
    from deploy.runtime_plan import RuntimePlan, RuntimeSettings
    from serve_app.client.types import SpeechClient

DEFAULT_NAME = "voice_agent"


def bidirectional(aws: "Aws", endpoint: str) -> "SpeechClient":
    """The client that asks the speech endpoint for a hello, as the agent will speak to it."""
    from serve_app.client.bidirectional import BidirectionalClient

    return BidirectionalClient(endpoint, region=aws.region, boto_session=aws.session)


def main(
    arguments: Sequence[str] | None = None,
    pause: Callable[[float], None] = time.sleep,
    speech: "Callable[[Aws, str], SpeechClient]" = bidirectional,
    build: "Callable[[Path], LocalFile] | None" = None,
) -> int:
    """
    Args:
        pause: waits between two looks at something that takes its time.
        speech: the client of an endpoint.
        build: writes the agent's zip into a folder; by default, that of this checkout.
    """
    options = _parser().parse_args(arguments)
    options.pause, options.speech, options.build = pause, speech, build
    return run_command(options)


def _deploy(options: argparse.Namespace) -> int:
    from deploy import runtime
    from deploy.aws.session import explained
    from deploy.runtime_plan import RuntimeSettings, check_settings

    settings = RuntimeSettings(
        options.name, options.region, options.bedrock_model_id, options.tts_endpoint, options.image
    )
    check_settings(settings)
    aws = _session(options)
    with explained(), tempfile.TemporaryDirectory() as folder:
        runtime.require_endpoint(aws, settings.tts_endpoint)
        if not options.dry_run:
            heard_s = runtime.require_answer(options.speech(aws, settings.tts_endpoint), settings.tts_endpoint)
            say(f"the endpoint {settings.tts_endpoint} speaks: {heard_s:.3f} s of audio")
        plan, files = _planned(settings, aws, options.build, Path(folder))
        if options.dry_run:
            found = runtime.look(aws, plan, files)
            _print_found(found, options.json)
            runtime.refuse_clashes(found)
            return 0
        _print_status(_told(runtime.put(aws, plan, files)), options.json)
    return 0


def _planned(
    settings: "RuntimeSettings", aws: "Aws", build: "Callable[[Path], LocalFile] | None", folder: Path
) -> "tuple[RuntimePlan, Files | None]":
    from deploy.resources import Files
    from deploy.runtime_artefact import build_artefact
    from deploy.runtime_plan import Code, RuntimeNames, build_runtime_plan

    if settings.image is not None:
        return build_runtime_plan(settings, aws.account, aws.partition, None), None
    say("building the agent's zip for arm64")
    artefact = (build or build_artefact)(folder)
    say(f"    {artefact.size_bytes / 1024**2:.1f} MB, {artefact.sha256[:16]}")
    names = RuntimeNames(settings.name, settings.region, aws.account, aws.partition)
    files = Files(names.bucket, f"{artefact.sha256[:16]}/", (artefact,))
    code = Code(files.bucket, files.prefix + artefact.name)
    return build_runtime_plan(settings, aws.account, aws.partition, code), files


def _status(options: argparse.Namespace) -> int:
    """1 where no agent answers."""
    from deploy import runtime
    from deploy.aws.session import explained

    aws = _session(options)
    with explained():
        there = runtime.find_runtime(aws, options.name)
        if there is not None and not runtime.owns(aws, there):
            say(f"the agent runtime {options.name} was not made by this tool")
    _print_status(_told(there) if there else {"name": options.name, "status": None}, options.json)
    return 0 if there is not None and there.status == "READY" else 1


def _invoke(options: argparse.Namespace) -> int:
    """Text goes to stdout as it comes, times to stderr, audio to the file."""
    from deploy import runtime
    from deploy.aws.session import explained
    from serve_app.client.agent_runtime import AgentRuntimeClient, patient
    from serve_app.errors import SpeechError

    aws = _session(options)
    with explained():
        there = runtime.find_runtime(aws, options.name)
        if there is None:
            raise DeployError(f"there is no agent runtime {options.name} in {options.region}: deploy it first")
        data_plane = aws.session.client("bedrock-agentcore", config=patient())
    asked = {name: value for name in ("mode", "voice") if (value := getattr(options, name)) is not None}
    with closing(AgentRuntimeClient(there.arn, session=options.session, runtime=data_plane)) as agent:
        say(f"session {agent.session_id}")
        try:
            _hear(agent.invoke(options.prompt, **asked), options.out)
        except SpeechError as exc:
            raise DeployError(f"the agent did not answer to the end ({exc.code}): {exc}") from exc
    return 0


def _hear(events: Any, out: Path) -> None:
    """Raises SpeechError, DeployError."""
    from serve_app.client.agent_events import AudioData, AudioEnd, AudioStart, TextDelta
    from serve_app.client.output import write_wav

    started_s, first_s = time.monotonic(), dict[str, float]()
    pcm, sample_rate, audio_s = bytearray(), 0, 0.0
    for event in events:
        match event:
            case TextDelta():
                first_s.setdefault("text", time.monotonic() - started_s)
                print(event.text, end="", flush=True)
            case AudioStart():
                sample_rate = event.sample_rate
            case AudioData():
                first_s.setdefault("audio", time.monotonic() - started_s)
                pcm += event.data
            case AudioEnd():
                audio_s = event.duration_s
    print(flush=True)
    for what, after_s in first_s.items():
        say(f"first {what} after {after_s:.3f} s")
    if not pcm:
        say("the agent spoke nothing")
        return
    try:
        write_wav(out, bytes(pcm), sample_rate)
    except OSError as exc:
        raise DeployError(f"{out} cannot be written: {exc.strerror}") from exc
    say(f"{audio_s:.3f} s of audio written to {out}")


def _destroy(options: argparse.Namespace) -> int:
    from deploy import runtime
    from deploy.aws.session import explained
    from deploy.runtime_plan import RuntimeNames

    aws = _session(options)
    names = RuntimeNames(options.name, options.region, aws.account, aws.partition)
    with explained():
        there = runtime.inventory(aws, names)
        if not there:
            say(f"nothing of {options.name} is left in {options.region}, account {aws.account}")
        elif not options.dry_run:
            if not options.yes:
                confirm_removal(options.name, f"{options.region}, account {aws.account}", there)
            runtime.remove(aws, names)
    if options.json:
        print_json({"removed": [] if options.dry_run else there, "found": there})
    elif options.dry_run:
        print("\n".join(there))
    return 0


def _session(options: argparse.Namespace) -> "Aws":
    from deploy.aws.session import open_session
    from deploy.runtime_plan import check_name, owner_of

    check_name(options.name)
    return open_session(options.region, options.profile, owner_of(options.name), options.pause)


def _told(runtime: "Runtime") -> dict[str, Any]:
    """What a runtime is, for people and programs."""
    return {
        "name": runtime.fields["agentRuntimeName"],
        "status": runtime.status,
        "version": runtime.version,
        "arn": runtime.arn,
        "id": runtime.id,
        "failure": runtime.failure or None,
        "environment": dict(runtime.fields.get("environmentVariables", {})),
    }


def _print_status(status: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(status)
        return
    if status["status"] is None:
        print(f"{status['name']}: there is no such agent runtime")
        return
    print(f"{status['name']}: {status['status']}")
    if status["failure"]:
        print(f"  failure  {status['failure']}")
    print(f"  version  {status['version']}")
    print(f"  arn      {status['arn']}")
    for name, value in status["environment"].items():
        print(f"  {name}={value}")


def _print_found(found: "dict[str, tuple[str, Found]]", as_json: bool) -> None:
    if as_json:
        print_json(
            [
                {"kind": kind, "name": name, "found": one.presence.value, "detail": one.detail}
                for kind, (name, one) in found.items()
            ]
        )
        return
    for kind, (name, one) in found.items():
        print(f"{kind:<15}{name}: {one.presence.value}{f' ({one.detail})' if one.detail else ''}")


def _parser() -> argparse.ArgumentParser:
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--region", required=True, help="such as us-east-1")
    common.add_argument("--profile", help="of the AWS configuration; default: the usual chain of credentials")
    common.add_argument("--name", default=DEFAULT_NAME, help="of the agent runtime; default: %(default)s")
    as_json = argparse.ArgumentParser(add_help=False)
    as_json.add_argument("--json", action="store_true", help="the result as JSON")
    parser = argparse.ArgumentParser(prog="deploy/agentcore.py", description=(__doc__ or "").partition("\n")[0])
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(
        name: str, run: Callable[[argparse.Namespace], int], text: str, *parents: argparse.ArgumentParser
    ) -> Any:
        subparser = commands.add_parser(name, help=text, description=text, parents=[common, *parents])
        subparser.set_defaults(run=run)
        return subparser

    deploy = command("deploy", _deploy, "make or update the agent, and wait until it is ready", as_json)
    deploy.add_argument("--bedrock-model-id", required=True, metavar="ID", help="a model or an inference profile")
    deploy.add_argument("--tts-endpoint", required=True, metavar="NAME", help="the SageMaker endpoint that speaks")
    deploy.add_argument("--image", metavar="URI", help="an arm64 image in ECR, instead of a zip of this checkout")
    deploy.add_argument("--dry-run", action="store_true", help="look at what is there, and change nothing")
    command("status", _status, "one look at the agent; exit status 1 where it is not ready", as_json)
    invoke = command("invoke", _invoke, "ask the agent; text to stdout as it comes, audio to a file")
    invoke.add_argument("prompt", metavar="PROMPT")
    invoke.add_argument("--mode", choices=["bidi", "batch"], help="speak while the model writes, or after")
    invoke.add_argument("--voice", help="such as af_heart")
    invoke.add_argument("--session", metavar="NAME", help="go on with the conversation of this name")
    invoke.add_argument("--out", type=Path, default=Path("answer.wav"), metavar="FILE", help="default: %(default)s")
    destroy = command("destroy", _destroy, "remove what was made, after asking", as_json)
    destroy.add_argument("--dry-run", action="store_true", help="say what would be removed")
    destroy.add_argument("--yes", action="store_true", help="don't ask")
    return parser


if __name__ == "__main__":
    sys.exit(main())
