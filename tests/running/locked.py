"""The API keys of a stack that asks for them: a file as an operator would edit it, and clients that have a key."""

from pathlib import Path

from serve_app.access.keys import dump_key, new_key

KEY = new_key()
"""Of the tests themselves; it stays."""


def bearer(key: str) -> dict[str, str]:
    """The header of a request."""
    return {"Authorization": f"Bearer {key}"}


class KeysFile:
    """Has `KEY`, and whoever is written beside it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.write()

    def write(self, **keys: str) -> None:
        """Other names and their keys from now on."""
        self.path.write_text("".join(f"{dump_key(name, key)}\n" for name, key in {"tests": KEY, **keys}.items()))
