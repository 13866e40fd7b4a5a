"""Which web pages a browser may let talk to this server."""

from collections.abc import Collection

_DEFAULT_PORTS = {"http": ":80", "https": ":443"}


def may_talk(origin: str | None, host: str | None, allowed: Collection[str]) -> bool:
    """Whether a request is from no page, from one of the server's own host, or from one of the `allowed` origins.

    Only browsers send an Origin, and no page can change it. A page without one of its own (a file, a sandboxed frame)
    says `null`, and is refused. The scheme of the server itself is not known here: a proxy may have taken off its TLS.

    Args:
        host: the header: what the client takes for this server's name, with its port where that is not the default.
        allowed: such as `https://app.example.com`, in lower case.
    """
    if origin is None:
        return True
    origin = origin.lower()
    scheme, _, authority = origin.partition("://")
    if origin in allowed:
        return True
    if scheme not in _DEFAULT_PORTS or host is None:
        return False
    return authority == host.lower().removesuffix(_DEFAULT_PORTS[scheme])
