"""A model that reads a text out, at a language model's pace: for laptops without a cloud, for tests and comparisons."""

import asyncio
import re
from collections.abc import AsyncGenerator
from typing import Any

from strands.models import Model
from strands.types.event_loop import Usage
from strands.types.streaming import StreamEvent

SAMPLE = (
    "Good question, and here is how it works. "
    "While I am still writing this answer, every sentence that is finished goes straight to the speech engine, so you "
    "hear the beginning long before the end exists. "
    "Most voice agents wait until the whole answer is written, and their listeners sit in silence for several seconds, "
    "wondering whether anyone is there. "
    "I am only a plain reader, not a language model, so I say the same words every time, at the pace of a typical "
    "model. "
    "Connect a real model, and you will hear real answers just as soon as this one."
)

_TOKEN = re.compile(r"\s*\S{1,6}|\s+$")
"""About as long as a language model's tokens: a short word with the blank before it, or a part of a long one."""


class ReaderModel(Model):
    """A Strands model provider. It answers every prompt with the same text, whatever was asked.

    Args:
        text: what to read.
        tokens_per_second: the pace; 0 for all at once.
        first_token_s: how long it seems to think first.
    Raises:
        ValueError: a pace below 0, or no text.
    """

    def __init__(self, text: str = SAMPLE, tokens_per_second: float = 40.0, first_token_s: float = 0.0) -> None:
        if tokens_per_second < 0 or first_token_s < 0:
            raise ValueError("tokens_per_second and first_token_s must not be negative")
        if not text.strip():
            raise ValueError("the reader has no text to read")
        self._tokens = _TOKEN.findall(text)
        self._pace_s = 1 / tokens_per_second if tokens_per_second else 0.0
        self._first_token_s = first_token_s
        self._config: dict[str, Any] = {"model_id": "reader", "context_window_limit": 1_000_000}

    def update_config(self, **model_config: Any) -> None:
        """See `Model`."""
        self._config.update(model_config)

    def get_config(self) -> dict[str, Any]:
        """See `Model`."""
        return self._config

    def structured_output(
        self, output_model: Any, prompt: Any, system_prompt: str | None = None, **kwargs: Any
    ) -> AsyncGenerator[dict[str, Any], None]:
        """See `Model`. Raises NotImplementedError: it reads, it does not understand."""
        raise NotImplementedError("the reader model has no structured output")

    async def stream(self, *args: Any, **kwargs: Any) -> AsyncGenerator[StreamEvent, None]:
        """See `Model`."""
        loop = asyncio.get_running_loop()
        yield {"messageStart": {"role": "assistant"}}
        yield {"contentBlockStart": {"start": {}}}
        due_s = loop.time() + self._first_token_s
        for token in self._tokens:
            await asyncio.sleep(due_s - loop.time())  # at once where it is late; the pace holds over the whole text
            yield {"contentBlockDelta": {"delta": {"text": token}}}
            due_s += self._pace_s
        yield {"contentBlockStop": {}}
        yield {"messageStop": {"stopReason": "end_turn"}}
        usage = Usage(inputTokens=0, outputTokens=len(self._tokens), totalTokens=len(self._tokens))
        yield {"metadata": {"usage": usage, "metrics": {"latencyMs": 0}}}
