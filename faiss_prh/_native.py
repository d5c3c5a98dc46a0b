"""The native library: found, declared and checked at import."""

from __future__ import annotations

import contextlib
import ctypes
import importlib.metadata
import os
import sys
from collections.abc import Callable
from ctypes import c_bool, c_char_p, c_float, c_int, c_int64, c_void_p
from pathlib import Path
from typing import Any

import faiss
import numpy as np

from ._common.types import AnyArray, Codes, Doubles, Floats, Ids, Indices

TrainCallback = ctypes.CFUNCTYPE(None, c_void_p, c_int64, c_void_p, c_void_p, c_int64)


class TransformFields(ctypes.Structure):
    """The first fields of a transform, as `native/faiss_abi.hpp` declares them: Faiss takes longer to read one."""

    d_in: int
    d_out: int
    is_trained: bool
    _fields_ = (("functions", c_void_p), ("d_in", c_int), ("d_out", c_int), ("is_trained", c_bool))


def _declared(library: ctypes.CDLL) -> ctypes.CDLL:
    pointer = c_void_p
    for name, result, arguments in [
        ("version", c_char_p, []),
        ("simd_level", c_char_p, [c_int]),
        ("use_simd_level", c_char_p, [c_char_p]),
        ("active_simd_level", c_char_p, []),
        ("set_thread_source", None, [pointer]),
        ("transform_new", pointer, [c_int, c_int, c_bool, TrainCallback]),
        ("transform_set", c_char_p, [pointer, c_int, c_int, *[pointer] * 6]),
        ("transform_encode", c_int64, [pointer, c_int64, *[pointer] * 3]),
        ("last_failure", c_char_p, []),
        ("transform_apply", c_int64, [pointer, c_int64, pointer, pointer]),
        ("transform_reverse", c_int64, [pointer, c_int64, pointer, pointer]),
        ("rows_fill", c_char_p, [pointer, *[c_int64] * 4, pointer]),
        ("rows_centre", c_char_p, [pointer, c_int64, c_int64, pointer]),
        ("rows_covariances", c_char_p, [pointer, c_int64, c_int64, *[pointer] * 3]),
        ("rows_rotate", c_char_p, [pointer, c_int64, c_int64, *[pointer] * 3]),
        ("matrix_rotate", c_char_p, [pointer, c_int64, c_int64, *[pointer] * 3]),
        ("match", c_char_p, [pointer, c_int64, c_int64, c_bool, c_int64, *[pointer] * 3]),
        ("tiles_turn", c_char_p, [*[c_int64] * 3, *[pointer] * 5]),
        ("tiles_slopes", c_char_p, [*[c_int64] * 3, *[pointer] * 6]),
        ("soft_signs", c_char_p, [c_int64, c_int64, pointer, c_float, pointer, pointer]),
        ("sign_products", c_char_p, [c_int64, c_int64, pointer, c_int64, pointer, pointer]),
        (
            "sign_slopes",
            c_char_p,
            [c_int64, c_int64, pointer, c_int64, *[pointer] * 5, c_float, c_float, *[pointer] * 2],
        ),
        ("nearest", c_char_p, [c_int64, c_int64, *[pointer] * 3, c_int64, pointer]),
        ("gather", c_char_p, [c_int64, c_int64, pointer, pointer]),
    ]:
        function = getattr(library, f"prh_{name}")
        function.restype, function.argtypes = result, arguments
    return library


def _load() -> ctypes.CDLL:
    suffix = {"darwin": ".dylib", "win32": ".dll"}.get(sys.platform, ".so")
    beside = Path(__file__).with_name("libfaiss_prh" + suffix)
    path = beside
    if not path.exists():
        # Python run in the source folder imports these sources; the library is where it was installed.
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            path = Path(str(importlib.metadata.distribution("faiss-prh").locate_file("faiss_prh"))) / beside.name
    if not path.exists():
        raise ImportError(f"{beside} is missing: install the package with `pip install .`")
    return _declared(ctypes.CDLL(str(path)))


def _at(array: AnyArray) -> int:
    return int(faiss.swig_ptr(array))  # a tenth of the time of array.ctypes.data, and refuses strided arrays


def _check(message: bytes | None) -> None:
    if message is not None:
        raise (MemoryError if message == b"out of memory" else RuntimeError)(message.decode())


_library = _load()


def simd_levels() -> list[str]:
    """Return the SIMD levels this CPU runs, the plainest first."""
    levels: list[str] = []
    while (name := _library.prh_simd_level(len(levels))) is not None:
        levels.append(name.decode())
    return levels


def use_simd_level(name: str) -> None:
    """Run the given SIMD level from now on."""
    if _library.prh_use_simd_level(name.encode()) is not None:
        raise ValueError(f"no SIMD level {name!r} on this CPU; there are {', '.join(simd_levels())}")


