"""Write Kokoro-82M and its voices into a folder, in the official layout, as plain files.

    uv run python scripts/fetch_weights.py --to DIR [--source auto|hub|packaged|FOLDER|s3://bucket/prefix]

The folder serves as `weights.source`, as an S3 prefix, as the content of a SageMaker model archive, and for the stock
`kokoro.KModel(config=..., model=...)`. A second run rewrites only what differs.
"""

import argparse
import filecmp
import shutil
import sys
from collections.abc import Callable, Mapping
from importlib import resources
from pathlib import Path

import torch
from torch import Tensor

from serve_app.config import SettingsError, load_settings
from serve_app.engine.checkpoint import PARTS, model_config, normed_names
from serve_app.engine.files import WeightsError, write_atomically
from serve_app.engine.sources import CONFIG_FILE, MODEL_FILE, VOICES_FOLDER
from serve_app.engine.weights import Weights, load_weights


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Write Kokoro-82M and its voices into a folder (official layout).")
    parser.add_argument("--to", required=True, type=Path, metavar="DIR", help="the folder; made where it is missing")
    parser.add_argument(
        "--source", default="auto", help="auto (default), hub, packaged, a folder, or s3://bucket/prefix"
    )
    options = parser.parse_args(arguments)
    try:
        settings = load_settings().weights  # KOKORO_WEIGHTS__CACHE_DIR
        weights = load_weights(settings.model_copy(update={"source": options.source}))
        written = write_folder(weights, options.to)
    except (WeightsError, SettingsError) as exc:
        print(exc, file=sys.stderr)
        return 1
    except OSError as exc:
        print(f"{options.to} could not be written ({exc.strerror or type(exc).__name__})", file=sys.stderr)
        return 1
    report(weights, options.to, written)
    return 0


def write_folder(weights: Weights, folder: Path) -> list[str]:
    """Make `folder` the official layout of `weights`: config.json, kokoro-v1_0.pth, voices/NAME.pt.

    Files that hold the right bytes are left alone; links are replaced by plain files; other voices are removed.

    Returns:
        The names that were written or removed.
    Raises:
        OSError.
    """
    origin = weights.folder
    names = [CONFIG_FILE, MODEL_FILE, *(f"{VOICES_FOLDER}/{name}.pt" for name in weights.voices.names)]
    if origin is not None and origin.resolve() == folder.resolve():
        raise OSError("it is the source itself")
    if (folder / VOICES_FOLDER).is_symlink():
        (folder / VOICES_FOLDER).unlink()
    changed = []
    for name in names:
        write = made(weights, name) if origin is None else copied(origin / name)
        if replace_if_different(folder / name, write):
            changed.append(name)
    for path in (folder / VOICES_FOLDER).glob("*.pt"):
        if path.stem not in weights.voices.names:
            path.unlink()
            changed.append(f"{VOICES_FOLDER}/{path.name}")
    return changed


def copied(origin: Path) -> Callable[[Path], None]:
    def write(part: Path) -> None:
        shutil.copyfile(origin, part)  # follows links: the hub's cache is made of them

    return write


def made(weights: Weights, name: str) -> Callable[[Path], None]:
    """A writer of one official file from weights that never were official files."""

    def write(part: Path) -> None:
        if name == CONFIG_FILE:
            part.write_bytes(resources.files("serve_app").joinpath("kokoro.json").read_bytes())
        elif name == MODEL_FILE:
            torch.save(official_parts(weights.state_dict), part)
        else:
            # clone: a row of a mapped file would be saved with all of its storage
            torch.save(weights.voices.pack(Path(name).stem).clone(), part)

    return write


def official_parts(state_dict: Mapping[str, Tensor]) -> dict[str, dict[str, Tensor]]:
    """The folded state dict as the five that the stock KModel loads, weight norm unfolded: weight = g * v / |v|."""
    parts: dict[str, dict[str, Tensor]] = {part: {} for part in PARTS}
    for name, tensor in state_dict.items():
        part, _, key = name.partition(".")
        if name not in normed_names():
            parts[part][key] = tensor.clone()
            continue
        # A filter that is all zero would be 0/0 = NaN: give it any direction, and the length 0.
        all_zero = tensor.flatten(1).abs().amax(1) == 0
        direction = tensor.clone()
        direction[all_zero] = 1e-3
        length = torch.norm_except_dim(direction, 2, 0)
        length[all_zero] = 0.0
        parts[part][f"{key}_g"], parts[part][f"{key}_v"] = length, direction
    # ALBERT's pooler: speech has no use for it, but the stock loader takes the whole part for damaged without.
    hidden = model_config()["plbert"]["hidden_size"]
    parts["bert"] |= {"pooler.weight": torch.zeros(hidden, hidden), "pooler.bias": torch.zeros(hidden)}
    return parts


def replace_if_different(path: Path, write: Callable[[Path], None]) -> bool:
    class Same(Exception):
        pass

    def write_unless_same(part: Path) -> None:
        write(part)
        if not path.is_symlink() and path.is_file() and filecmp.cmp(part, path, shallow=False):
            raise Same

    try:
        write_atomically(path, write_unless_same)
    except Same:
        return False
    return True


def report(weights: Weights, folder: Path, changed: list[str]) -> None:
    voices = [(folder / VOICES_FOLDER / f"{name}.pt").stat().st_size for name in weights.voices.names]
    print(f"{folder}: Kokoro-82M from {weights.source}")
    print(f"{(folder / CONFIG_FILE).stat().st_size:>13,} bytes  {CONFIG_FILE}")
    print(f"{(folder / MODEL_FILE).stat().st_size:>13,} bytes  {MODEL_FILE}")
    print(f"{sum(voices):>13,} bytes  {VOICES_FOLDER}/ ({len(voices)} files)")
    print(f"{len(changed)} files changed" if changed else "nothing to change")


if __name__ == "__main__":
    sys.exit(main())
