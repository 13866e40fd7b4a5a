"""Compile the kernels ahead for machines that have no compiler, beside their source or into a folder:

    python -m serve_app.engine.cpu [FOLDER]

Compiles for every processor of this machine's kind, whichever this one is; the best that runs is chosen at start.
"""

import platform
import shutil
import sys
from pathlib import Path

from serve_app.engine.cpu.build import SOURCE, TARGETS, built_ahead, compile_kernels


def main(folder: Path = SOURCE.parent) -> None:
    folder.mkdir(exist_ok=True)
    compiler = shutil.which("g++")
    if compiler is None:
        sys.exit("g++ is not installed")
    for target in TARGETS:
        if target.machine == platform.machine():
            library = folder / built_ahead(target).name
            compile_kernels(compiler, target, library)
            print(library)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:2]))
