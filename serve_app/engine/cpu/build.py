"""The kernels' compilation: for which processors, with which flags, and where a library built ahead stands.

The standard library alone, so that an image can be built in a stage that holds a compiler and no packages.
"""

import hashlib
import platform
import subprocess
from dataclasses import dataclass
from pathlib import Path

SOURCE = Path(__file__).with_name("kernels.cpp")
FLAGS = ("-std=c++17", "-O3", "-fPIC", "-shared", "-fopenmp")
_COMPILE_LIMIT_S = 120


@dataclass(frozen=True, slots=True)
class Target:
    """A kind of processor.

    Attributes:
        features: what it must have, as /proc/cpuinfo spells it.
        narrow: it multiplies bfloat16.
    """

    name: str
    machine: str
    features: frozenset[str]
    flags: tuple[str, ...]
    narrow: bool = False


_AVX2 = frozenset({"avx2", "bmi1", "bmi2", "f16c", "fma", "movbe"})
_AVX512 = _AVX2 | {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}
TARGETS = (
    Target("avx512-bf16", "x86_64", _AVX512 | {"avx512_bf16"}, ("-march=x86-64-v4", "-mavx512bf16"), narrow=True),
    Target("avx512", "x86_64", _AVX512, ("-march=x86-64-v4",)),
    Target("avx2", "x86_64", _AVX2, ("-march=x86-64-v3",)),
    Target("neon", "aarch64", frozenset(), ()),
)
"""Best first."""


def supported_targets(machine: str | None = None, cpuinfo: Path = Path("/proc/cpuinfo")) -> list[Target]:
    """Those that this processor can run, best first; none on unknown kinds."""
    machine = machine or platform.machine()
    try:
        lines = cpuinfo.read_text().splitlines()
    except OSError:
        return []
    features: set[str] = set()
    for line in lines:
        name, _, value = line.partition(":")
        if name.strip() == "flags":
            features = set(value.split())
            break
    return [target for target in TARGETS if target.machine == machine and target.features <= features]


def built_ahead(target: Target) -> Path:
    """Where a library stands that was compiled before, for machines without a compiler."""
    return SOURCE.parent / f"kernels-{target.name}-{digest(SOURCE.read_bytes())}.so"


def compile_kernels(compiler: str, target: Target, to: Path) -> None:
    """Raises CalledProcessError, with what the compiler said."""
    command = [compiler, *FLAGS, *target.flags, "-o", str(to), str(SOURCE)]
    subprocess.run(command, capture_output=True, text=True, check=True, timeout=_COMPILE_LIMIT_S)


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]
