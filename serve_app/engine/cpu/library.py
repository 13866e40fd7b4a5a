"""The kernels as a shared library: found or compiled for this processor, loaded, and called with checked tensors."""

import ctypes
import logging
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from serve_app.config import user_cache_folder
from serve_app.engine.cpu import build
from serve_app.engine.cpu.build import Target, built_ahead, digest
from serve_app.engine.cpu.packing import Packed
from serve_app.engine.files import locked, write_atomically

log = logging.getLogger(__name__)

_COMPILERS = ("g++", "c++")

_POINTER, _INTEGER, _FLOAT = ctypes.c_void_p, ctypes.c_int64, ctypes.c_float
_CONVOLUTION_FIELDS: list[tuple[str, Any]] = [
    ("input", _POINTER),
    *[(name, _INTEGER) for name in ("in_stride", "rows", "channels")],
    *[(name, _POINTER) for name in ("in_sums", "scale", "shift")],
    ("epsilon", ctypes.c_double),
    ("in_gain", _FLOAT),
    ("alpha", _POINTER),
    ("slope", _FLOAT),
    *[(name, _POINTER) for name in ("weights", "bias")],
    *[(name, _INTEGER) for name in ("outputs", "taps", "dilation", "left", "narrow", "out_rows")],
    ("addend", _POINTER),
    ("addend_stride", _INTEGER),
    ("second_addend", _POINTER),
    ("second_stride", _INTEGER),
    ("gain", _FLOAT),
    ("out", _POINTER),
    ("out_stride", _INTEGER),
    ("out_sums", _POINTER),
    ("threads", _INTEGER),
]


class _Convolution(ctypes.Structure):
    """`Convolution` of kernels.cpp, field by field."""

    _fields_ = _CONVOLUTION_FIELDS


@dataclass(frozen=True, slots=True, eq=False)
class Norm:
    """An AdaIN in front of a convolution.

    Attributes:
        sums: float64 [2, C]: of the input and its squares over all rows.
        scale, shift: float32 [C].
    """

    sums: Tensor
    scale: Tensor
    shift: Tensor
    epsilon: float


