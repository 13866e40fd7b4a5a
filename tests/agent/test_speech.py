"""Where the agent's speech comes from."""

import asyncio

import pytest

from agent.request import Request
from agent.settings import load_settings
from agent.speech import SpeechSource
from serve_app.access.keys import dump_key, new_key
from serve_app.engine.fake import FakeEngine
from serve_app.errors import BadRequest, Unauthorized
from serve_app.protocol.messages import SynthesisComplete
from tests.fakes import app_over
from tests.serving import served

HANG_S = 20


def source(endpoint, **environment):
    return SpeechSource(load_settings({"VOICE_AGENT_TTS_ENDPOINT": endpoint, **environment}, {}))


def test_a_server_that_asks_for_a_key_gets_the_settings_key_and_nobody_reads_it(tmp_path):
    key = new_key()
    (tmp_path / "keys").write_text(dump_key("agent", key))

    async def spoken(opened):
        async with asyncio.timeout(HANG_S), opened as session:
            await session.connect()
            await session.say("Hello there.")
            await session.close()
            return [event async for event in session]

    with served(app_over(FakeEngine(), access={"keys_file": tmp_path / "keys"})) as url:
        request = Request(prompt="Hello.")
        events = asyncio.run(spoken(source(url, VOICE_AGENT_TTS_API_KEY=key).open(request)))
        assert isinstance(events[-1], SynthesisComplete)
        with pytest.raises(Unauthorized):
            asyncio.run(spoken(source(url).open(request)))
    settings = load_settings({"VOICE_AGENT_TTS_ENDPOINT": url, "VOICE_AGENT_TTS_API_KEY": key}, {})
    assert key not in f"{settings!r} {settings}"


@pytest.mark.parametrize("endpoint", ["not a name", "-", "x" * 64])
def test_an_ill_formed_name_is_refused_at_the_start(endpoint):
    with pytest.raises(BadRequest, match="name"):
        source(endpoint)
