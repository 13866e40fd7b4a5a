"""Who asks, and how much of what one caller may have is left."""

from collections.abc import Mapping
from dataclasses import dataclass

from serve_app.access.allowance import UNBOUNDED, Allowance
from serve_app.access.keys import Key, KeyRing
from serve_app.errors import RateLimited, TooManySessions, Unauthorized


@dataclass(frozen=True, slots=True)
class Caller:
    """Whoever presented a key, or anybody where none is asked for.

    Attributes:
        allowance: shared by everybody with a key of the same name.
        max_sessions: open at a time under that name; None: no bound.
        max_requests: over HTTP, in hand at a time under that name; None: no bound.
    """

    key: Key | None
    allowance: Allowance
    max_sessions: int | None = None
    max_requests: int | None = None

    @property
    def name(self) -> str | None:
        return None if self.key is None else self.key.name

    @property
    def ids(self) -> Mapping[str, str]:
        """What a log line says of it."""
        return {} if self.key is None else {"key": self.key.name}

    def check_sessions(self, open_now: int) -> None:
        """Raises TooManySessions where `open_now` under this name are all that it may have."""
        if self.max_sessions is not None and open_now >= self.max_sessions:
            raise TooManySessions(f"this key has all its sessions open: {open_now}")

    def check_requests(self, in_hand: int) -> None:
        """Raises RateLimited where `in_hand` under this name are all that it may have."""
        if self.max_requests is not None and in_hand >= self.max_requests:
            raise RateLimited(f"this key has all its requests in hand: {in_hand}; retry when one of them is answered")


ANYBODY = Caller(None, UNBOUNDED)


class Callers:
    """The callers that the keys in force let in."""

    def __init__(
        self,
        keys: KeyRing,
        *,
        max_sessions: int | None = None,
        max_requests: int | None = None,
        characters_per_minute: int | None = None,
    ) -> None:
        """The bounds are of each name; see `Caller`."""
        self.keys = keys
        self._max_sessions, self._max_requests = max_sessions, max_requests
        self._characters_per_minute = characters_per_minute
        self._allowances: dict[str, Allowance] = {}

    def admit(self, presented: str | None) -> Caller:
        """Raises Unauthorized."""
        if presented is None:
            raise Unauthorized("this server asks for an API key: `Authorization: Bearer KEY`")
        key = self.keys.find(presented)
        if key is None:
            raise Unauthorized("this API key is not one of the server's")
        allowance = self._allowances.setdefault(key.name, Allowance(self._characters_per_minute))
        return Caller(key, allowance, self._max_sessions, self._max_requests)
