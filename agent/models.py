"""The language model: Amazon Bedrock, any other provider that Strands has, or the reader."""

import warnings
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from importlib import import_module
from threading import Event
from typing import Any

from botocore.config import Config
from strands.models import Model
from strands.models.bedrock import BedrockModel

from agent.reader import ReaderModel

CONNECT_TIMEOUT_S = 3
SILENCE_TIMEOUT_S = 30
"""Of a model between two pieces of its answer: a caller who hears nothing for so long has hung up."""


class _Latch(Event):
    """The cancel signal that a provider's thread polls; once set it stays set, whatever becomes of the agent's own."""

    def __init__(self, inner: Event | None) -> None:
        super().__init__()
        self._inner = inner

    def is_set(self) -> bool:
        """See `Event`."""
        if self._inner is not None and self._inner.is_set():
            self.set()
        return super().is_set()


class AnswerBrokeOff(Exception):
    """The model's answer ended before its end."""


class WatchfulBedrockModel(BedrockModel):
    """Bedrock, whose thread stops reading when nobody listens any more, and whose answers are whole or fail.

    Strands' own reads the answer to its end after a cancellation: the agent clears the signal that the thread polls.
    And it takes an answer that ends without its last events for a whole one.
    """

    async def stream(self, *args: Any, cancel_signal: Event | None = None, **kwargs: Any) -> AsyncGenerator[Any, None]:
        """See `BedrockModel.stream`. Raises AnswerBrokeOff."""
        latch, whole = _Latch(cancel_signal), False
        try:
            async with aclosing(super().stream(*args, cancel_signal=latch, **kwargs)) as events:
                async for event in events:
                    whole = whole or "messageStop" in event
                    yield event
            if not whole and not latch.is_set():
                raise AnswerBrokeOff
        finally:
            latch.set()


def build_model(provider: str, region: str | None, options: Mapping[str, Any]) -> Model:
    """The language model of a provider.

    Args:
        provider: `bedrock`, `reader`, or the name of a module in strands.models, such as `openai` or `ollama`.
        region: Bedrock's.
        options: what the provider's class takes, such as model_id, max_tokens, temperature, guardrail_id.
    Raises:
        ValueError: no such provider, its package is not installed, or it does not take these options.
    """
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("error", message="Invalid configuration parameters")  # Strands goes on without them
            if provider == "bedrock":
                return _bedrock(region, options)
            if provider == "reader":
                return ReaderModel(**options)
            return _provider_class(provider)(**options)
    except (TypeError, UserWarning) as exc:
        raise ValueError(f"the {provider} model does not take these options: {exc}") from exc


def _bedrock(region: str | None, options: Mapping[str, Any]) -> Model:
    if "model_id" not in options or not region:
        raise ValueError("Bedrock needs a model id and a region")
    config = Config(
        connect_timeout=CONNECT_TIMEOUT_S, read_timeout=SILENCE_TIMEOUT_S, retries={"total_max_attempts": 2}
    )
    return WatchfulBedrockModel(region_name=region, boto_client_config=config, **options)


def _provider_class(provider: str) -> type[Model]:
    try:
        module = import_module(f"strands.models.{provider}")
    except ImportError as exc:
        raise ValueError(f"there is no model provider {provider}, or its package is not installed: {exc.name}") from exc
    for value in vars(module).values():
        if isinstance(value, type) and issubclass(value, Model) and value.__module__ == module.__name__:
            return value
    raise ValueError(f"strands.models.{provider} is no model provider")
