"""GET / and /page/NAME: the page on which a person hears the server, from files inside the package."""

import hashlib
from dataclasses import dataclass
from importlib.resources import files
from pathlib import PurePath

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

INDEX = "index.html"

MEDIA_TYPES = {".css": "text/css", ".html": "text/html", ".js": "text/javascript", ".svg": "image/svg+xml"}

POLICY = "; ".join(
    (
        "default-src 'self'",
        # The agent runs elsewhere: beside this server on the listener's own machine, at whatever port, or behind TLS,
        # where the name in its certificate tells who it is. Plain http to other machines stays closed.
        "connect-src 'self' http://127.0.0.1:* http://localhost:* https:",
        "base-uri 'none'",
        "form-action 'none'",
        "object-src 'none'",
    )
)

HEADERS = {
    # Ask every time whether it is still the same: a page and a server of different versions would not fit.
    "Cache-Control": "no-cache",
    "Content-Security-Policy": POLICY,
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


@dataclass(frozen=True, slots=True)
class _File:
    content: bytes
    media_type: str
    etag: str


def routes() -> list[Route]:
    """The page's routes. All of it is in memory, by name: no request ever reaches a path."""
    stored = {entry.name: _load(entry.name, entry.read_bytes()) for entry in (files("serve_app") / "page").iterdir()}

    async def index(request: Request) -> Response:
        return _answer(request, stored[INDEX])

    async def part(request: Request) -> Response:
        file = stored.get(request.path_params["name"])
        if file is None:
            raise HTTPException(404)
        return _answer(request, file)

    return [Route("/", index, methods=["GET"]), Route("/page/{name}", part, methods=["GET"])]


def _load(name: str, content: bytes) -> _File:
    return _File(content, MEDIA_TYPES[PurePath(name).suffix], f'"{hashlib.sha256(content).hexdigest()[:32]}"')


def _answer(request: Request, file: _File) -> Response:
    headers = {**HEADERS, "ETag": file.etag}
    known = {tag.strip().removeprefix("W/") for tag in request.headers.get("if-none-match", "").split(",")}
    if known & {file.etag, "*"}:
        return Response(status_code=304, headers=headers)
    if request.method == "HEAD":
        return Response(headers={**headers, "Content-Length": str(len(file.content))}, media_type=file.media_type)
    return Response(file.content, headers=headers, media_type=file.media_type)
