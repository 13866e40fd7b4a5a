"""Who gets as far as a route: keys from a file that may change, and the two gates in front of all routes."""

import asyncio
import json
import logging
import time
from collections.abc import Awaitable, Callable, Collection
from pathlib import Path

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from serve_app.access.callers import ANYBODY, Caller, Callers
from serve_app.access.denials import Denials
from serve_app.access.keys import BadKeys, KeyRing, parse_keys, presented_key
from serve_app.access.origins import may_talk
from serve_app.config import SettingsError
from serve_app.errors import ForbiddenOrigin, SpeechError, Unauthorized
from serve_app.metrics import REFUSALS, Recorder

log = logging.getLogger(__name__)

LOOKS_EVERY_S = 1.0
"""At the file of keys."""

OPEN_ROUTES = ("/", "/ping")
OPEN_FOLDER = "/page/"
"""What needs no key: load balancers ask /ping, and the page, which has no secret in it, is where a key is written."""

Refuse = Callable[[SpeechError, Scope, Receive, Send], Awaitable[None]]
"""Answers with an error before any route is asked, in the words of the API that the path belongs to."""

_CALLER = "serve_app.caller"


def caller_of(scope: Scope) -> Caller:
    """Whose request it is, as `KeyGate` has found."""
    caller: Caller = scope.get(_CALLER, ANYBODY)
    return caller


class KeysFile:
    """A file of keys, and what it said when it was last in order."""

    def __init__(self, path: Path) -> None:
        """Raises SettingsError: without keys there is nothing to start with."""
        self._path = path
        self._seen: bytes | None = None
        try:
            self._seen = path.read_bytes()
            self.keys = _parse(self._seen)
        except (OSError, BadKeys) as exc:
            raise SettingsError(f"access.keys_file, {path}, cannot be used: {_reason(exc)}") from exc

    async def watch(self, changed: Callable[[KeyRing], None]) -> None:
        """For ever: tell `changed` of the keys that a changed file has; one that is out of order changes nothing.

        Whatever fails on the way is logged once, and tried again at the next look: nobody would miss a watch that ends.
        """
        told, failing = self.keys, False
        while True:
            await asyncio.sleep(LOOKS_EVERY_S)
            try:
                await asyncio.to_thread(self.look)
                if self.keys is not told:
                    changed(self.keys)
                    told = self.keys
                    log.info("the file of API keys has changed: %d keys are in force", len(told))
                failing = False
            except Exception:
                if not failing:
                    log.exception("a change of the API keys may not be in force yet; it is tried again")
                failing = True

    def look(self) -> bool:
        """Read the file. Returns whether other keys are in force now."""
        try:
            content = self._path.read_bytes()
        except OSError as exc:
            content, problem = None, _reason(exc)
        if content == self._seen:
            return False
        self._seen = content
        try:
            if content is not None:
                self.keys = _parse(content)
                return True
        except BadKeys as exc:
            problem = str(exc)
        log.error("the file of API keys cannot be used, the keys before it stay in force: %s", problem)
        return False


class OriginGate:
    """Refuses what a web page of another host asks for: it would speak at the cost of whoever looks at that page."""

    def __init__(self, app: ASGIApp, allowed: Collection[str], refuse: Refuse, recorder: Recorder) -> None:
        self._app, self._refuse = app, refuse
        self._allowed = frozenset(origin.lower() for origin in allowed)
        self._denied = _Denied("origin", recorder)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "lifespan":
            headers = Headers(scope=scope)
            if not may_talk(headers.get("origin"), headers.get("host"), self._allowed):
                self._denied.count()
                error = ForbiddenOrigin("this server does not talk to web pages of that origin")
                await self._refuse(error, scope, receive, send)
                return
        await self._app(scope, receive, send)


class KeyGate:
    """Asks for a key, whatever the route, but for those that are open to everybody."""

    def __init__(self, app: ASGIApp, callers: Callers, refuse: Refuse, recorder: Recorder) -> None:
        self._app, self._callers, self._refuse = app, callers, refuse
        self._without_key = _Denied("unauthorized", recorder, key="none")
        self._with_another = _Denied("unauthorized", recorder, key="unknown")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "lifespan" and not _is_open(scope["path"]):
            presented = presented_key(Headers(scope=scope).get("authorization"), scope.get("subprotocols", ()))
            try:
                scope[_CALLER] = self._callers.admit(presented)
            except Unauthorized as exc:
                (self._without_key if presented is None else self._with_another).count()
                await self._refuse(exc, scope, receive, send)
                return
        await self._app(scope, receive, send)


class _Denied:
    """What is left of those whom a gate turns away: all of them in a metric, and seldom a line in the log.

    Nothing that they sent is in it: it could be a key of another server, or a key with a typing error.
    """

    def __init__(self, reason: str, recorder: Recorder, **more: str) -> None:
        """`reason`: in the metric and the line; `more`: in the line."""
        self._reason, self._recorder, self._denials = reason, recorder, Denials()
        self._line = {"event": "denied", "reason": reason, **more}

    def count(self) -> None:
        self._recorder.record(REFUSALS, reason=self._reason)
        if told := self._denials.count(time.monotonic()):
            log.warning("%s", json.dumps({**self._line, "count": told}))


def _is_open(path: str) -> bool:
    return path in OPEN_ROUTES or path.startswith(OPEN_FOLDER)


def _parse(content: bytes) -> KeyRing:
    try:
        return parse_keys(content.decode())
    except UnicodeDecodeError as exc:
        raise BadKeys("it is not text") from exc


def _reason(exc: OSError | BadKeys) -> str:
    return (exc.strerror or "it cannot be read") if isinstance(exc, OSError) else str(exc)
