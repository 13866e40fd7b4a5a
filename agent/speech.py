"""Where an answer's speech comes from: a server at an address, or a SageMaker endpoint by its name."""

import re
from contextlib import AbstractAsyncContextManager

from agent.request import Request
from agent.settings import AgentSettings
from serve_app.client.renewing import RenewingSession
from serve_app.client.session import SessionClient
from serve_app.client.websocket import WebSocketClient
from serve_app.errors import BadRequest

_ENDPOINT_NAME = re.compile(r"[a-zA-Z0-9](-*[a-zA-Z0-9]){0,62}")


class SpeechSource:
    """Opens speech sessions as the settings say. Raises ValueError for a bad address."""

    def __init__(self, settings: AgentSettings) -> None:
        self._settings = settings
        self._default = self._client(settings.tts_endpoint)

    def open(self, request: Request) -> AbstractAsyncContextManager[RenewingSession]:
        """A session for one answer; not connected yet. Raises BadRequest for an endpoint that may not be asked."""
        name = request.endpoint
        if name is None or name == self._settings.tts_endpoint:
            client = self._default
        elif _is_address(name) or _is_address(self._settings.tts_endpoint):
            # An address from a caller would have the agent connect to wherever the caller likes.
            raise BadRequest("endpoint must be the one that the agent is set to use")
        else:
            client = self._client(name)
        return RenewingSession(client, request.speech_options())

    def _client(self, endpoint: str) -> SessionClient:
        if _is_address(endpoint):
            key = self._settings.tts_api_key
            return WebSocketClient(endpoint, None if key is None else key.get_secret_value())
        if not _ENDPOINT_NAME.fullmatch(endpoint):
            raise BadRequest("an endpoint's name has letters, digits and hyphens, at most 63")
        from serve_app.client.bidirectional import BidirectionalClient  # AWS's client takes a second to import

        settings = self._settings
        return BidirectionalClient(endpoint, region=settings.region, endpoint_uri=settings.tts_endpoint_uri)


def _is_address(endpoint: str) -> bool:
    return "://" in endpoint
