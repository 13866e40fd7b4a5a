"""The product's version. pyproject.toml says the same, as an image has the sources without the package's metadata."""

VERSION = "0.1.0"
