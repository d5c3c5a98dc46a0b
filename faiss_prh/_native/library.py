"""The native library: found, declared, and its SIMD levels and threads."""

from __future__ import annotations

import contextlib
import ctypes
import importlib.metadata
import os
import sys
from ctypes import c_bool, c_char_p, c_float, c_int, c_int64, c_void_p
from pathlib import Path
from typing import Any

import faiss

from .._common.types import AnyArray
from . import LibraryMissing

TrainCallback = ctypes.CFUNCTYPE(None, c_void_p, c_int64, c_void_p, c_void_p, c_int64)


def _declared(library: ctypes.CDLL) -> ctypes.CDLL:
    pointer = c_void_p
    for name, result, arguments in [
        ("version", c_char_p, []),
        ("simd_level", c_char_p, [c_int]),
        ("use_simd_level", c_char_p, [c_char_p]),
        ("active_simd_level", c_char_p, []),
        ("set_thread_source", None, [pointer]),
        ("transform_new", pointer, [c_int, c_int, c_bool, TrainCallback]),
        ("transform_free", None, [pointer]),
        ("transform_set", c_char_p, [pointer, c_int, c_int, *[pointer] * 5, c_int, pointer, pointer]),
        ("transform_encode", c_int64, [pointer, c_int64, *[pointer] * 3]),
        ("last_failure", c_char_p, []),
        ("transform_apply", c_int64, [pointer, c_int64, pointer, pointer]),
        ("transform_reverse", c_int64, [pointer, c_int64, pointer, pointer]),
        ("rows_fill", c_char_p, [pointer, *[c_int64] * 4, pointer]),
        ("rows_centre", c_char_p, [pointer, c_int64, c_int64, pointer]),
        ("rows_covariances", c_char_p, [pointer, c_int64, c_int64, *[pointer] * 3]),
        ("rows_rotate", c_char_p, [pointer, c_int64, c_int64, *[pointer] * 3]),
        ("matrix_rotate", c_char_p, [pointer, c_int64, c_int64, *[pointer] * 3]),
        ("inverse_factor", c_char_p, [pointer, c_int64, pointer]),
        ("match", c_char_p, [pointer, c_int64, c_int64, c_bool, c_int64, *[pointer] * 3]),
        ("tiles_turn", c_char_p, [*[c_int64] * 3, *[pointer] * 5]),
        ("tiles_slopes", c_char_p, [*[c_int64] * 3, *[pointer] * 6]),
        ("tiles_multiply", c_char_p, [*[c_int64] * 2, *[pointer] * 3]),
        ("tiles_outer", c_char_p, [*[c_int64] * 2, *[pointer] * 3]),
        ("tiles_signs", c_char_p, [*[c_int64] * 2, pointer, c_float, *[pointer] * 2]),
        ("soft_signs", c_char_p, [c_int64, c_int64, pointer, c_float, pointer, pointer]),
        ("sign_products", c_char_p, [c_int64, c_int64, pointer, c_int64, pointer, pointer]),
        (
            "sign_slopes",
            c_char_p,
            [c_int64, c_int64, pointer, c_int64, *[pointer] * 5, c_float, c_float, *[pointer] * 2],
        ),
        ("nearest", c_char_p, [c_int64, c_int64, pointer, c_int64, pointer, c_int64, pointer]),
        ("nearer", c_char_p, [c_int64, c_int64, *[pointer] * 3, c_int64, pointer]),
        ("column_products", c_char_p, [c_int64, *[c_int64, pointer] * 2, pointer]),
        ("moments_add", c_char_p, [c_int64, c_int64, pointer, c_int64, pointer, pointer]),
        ("gather", c_char_p, [c_int64, c_int64, pointer, pointer]),
    ]:
        function = getattr(library, f"prh_{name}")
        function.restype, function.argtypes = result, arguments
    return library


def _load() -> ctypes.CDLL:
    suffix = {"darwin": ".dylib", "win32": ".dll"}.get(sys.platform, ".so")
    beside = Path(__file__).parents[1] / f"libfaiss_prh{suffix}"
    path = beside
    if not path.exists():
        # Python run in the source folder imports these sources; the library is where it was installed.
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            path = Path(str(importlib.metadata.distribution("faiss-prh").locate_file("faiss_prh"))) / beside.name
    if not path.exists():
        raise LibraryMissing(f"{beside} is missing")
    library = ctypes.CDLL(str(path))
    library.prh_version.restype = c_char_p
    _check_version(library.prh_version().decode())  # before functions are looked for that another one may not have
    return _declared(library)


def _check_version(native: str) -> None:
    installed = importlib.metadata.version("faiss-prh")
    if native != installed:
        raise ImportError(f"the native library is of version {native}, the package of {installed}: install it again")


def at(array: AnyArray) -> int:
    """Return where an array is; it must be contiguous."""
    return int(faiss.swig_ptr(array))  # a tenth of the time of array.ctypes.data, and refuses strided arrays


def check(message: bytes | None) -> None:
    """Raise the error that a native function reports, if any."""
    if message is not None:
        raise (MemoryError if message == b"out of memory" else RuntimeError)(message.decode())


library = _load()


def simd_levels() -> list[str]:
    """Return the SIMD levels this CPU runs, the plainest first."""
    levels: list[str] = []
    while (name := library.prh_simd_level(len(levels))) is not None:
        levels.append(name.decode())
    return levels


def use_simd_level(name: str) -> None:
    """Run the given SIMD level from now on."""
    if library.prh_use_simd_level(name.encode()) is not None:
        raise ValueError(f"no SIMD level {name!r} on this CPU; there are {', '.join(simd_levels())}")


def active_simd_level() -> str:
    """Return the SIMD level in use."""
    name: bytes = library.prh_active_simd_level()
    return name.decode()


_ask_faiss = ctypes.CFUNCTYPE(c_int)(faiss.omp_get_max_threads)


def _follow_faiss_threads() -> None:
    # The wheel's own OpenMP runtime is among what Faiss's extension module was linked with, so looking the name up
    # there finds that one, whatever other OpenMP runtimes the process has loaded. Windows does not look there.
    module = faiss.VectorTransform.__module__.rpartition(".")[2]
    extension = sys.modules.get(f"faiss._{module}") or sys.modules[f"_{module}"]
    source: Any
    try:
        source = ctypes.CDLL(extension.__file__).omp_get_max_threads
    except (AttributeError, OSError):
        source = _ask_faiss
    library.prh_set_thread_source(ctypes.cast(source, c_void_p))


if os.environ.get("FAISS_PRH_SIMD"):
    try:
        use_simd_level(os.environ["FAISS_PRH_SIMD"])
    except ValueError as error:
        raise ImportError(f"FAISS_PRH_SIMD: {error}") from None
_follow_faiss_threads()
