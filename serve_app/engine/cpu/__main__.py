"""Compile the kernels ahead, beside their source, for machines that have no compiler:

    python -m serve_app.engine.cpu

Compiles for every processor of this machine's kind, whichever this one is; the best that runs is chosen at start.
"""

import platform
import shutil
import sys

from serve_app.engine.cpu.library import TARGETS, built_ahead, compile_kernels


def main() -> None:
    compiler = shutil.which("g++")
    if compiler is None:
        sys.exit("g++ is not installed")
    for target in TARGETS:
        if target.machine == platform.machine():
            compile_kernels(compiler, target, built_ahead(target))
            print(built_ahead(target))


if __name__ == "__main__":
    main()
