"""Make an API key: `python -m serve_app.access NAME FILE`. A running server takes it up within seconds."""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from serve_app.access.keys import BadKeys, dump_key, new_key, parse_keys


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a new key, once, and append its hash to the file; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m serve_app.access",
        description="Make an API key. It is printed here and nowhere else: the file gets its SHA-256 hash. To take a "
        "key back, delete its line; to change one without a gap, make a second one under the same name first.",
    )
    parser.add_argument("name", help="whom it is for, as the log will say")
    parser.add_argument("file", type=Path, help="that the setting access.keys_file names; made if it is not there")
    args = parser.parse_args(arguments)
    key = new_key()
    try:
        append_line(args.file, dump_key(args.name, key))
    except BadKeys as exc:
        parser.error(str(exc))
    except OSError as exc:
        parser.error(f"{args.file} cannot be written: {exc.strerror}")
    print(key)
    print(f"for {args.name}; this key is shown once, {args.file} has its hash", file=sys.stderr)
    return 0


def append_line(file: Path, line: str) -> None:
    """Add a key to a file; a new one is for its owner alone. Raises BadKeys: the file has other things in it."""
    before = file.read_text() if file.exists() else ""
    gap = "\n" if before and not before.endswith("\n") else ""
    parse_keys(f"{before}{gap}{line}\n")
    with open(os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600), "w") as opened:
        opened.write(f"{gap}{line}\n")


if __name__ == "__main__":
    sys.exit(main())