def active_simd_level() -> str:
    """Return the SIMD level in use."""
    name: bytes = _library.prh_active_simd_level()
    return name.decode()


def _follow_faiss_threads() -> None:
    # The wheel's own OpenMP runtime is among what Faiss's extension module was linked with, so looking the name up
    # there finds that one, whatever other OpenMP runtimes the process has loaded.
    module = faiss.VectorTransform.__module__.rpartition(".")[2]
    extension = sys.modules.get(f"faiss._{module}") or sys.modules[f"_{module}"]
    source = ctypes.CDLL(extension.__file__).omp_get_max_threads
    _library.prh_set_thread_source(ctypes.cast(source, c_void_p))


def new_transform(d_in: int, d_out: int, is_linear: bool, train: Any) -> Any:
    """Return Faiss's proxy, which owns it, of a new native transform that calls back `train`."""
    address = _library.prh_transform_new(d_in, d_out, is_linear, train)
    if address is None:
        raise MemoryError("no memory for a transform")
    # Faiss's Python module makes a proxy of whatever address stands in a vector of transforms.
    vector = faiss.VectorTransformVector()
    vector.resize(1)
    c_void_p.from_address(int(vector.data())).value = address
    proxy = vector.at(0)
    # An object made as owned holds a reference to SWIG's type table, and gives it back if it dies as owned. Becoming
    # an owner later does not take one (SWIG 4.3 to 4.5 at least); so the vector, destroyed early, leaves it its own.
    faiss.VectorTransformVector.__swig_destroy__(vector)
    proxy.this.own(True)
    return proxy


def set_rotation(
    transform: int, n: int, ends: Ids, i: Indices, j: Indices, theta: Floats, mean: Floats,
    kept: Indices,
) -> None:  # fmt: skip
    """Make the transform at an address subtract `mean`, apply these layers of `n` dimensions, and keep some of them."""
    _check(
        _library.prh_transform_set(
            transform, n, len(ends), _at(ends), _at(i), _at(j),
            _at(theta), _at(mean), _at(kept),
        )
    )  # fmt: skip


def encode(transform: int, x: Floats, codes: Codes, norms: Floats | None = None) -> int | None:
    """Write the codes of `x`, and the norms of its transform. Return the first row not finite or too large, or None."""
    at_norms = None if norms is None else _at(norms)
    row = _library.prh_transform_encode(transform, len(x), _at(x), _at(codes), at_norms)
    return None if row == -1 else _unusable(row)


def apply(transform: int, x: Floats, y: Floats) -> int | None:
    """Write the transform of `x` to `y`. Return the number of the first row not finite or too large, or None."""
    return _unusable(_library.prh_transform_apply(transform, len(x), _at(x), _at(y)))


def reverse(transform: int, y: Floats, x: Floats) -> int | None:
    """Write to `x` what the transform takes to `y`. Return the first row not finite or too large, or None."""
    return _unusable(_library.prh_transform_reverse(transform, len(y), _at(y), _at(x)))


def _unusable(row: int) -> int | None:
    if row == -2:
        _check(_library.prh_last_failure())
    return None if row == -1 else row


def rows_fill(rows: Floats, first: int, x: Floats) -> None:
    """Copy the vectors `x` into the columns of `rows` from `first` on."""
    n, m = rows.shape
    _check(_library.prh_rows_fill(_at(rows), n, m, first, len(x), _at(x)))


def rows_centre(rows: Floats) -> Doubles:
    """Subtract from each row its mean, and return the means."""
    n, m = rows.shape
    means = np.empty(n)
    _check(_library.prh_rows_centre(_at(rows), n, m, _at(means)))
    return means


def rows_covariances(rows: Floats, i: Indices, j: Indices) -> Doubles:
    """Return the mean products of the rows i and j."""
    covariances, m = np.empty(len(i)), rows.shape[1]
    _check(_library.prh_rows_covariances(_at(rows), m, len(i), _at(i), _at(j), _at(covariances)))
    return covariances


def rows_rotate(rows: Floats, i: Indices, j: Indices, theta: Floats) -> None:
    """Rotate the disjoint pairs of rows i and j by theta."""
    _check(_library.prh_rows_rotate(_at(rows), rows.shape[1], len(i), _at(i), _at(j), _at(theta)))


def matrix_rotate(matrix: Doubles, i: Indices, j: Indices, theta: Floats) -> None:
    """Rotate the disjoint pairs of rows i and j of a square matrix by theta, and of its columns."""
    _check(_library.prh_matrix_rotate(_at(matrix), len(matrix), len(i), _at(i), _at(j), _at(theta)))


