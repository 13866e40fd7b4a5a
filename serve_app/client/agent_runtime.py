"""The voice agent on Bedrock AgentCore: InvokeAgentRuntime, its events as soon as they arrive."""

import hashlib
import json
import re
from collections.abc import Iterator
from contextlib import closing
from typing import Any, TypedDict, Unpack
from uuid import uuid4

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError, ConnectionClosedError, ReadTimeoutError
from urllib3.exceptions import HTTPError

from serve_app.client.agent_events import AgentAnswer, AgentEvent
from serve_app.client.errors import BrokenAnswer, UnexpectedAnswer, Unreachable, refusal
from serve_app.errors import SpeechError

CONNECT_TIMEOUT_S = 5.0
SILENCE_TIMEOUT_S = 120.0
"""Of an agent before its first event, a cold start included, and between two events."""
QUALIFIER = "DEFAULT"
"""The endpoint of a runtime that always leads to its newest version."""

_READ_BYTES = 65_536
_SESSION_ID = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9_-]{32,255}")


class Asked(TypedDict, total=False):
    """How to answer; the fields of the wire contract. What is left out is the agent's choice."""

    mode: str
    voice: str
    speed: float
    request_id: str


def runtime_session_id(name: str | None = None) -> str:
    """An id that AgentCore takes, which is 33 to 256 characters long.

    Args:
        name: of the conversation. One that AgentCore takes stays as it is; any other, such as a user's name, becomes an
            id that is the same for the same name; None is a conversation of its own.
    """
    if name is None:
        return str(uuid4())
    return name if _SESSION_ID.fullmatch(name) else f"session-{hashlib.sha256(name.encode()).hexdigest()}"


class AgentRuntimeClient:
    """One conversation with a deployed agent; every turn goes to the same session, which remembers those before.

    Blocks; one turn at a time.
    """

    def __init__(self, arn: str, *, region: str | None = None, session: str | None = None, runtime: Any = None) -> None:
        """`arn`: of the agent runtime. `session`: see `runtime_session_id`. `runtime`: a boto3 `bedrock-agentcore`
        client instead of one from the environment.

        Raises BotoCoreError, such as for a missing region.
        """
        self.session_id = runtime_session_id(session)
        self._arn = arn
        self._runtime = runtime or boto3.client("bedrock-agentcore", region_name=region, config=patient())

    def invoke(self, prompt: str, **asked: Unpack[Asked]) -> Iterator[AgentEvent]:
        """One turn: the events up to AgentEnd, each as soon as it is there. Closing the generator hangs up.

        Raises:
            SpeechError: of the agent, or one of serve_app/client/errors.py. Nothing is asked twice.
        """
        try:
            answer = self._runtime.invoke_agent_runtime(
                agentRuntimeArn=self._arn,
                qualifier=QUALIFIER,
                runtimeSessionId=self.session_id,
                contentType="application/json",
                accept="text/event-stream",
                payload=json.dumps({"prompt": prompt, **asked}).encode(),
            )
        except (ClientError, BotoCoreError) as exc:
            raise _failure(exc) from exc
        with closing(answer["response"]) as body:
            if not answer.get("contentType", "").startswith("text/event-stream"):
                raise refusal(answer.get("statusCode", 200), body.read())
            events = AgentAnswer()
            for piece in _pieces(body):
                yield from events.feed(piece)
            events.finish()

    def close(self) -> None:
        """Close idle connections. The session goes on until AgentCore finds it idle."""
        self._runtime.close()


def patient() -> Config:
    """Of the boto3 client: an answer may be long in coming, and a prompt is not sent twice."""
    return Config(connect_timeout=CONNECT_TIMEOUT_S, read_timeout=SILENCE_TIMEOUT_S, retries={"total_max_attempts": 1})


def _pieces(body: Any) -> Iterator[bytes]:
    """What arrives, when it arrives. botocore's own iterators wait until a chunk of a fixed size is full."""
    try:
        while piece := body._raw_stream.read1(_READ_BYTES):
            yield piece
    except (HTTPError, OSError) as exc:
        raise BrokenAnswer(f"the connection to the agent broke ({type(exc).__name__})") from exc


def _failure(exc: ClientError | BotoCoreError) -> SpeechError:
    if isinstance(exc, ClientError):
        error = exc.response.get("Error", {})
        return UnexpectedAnswer(f"AgentCore refuses ({error.get('Code', 'no code')}): {error.get('Message', '')}")
    if isinstance(exc, ReadTimeoutError | ConnectionClosedError):
        return BrokenAnswer("the agent hung up before it answered")
    return Unreachable(f"AgentCore cannot be reached: {exc}")
