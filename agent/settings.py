"""The agent's settings: the environment's, and over them those of the command line. Nothing else reads either."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, SecretStr, ValidationError

ENVIRONMENT = "VOICE_AGENT_"

SYSTEM_PROMPT = (
    "You are speaking: every word you write is read aloud as you write it. Talk the way people talk. "
    "Make your first sentence short, a few words that answer or lead in, and keep the others short too. "
    "Never use markdown, lists, headings, tables, emoji, links or code. "
    "Write out numbers, units, symbols and abbreviations where that is how they are said. "
    "If you need to use a tool, say so first in half a sentence."
)


def _decoded(value: object) -> object:
    return json.loads(value) if isinstance(value, str) else value


def _listed(value: object) -> object:
    return tuple(part.strip() for part in value.split(",") if part.strip()) if isinstance(value, str) else value


Names = Annotated[tuple[str, ...], BeforeValidator(_listed)]


class AgentSettings(BaseModel):
    """Every setting. In the environment the names are in capitals and begin with VOICE_AGENT_.

    Attributes:
        provider: of the language model; see `agent.models.build_model`.
        bedrock_model_id: the model of provider `bedrock`: a model id or an inference profile.
        region: of AWS, for Bedrock and SageMaker.
        model_options: what else the provider takes, as a JSON object: max_tokens, temperature, guardrail_id ...
        tts_endpoint: where speech comes from: the name of a SageMaker endpoint, or http://HOST:PORT of a server.
        tts_api_key: of a server at an address, where it asks for one; SageMaker asks for AWS's credentials instead.
        tts_endpoint_uri: of the SageMaker runtime itself, instead of the region's; for a local one.
        system_prompt: what the model is told first.
        tools: that the model may use, as Strands names them: MODULE:FUNCTION.
        filler: a sentence that is said while a tool runs; none if empty.
        max_conversations: that this process remembers.
        max_messages: of a conversation that the model is told.
        cors_origins: of pages that may talk to the agent from a browser.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=())

    provider: str = "bedrock"
    bedrock_model_id: str | None = None
    region: str | None = None
    model_options: Annotated[dict[str, Any], BeforeValidator(_decoded)] = Field(default_factory=dict)
    tts_endpoint: str = Field(min_length=1)
    tts_api_key: SecretStr | None = None
    tts_endpoint_uri: str | None = None
    system_prompt: str = SYSTEM_PROMPT
    tools: Names = ()
    filler: str = ""
    max_conversations: int = Field(1000, ge=1)
    max_messages: int = Field(40, ge=2)
    cors_origins: Names = ()

    def options_of_model(self) -> dict[str, Any]:
        """What the provider's class is given."""
        named = {} if self.bedrock_model_id is None else {"model_id": self.bedrock_model_id}
        return {**self.model_options, **named}


LOCAL: dict[str, Any] = {
    "provider": "reader",
    "tts_endpoint": "http://127.0.0.1:8000",
    "cors_origins": ("http://127.0.0.1:8000", "http://localhost:8000"),
}
"""The whole chain on one machine, without a cloud: against `serve run configs/local.yaml`."""


def load_settings(environment: Mapping[str, str], given: Mapping[str, Any], local: bool = False) -> AgentSettings:
    """Settings from the environment and the command line, in that order.

    `AWS_REGION` and `AWS_DEFAULT_REGION` stand in for a missing region. Raises ValueError with a sentence a setting.
    """
    named = {
        name.removeprefix(ENVIRONMENT).lower(): value
        for name, value in environment.items()
        if name.startswith(ENVIRONMENT)
    }
    region = environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION")
    fields = {
        "region": region,
        **(LOCAL if local else {}),
        **named,
        **{name: value for name, value in given.items() if value is not None},
    }
    if fields.get("bedrock_model_id") and "provider" not in {**named, **given}:
        fields["provider"] = "bedrock"
    try:
        return AgentSettings.model_validate(fields)
    except (ValidationError, json.JSONDecodeError) as exc:
        raise ValueError(_sentences(exc)) from exc


def _sentences(exc: ValidationError | json.JSONDecodeError) -> str:
    if isinstance(exc, json.JSONDecodeError):
        return f"model_options is not JSON: {exc}"
    return "; ".join(
        f"{'.'.join(str(part) for part in error['loc'])}: {error['msg']}"
        for error in exc.errors(include_url=False, include_input=False)
    )


def read_text(path: Path) -> str:
    """A text file such as one for the reader. Raises ValueError."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as exc:
        raise ValueError(f"{path.name} cannot be read as text") from exc