def tiles_turn(x: Floats, i: Indices, j: Indices, theta: Floats, y: Floats) -> None:
    """Write to `y` the tiles `x` after the rotations, one after the other, of rows i and j by theta."""
    n_tiles, n, _ = x.shape
    _check(_library.prh_tiles_turn(n, n_tiles, len(i), _at(i), _at(j), _at(theta), _at(x), _at(y)))


def tiles_slopes(y: Floats, g: Floats, i: Indices, j: Indices, theta: Floats) -> Doubles:
    """Return the slopes of the angles, given those of `y` behind the rotations, which are undone on `y` and `g`."""
    n_tiles, n, _ = y.shape
    slopes = np.empty(len(i))
    _check(_library.prh_tiles_slopes(n, n_tiles, len(i), _at(i), _at(j), _at(theta), _at(y), _at(g), _at(slopes)))
    return slopes


def nearest(products: Floats, own: Floats, norms: Floats, ids: Ids) -> None:
    """Write the columns of the least own + norms - 2 products of each row, which must be whole numbers below 2^24."""
    n, m = products.shape
    _check(_library.prh_nearest(n, m, _at(products), _at(own), _at(norms), ids.shape[1], _at(ids)))


def gather(addresses: Ids, size: int) -> Codes:
    """Return the records of `size` bytes at the given addresses; zeros where an address is 0."""
    records = np.empty((*addresses.shape, size), dtype=np.uint8)
    _check(_library.prh_gather(addresses.size, size, _at(addresses), _at(records)))
    return records


def _check_version(native: str) -> None:
    installed = importlib.metadata.version("faiss-prh")
    if native != installed:
        raise ImportError(f"the native library is of version {native}, the package of {installed}: install it again")


def _check_faiss_layout(probe: Callable[[bool, Any], Any]) -> None:
    """
    Send a vector through Faiss's Python proxy, its C++ and back, and compare. Then look at the fields of the matrix.

    `probe` is told whether the transform is to be linear and what it calls to train, and returns Faiss's proxy of one
    from 2 dimensions to 2.

    Faiss promises no stable layout of its classes; a Faiss with another one must not get to run this code.
    """
    trained_with: list[int] = []

    @TrainCallback  # type: ignore[untyped-decorator]
    def note(_: int, n: int, x: int, failure: int, failure_size: int) -> None:
        trained_with.append(n)
        ctypes.memset(failure, 0, 1)

    try:
        for is_linear in (False, True):
            transform = probe(is_linear, note)
            seen = (transform.d_in, transform.d_out, transform.is_trained)
            if seen != (2, 2, False):
                raise ValueError(f"d_in, d_out, is_trained read as {seen}")
            quarter_turn = (np.array([1]), np.array([0], "i4"), np.array([1], "i4"), np.array([np.pi / 2], "f4"))
            set_rotation(int(transform.this), 2, *quarter_turn, np.array([1, 2], "f4"), np.arange(2, dtype="i4"))
            x = np.array([[4, 6]], dtype=np.float32)
            transform.train(x)
            if trained_with.pop() != 1:
                raise ValueError("train did not reach the transform")
            y = transform.apply(x)
            if not (transform.is_trained and np.allclose(y, [[-4, 3]])):
                raise ValueError(f"apply gave {y}")
            if not np.allclose(transform.reverse_transform(y), x):
                raise ValueError("reverse_transform did not give the vector back")
            transform.check_identical(transform)
            known = faiss.downcast_VectorTransform(transform)
            if isinstance(known, faiss.LinearTransform) != is_linear:
                raise ValueError(f"it is taken for a {type(known).__name__}")
        flags = (known.have_bias, known.is_orthonormal, known.verbose)
        A, b = faiss.vector_to_array(known.A), faiss.vector_to_array(known.b)
        if flags != (True, True, False) or not np.allclose(A, [0, -1, 1, 0], atol=1e-6) or not np.allclose(b, [2, -1]):
            raise ValueError(f"have_bias, is_orthonormal, verbose read as {flags}, A as {A}, b as {b}")
    except Exception as error:
        raise ImportError(
            f"faiss-prh does not fit this Faiss ({faiss.__version__}): its VectorTransform or LinearTransform has "
            f"another layout than that of faiss-cpu 1.8 to 1.15 ({error})"
        ) from error


_check_version(_library.prh_version().decode())
if os.environ.get("FAISS_PRH_SIMD"):
    try:
        use_simd_level(os.environ["FAISS_PRH_SIMD"])
    except ValueError as error:
        raise ImportError(f"FAISS_PRH_SIMD: {error}") from None
_follow_faiss_threads()
_check_faiss_layout(lambda is_linear, train: new_transform(2, 2, is_linear, train))
