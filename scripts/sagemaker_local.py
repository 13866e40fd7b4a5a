"""Speak SageMaker Runtime on loopback in front of a container: `uv run python scripts/sagemaker_local.py --help`.

How to point the AWS SDKs at it, and what a test against it proves, is in docs/sagemaker-local.md.
"""

import argparse
import asyncio
import logging
import re
from collections.abc import Sequence

from scripts.local_endpoint.endpoint import DEFAULT_NAME, IN_SERVICE_TIMEOUT_S, LocalEndpoint, local_endpoint

DEFAULT_CONTAINER = "http://127.0.0.1:8000"
HTTP_PORT, H2_PORT = 8081, 8443  # the second is the real one


def arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line. Exits with a sentence for a person when it makes no sense."""
    parser = argparse.ArgumentParser(
        description="A SageMaker Runtime endpoint on this machine, in front of any container on a port."
    )
    parser.add_argument(
        "--container",
        default=DEFAULT_CONTAINER,
        type=_url,
        metavar="URL",
        help=f'the container of the endpoint "{DEFAULT_NAME}" (default %(default)s)',
    )
    parser.add_argument(
        "--endpoint",
        action="append",
        default=[],
        type=_named,
        metavar="NAME=URL",
        help="another endpoint and its container; may be given again",
    )
    parser.add_argument("--port", type=int, default=H2_PORT, help="of HTTP/2 over TLS (default %(default)s)")
    parser.add_argument("--http-port", type=int, default=HTTP_PORT, help="of HTTP/1.1 (default %(default)s)")
    parser.add_argument("--https", action="store_true", help="TLS for HTTP/1.1 too, with the same certificate")
    parser.add_argument(
        "--all-binary",
        action="store_true",
        help="deliver every part as a binary frame, as if its caller had set no DataType",
    )
    parser.add_argument("--seed", type=int, default=0, help="decides where response streams are cut")
    return parser.parse_args(given)


def _url(text: str) -> str:
    if not text.startswith("http://"):
        raise argparse.ArgumentTypeError(f"{text!r} is not http://HOST:PORT; containers speak no TLS")
    return text


def _named(text: str) -> tuple[str, str]:
    name, _, url = text.partition("=")
    if not re.fullmatch("[a-zA-Z0-9](-*[a-zA-Z0-9]){0,62}", name):
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=URL; a name is letters, digits and single hyphens")
    return name, _url(url)


def greeting(endpoint: LocalEndpoint, names: Sequence[str]) -> str:
    """What a person needs to point an SDK here."""
    return "\n".join(
        (
            f"in service: {', '.join(names)}",
            f"InvokeEndpoint, ...WithResponseStream   endpoint_url={endpoint.http_url}",
            f"...WithBidirectionalStream              endpoint_uri={endpoint.h2_url}",
            f"export SSL_CERT_FILE={endpoint.certificate}",
            f"export AWS_ACCESS_KEY_ID={endpoint.credentials.access_key} "
            f"AWS_SECRET_ACCESS_KEY={endpoint.credentials.secret_key}",
        )
    )


async def serve(options: argparse.Namespace) -> None:
    """Run until cancelled."""
    containers = {DEFAULT_NAME: options.container, **dict(options.endpoint)}
    print(f"waiting for /ping of {', '.join(containers.values())} (at most {IN_SERVICE_TIMEOUT_S:g} s)", flush=True)
    async with local_endpoint(
        containers,
        http_port=options.http_port,
        h2_port=options.port,
        https=options.https,
        all_binary=options.all_binary,
        seed=options.seed,
    ) as endpoint:
        print(greeting(endpoint, list(containers)), flush=True)
        await asyncio.Event().wait()


def main() -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    for chatty in ("httpx", "uvicorn"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
    try:
        asyncio.run(serve(arguments()))
    except KeyboardInterrupt:
        pass
    except TimeoutError:
        raise SystemExit("a container did not answer /ping with 200 in time") from None
    except OSError as exc:
        raise SystemExit(f"cannot listen: {exc}; choose other ports with --port and --http-port") from exc


if __name__ == "__main__":
    main()
