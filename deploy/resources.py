"""What a deployment consists of: one frozen dataclass a resource, as deploy/plan.py lists them and deploy/aws/ makes them."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Document = Mapping[str, Any]  # of IAM, as JSON


@dataclass(frozen=True)
class Role:
    name: str
    trust: Document
    policies: Mapping[str, Document]  # inline, by name


@dataclass(frozen=True)
class Bucket:
    name: str


@dataclass(frozen=True)
class LocalFile:
    """A file to store: its name below the prefix, where it lies here, and what it holds."""

    name: str
    path: Path
    sha256: str
    size_bytes: int


@dataclass(frozen=True)
class Files:
    """Objects below a prefix that is named by their content; nothing else may lie there."""

    bucket: str
    prefix: str  # ends in a slash
    files: tuple[LocalFile, ...]

    @property
    def uri(self) -> str:
        return f"s3://{self.bucket}/{self.prefix}"