class Kernels:
    """A loaded library.

    Raises:
        OSError: it can't be loaded, or isn't of this version.
    """

    def __init__(self, path: Path) -> None:
        self._library = ctypes.CDLL(str(path))
        for name in ("kokoro_panel", "kokoro_convolution_bytes", "kokoro_probe"):
            getattr(self._library, name).restype = ctypes.c_int64
        self._library.kokoro_probe.argtypes = [ctypes.c_int64, ctypes.c_int64]
        if self._library.kokoro_convolution_bytes() != ctypes.sizeof(_Convolution):
            raise OSError(f"{path} is of another version")
        self.panel: int = self._library.kokoro_panel()
        self._library.kokoro_convolve.restype = None
        self._library.kokoro_convolve.argtypes = [ctypes.POINTER(_Convolution)]
        self._library.kokoro_multiply.restype = None
        self._library.kokoro_multiply.argtypes = [
            *(_POINTER, _INTEGER, _INTEGER, _INTEGER),
            *(_POINTER, _POINTER, _INTEGER),
            *(_POINTER, _INTEGER, _INTEGER),
        ]
        self._library.kokoro_add_and_sum.restype = None
        self._library.kokoro_add_and_sum.argtypes = [
            ctypes.c_void_p,
            ctypes.c_int64,
            ctypes.c_void_p,
            *[ctypes.c_int64] * 3,
            ctypes.c_void_p,
            ctypes.c_int64,
        ]

    def convolve(
        self,
        x: Tensor,
        weights: Packed,
        out: Tensor,
        *,
        norm: Norm | None = None,
        in_gain: float = 1.0,
        alpha: Tensor | None = None,
        slope: float = 1.0,
        dilation: int = 1,
        left: int | None = None,
        addends: Sequence[Tensor] = (),
        gain: float = 1.0,
        sums: Tensor | None = None,
    ) -> None:
        """out = (convolution of the activated, normed x + bias + addends) * gain, over time-major tensors.

        Args:
            x: [rows, C].
            out: [out rows, O]; not x, but may be one of the addends.
            in_gain: what x is multiplied with where there is no norm.
            alpha: [C], frequencies of Snake; without it the activation is leaky with `slope`, by default none.
            left: rows of zeros before the first; by default as many as centre the filter.
            addends: at most two, shaped as `out`.
            sums: float64 [2, O], is given the sums over time of `out` and its squares.
        """
        channels, outputs = weights.channels, weights.outputs
        _require(x, (None, channels))
        _require(out, (None, outputs))
        for addend in addends:
            _require(addend, (out.shape[0], outputs))
        if weights.taps == 1:
            raise ValueError("these are a matrix product's weights")
        if len(addends) > 2 or x.data_ptr() == out.data_ptr():
            raise ValueError("at most two addends, and no convolution in place")
        fields = _Convolution(
            input=x.data_ptr(),
            in_stride=x.stride(0),
            rows=x.shape[0],
            channels=channels,
            in_gain=in_gain,
            slope=slope,
            weights=weights.weights.data_ptr(),
            bias=weights.bias.data_ptr(),
            outputs=outputs,
            taps=weights.taps,
            dilation=dilation,
            left=(weights.taps - 1) * dilation // 2 if left is None else left,
            narrow=weights.narrow,
            out_rows=out.shape[0],
            gain=gain,
            out=out.data_ptr(),
            out_stride=out.stride(0),
            threads=torch.get_num_threads(),
        )
        if norm is not None:
            _require(norm.sums, (2, channels), torch.float64, packed=True)
            _require(norm.scale, (channels,))
            _require(norm.shift, (channels,))
            fields.in_sums, fields.scale, fields.shift = (
                tensor.data_ptr() for tensor in (norm.sums, norm.scale, norm.shift)
            )
            fields.epsilon = norm.epsilon
        if alpha is not None:
            _require(alpha, (channels,))
            fields.alpha = alpha.data_ptr()
        if addends:
            fields.addend, fields.addend_stride = addends[0].data_ptr(), addends[0].stride(0)
        if len(addends) == 2:
            fields.second_addend, fields.second_stride = addends[1].data_ptr(), addends[1].stride(0)
        if sums is not None:
            _require(sums, (2, outputs), torch.float64, packed=True)
            fields.out_sums = sums.data_ptr()
        self._library.kokoro_convolve(ctypes.byref(fields))

    def multiply(self, x: Tensor, weights: Packed, out: Tensor) -> None:
        """out = x weights + bias: x [rows, C] to out [rows, O].

        Args:
            weights: of `packed_matrix`.
        """
        _require(x, (None, weights.channels))
        _require(out, (x.shape[0], weights.outputs))
        if weights.taps != 1:
            raise ValueError("these are a convolution's weights")
        self._library.kokoro_multiply(
            x.data_ptr(),
            x.stride(0),
            x.shape[0],
            weights.channels,
            weights.weights.data_ptr(),
            weights.bias.data_ptr(),
            weights.outputs,
            out.data_ptr(),
            out.stride(0),
            torch.get_num_threads(),
        )

    def probe(self, repeats: int, narrow: bool) -> int:
        """Compute at the processor's limit on one thread; returns the floating-point operations done."""
        return int(self._library.kokoro_probe(repeats, narrow))

    def add_and_sum(self, x: Tensor, y: Tensor | None, sums: Tensor) -> None:
        """x += y, where y is given; and the sums over time of x and its squares.

        Args:
            x: [rows, C], C a multiple of the vectors' width.
            sums: float64 [2, C].
        """
        rows, channels = x.shape
        _require(x, (None, None))
        if y is not None:
            _require(y, (rows, channels))
        _require(sums, (2, channels), torch.float64, packed=True)
        if channels % self.panel:
            raise ValueError(f"channels must be a multiple of {self.panel}")
        self._library.kokoro_add_and_sum(
            x.data_ptr(),
            x.stride(0),
            y.data_ptr() if y is not None else None,
            y.stride(0) if y is not None else 0,
            rows,
            channels,
            sums.data_ptr(),
            torch.get_num_threads(),
        )


def _require(
    tensor: Tensor, shape: tuple[int | None, ...], dtype: torch.dtype = torch.float32, packed: bool = False
) -> None:
    """Raise ValueError unless the kernels can read the tensor as they will: they take addresses at their word."""
    fits = len(tensor.shape) == len(shape) and all(
        wanted in (None, size) for wanted, size in zip(shape, tensor.shape, strict=True)
    )
    dense = tensor.is_contiguous() if packed else tensor.stride(-1) == 1
    if tensor.device.type != "cpu" or tensor.dtype != dtype or not fits or not dense:
        raise ValueError(f"the kernels can't read {tuple(tensor.shape)} {tensor.dtype}, strides {tensor.stride()}")


def load_kernels(target: Target, cache: Path | None = None) -> Kernels | None:
    """The kernels for a target: built ahead, from the cache, or compiled now. None, with a line in the log, if there
    is no compiler or it fails: there is a slower way to everything that the kernels do."""
    try:
        ahead = built_ahead(target)
        return Kernels(ahead if ahead.exists() else _compiled(target, cache or user_cache_folder()))
    except (OSError, subprocess.SubprocessError) as exc:
        said = exc.stderr if isinstance(exc, subprocess.CalledProcessError) else ""
        reason = said.strip().splitlines()[0] if said and said.strip() else exc
        log.warning("no native kernels for %s, so speech takes about three times as long: %s", target.name, reason)
        return None


def _compiled(target: Target, cache: Path) -> Path:
    compiler = next(filter(None, map(shutil.which, _COMPILERS)), None)
    if compiler is None:
        raise OSError("no C++ compiler (g++) is installed")
    version = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=True).stdout
    made_of = [build.SOURCE.read_text(), *build.FLAGS, *target.flags, version]
    path = cache / "kernels" / f"{target.name}-{digest(chr(0).join(made_of).encode())}.so"
    if not path.exists():
        with locked(path):
            if not path.exists():
                write_atomically(path, lambda to: build.compile_kernels(compiler, target, to))
    return path
