"""Where a server is, and when to ask it again."""

from ipaddress import ip_address
from urllib.parse import urlsplit, urlunsplit

ATTEMPTS = 3
MAX_WAIT_S = 10.0
"""A server that wants a longer pause than this is not asked again: somebody waits to hear something."""

_SOCKET_SCHEMES = {"http": "ws", "https": "wss", "ws": "ws", "wss": "wss"}
_HTTP_SCHEMES = {"http": "http", "https": "https", "ws": "http", "wss": "https"}


def http_url(server: str, route: str) -> str:
    """The address of a route. `server` is http://HOST:PORT or ws://HOST:PORT, maybe with a path. Raises ValueError."""
    return _url(server, route, _HTTP_SCHEMES)


def socket_url(server: str, route: str) -> str:
    """The address of a WebSocket route; see `http_url`."""
    return _url(server, route, _SOCKET_SCHEMES)


def is_loopback(url: str) -> bool:
    """Whether a server is on this machine, where no proxy of the environment can reach it."""
    host = urlsplit(url).hostname or ""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def authorization(key: str | None) -> dict[str, str]:
    """The header that presents an API key, if there is one. Raises ValueError: no header can carry it."""
    if key is None:
        return {}
    if not key.isascii() or not key.isprintable() or not key or " " in key:
        raise ValueError("an API key has no blanks, line ends or other than ASCII characters")
    return {"Authorization": f"Bearer {key}"}


def wait_before_retry_s(attempt: int, status: int, retry_after: str | None) -> float | None:
    """How long to wait after a refusal before the same request is made again; None: give up.

    Args:
        attempt: which one was refused, from 1.
        retry_after: that header; a calendar date in it counts as too long.
    """
    if attempt >= ATTEMPTS or status != 503 or retry_after is None:
        return None
    if not (retry_after.isascii() and retry_after.isdigit()) or len(retry_after) > 4 or float(retry_after) > MAX_WAIT_S:
        return None
    return float(retry_after)


def _url(server: str, route: str, schemes: dict[str, str]) -> str:
    parts = urlsplit(server)
    _ = parts.port  # raises ValueError
    if parts.scheme not in schemes or not parts.hostname:
        raise ValueError("the address of a server looks like http://127.0.0.1:8000")
    return urlunsplit((schemes[parts.scheme], parts.netloc, parts.path.rstrip("/") + route, "", ""))
