"""What the commands of deploy/ have in common at the terminal: exit status, results, asking before they remove."""

import argparse
import json
import sys
from collections.abc import Sequence
from typing import Any

from deploy.errors import DeployError

_OF_THE_EXTRA = {"aws_sdk_sagemaker_runtime_http2", "awscrt", "boto3", "botocore", "sagemaker"}


def run_command(options: argparse.Namespace) -> int:
    """Run the subcommand that was chosen, `options.run`, and return the exit status. What stops it is one sentence."""
    try:
        status: int = options.run(options)
        return status
    except DeployError as exc:
        print(f"{exc}.", file=sys.stderr)
        return 1
    except ModuleNotFoundError as exc:
        if (exc.name or "").partition(".")[0] not in _OF_THE_EXTRA:
            raise
        print(f"{exc.name} is not installed: `uv sync --extra deploy`.", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted; the same command goes on from what is there.", file=sys.stderr)
        return 130


def print_json(value: Any) -> None:
    """A result for machines."""
    print(json.dumps(value, indent=2))


def confirm_removal(name: str, where: str, there: Sequence[str]) -> None:
    """Ask. Raises DeployError: not confirmed."""
    if not sys.stdin.isatty():
        raise DeployError("nothing was removed: there is no terminal to ask at, so give --yes")
    print(f"In {where}, this removes:", *there, sep="\n  ", file=sys.stderr)
    print(f"Type {name} to remove it: ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip() != name:
        raise DeployError("nothing was removed")
