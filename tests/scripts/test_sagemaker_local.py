"""The command line of the local endpoint, as a process of its own."""

import asyncio
import signal
import sys

import boto3
import pytest

from scripts.running import ROOT, free_port
from scripts.sagemaker_local import arguments
from tests.client.hostile import Exchange
from tests.scripts.local_containers import REGION, http_container


def test_the_defaults_are_the_servers_port_and_the_real_one() -> None:
    options = arguments([])
    assert (options.container, options.port, options.http_port) == ("http://127.0.0.1:8000", 8443, 8081)
    assert (options.endpoint, options.https, options.all_binary) == ([], False, False)


def test_endpoints_have_names_and_containers() -> None:
    options = arguments(["--endpoint", "a=http://127.0.0.1:1", "--endpoint", "b-2=http://127.0.0.1:2"])
    assert options.endpoint == [("a", "http://127.0.0.1:1"), ("b-2", "http://127.0.0.1:2")]


@pytest.mark.parametrize("given", ["a", "=http://127.0.0.1:1", "a=https://127.0.0.1:1", "a b=http://127.0.0.1:1"])
def test_an_endpoint_that_is_none_is_refused(given: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        arguments(["--endpoint", given])
    assert "argument --endpoint" in capsys.readouterr().err


def test_the_command_says_how_to_reach_it_and_serves() -> None:
    http_port = free_port()

    async def container(exchange: Exchange) -> None:
        await exchange.answer("audio/wav", [b"RIFF"])

    async def scenario() -> None:
        async with http_container(container) as url:
            command = await asyncio.create_subprocess_exec(
                *(sys.executable, "-u", "scripts/sagemaker_local.py", "--container", url),
                *("--port", str(free_port()), "--http-port", str(http_port)),
                cwd=ROOT,
                stdout=asyncio.subprocess.PIPE,
            )
            assert command.stdout is not None
            try:
                said = (await command.stdout.readuntil(b"AWS_SECRET_ACCESS_KEY=test\n")).decode()
                assert f"endpoint_url=http://127.0.0.1:{http_port}\n" in said
                client = boto3.client(
                    "sagemaker-runtime",
                    endpoint_url=f"http://127.0.0.1:{http_port}",
                    region_name=REGION,
                    aws_access_key_id="test",
                    aws_secret_access_key="test",
                )
                answer = await asyncio.to_thread(client.invoke_endpoint, EndpointName="tts", Body=b"{}")
                assert answer["Body"].read() == b"RIFF"
            finally:
                command.send_signal(signal.SIGINT)
                assert await command.wait() == 0

    asyncio.run(scenario())
