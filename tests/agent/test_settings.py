"""The environment's settings, and over them the command line's."""

import pytest

from agent.settings import load_settings


def test_the_command_line_wins_over_the_environment():
    environment = {"VOICE_AGENT_TTS_ENDPOINT": "tts-1", "VOICE_AGENT_BEDROCK_MODEL_ID": "a", "AWS_REGION": "eu-west-1"}
    settings = load_settings(environment, {"bedrock_model_id": "b", "region": None})
    assert (settings.provider, settings.options_of_model(), settings.region, settings.tts_endpoint) == (
        "bedrock",
        {"model_id": "b"},
        "eu-west-1",
        "tts-1",
    )


def test_local_needs_nothing_else():
    settings = load_settings({}, {}, local=True)
    assert (settings.provider, settings.tts_endpoint) == ("reader", "http://127.0.0.1:8000")
    assert "http://127.0.0.1:8000" in settings.cors_origins


def test_a_model_that_is_named_is_used_locally_too():
    assert load_settings({}, {"bedrock_model_id": "m"}, local=True).provider == "bedrock"
    assert load_settings({}, {"provider": "ollama"}, local=True).provider == "ollama"


def test_lists_and_objects_are_read_from_the_environment():
    environment = {
        "VOICE_AGENT_TTS_ENDPOINT": "tts-1",
        "VOICE_AGENT_TOOLS": "agent.tools:current_time, mine:tool",
        "VOICE_AGENT_MODEL_OPTIONS": '{"max_tokens": 300, "guardrail_id": "g"}',
    }
    settings = load_settings(environment, {})
    assert settings.tools == ("agent.tools:current_time", "mine:tool")
    assert settings.options_of_model() == {"max_tokens": 300, "guardrail_id": "g"}


@pytest.mark.parametrize(
    ("environment", "word"),
    [
        ({}, "tts_endpoint"),
        ({"VOICE_AGENT_TTS_ENDPOINT": "t", "VOICE_AGENT_TTS_ENDPIONT": "t"}, "tts_endpiont"),
        ({"VOICE_AGENT_TTS_ENDPOINT": "t", "VOICE_AGENT_MODEL_OPTIONS": "{"}, "model_options"),
        ({"VOICE_AGENT_TTS_ENDPOINT": "t", "VOICE_AGENT_MODEL_OPTIONS": "[1]"}, "model_options"),
        ({"VOICE_AGENT_TTS_ENDPOINT": "t", "VOICE_AGENT_MAX_MESSAGES": "many"}, "max_messages"),
    ],
)
def test_a_wrong_setting_is_refused_by_name(environment, word):
    with pytest.raises(ValueError, match=word):
        load_settings(environment, {})
