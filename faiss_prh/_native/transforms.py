"""Transforms that Faiss runs as its own, and the check that this Faiss fits them."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable
from ctypes import c_bool, c_int, c_void_p
from typing import Any

import faiss
import numpy as np

from .._common.types import Codes, Floats, Ids, Indices
from . import LayoutMismatch
from .library import TrainCallback, at, check, library


class TransformFields(ctypes.Structure):
    """The first fields of a transform, as `native/faiss_abi.hpp` declares them: Faiss takes longer to read one."""

    d_in: int
    d_out: int
    is_trained: bool
    _fields_ = (("functions", c_void_p), ("d_in", c_int), ("d_out", c_int), ("is_trained", c_bool))


def train_callback(train: Callable[[int, Floats], None]) -> Any:
    """Return what native code calls when Faiss wants a transform to be trained: `train`, with its address."""

    @TrainCallback  # type: ignore[untyped-decorator]
    def called(address: int, n: int, x: int, failure: int, failure_size: int) -> None:
        try:
            d = TransformFields.from_address(address).d_in
            memory: Any = (ctypes.c_float * (n * d)).from_address(x) if n else b""
            train(address, np.frombuffer(memory, np.float32).reshape(n, d))
            message = ""
        except BaseException as error:  # a KeyboardInterrupt as well: Faiss can only raise a RuntimeError
            message = f"{type(error).__name__}: {error}"
        text = message.encode(errors="replace")[: failure_size - 1]
        ctypes.memmove(failure, text + b"\0", len(text) + 1)

    return called


def new_transform(d_in: int, d_out: int, is_linear: bool, train: Any) -> tuple[Any, TransformFields, int]:
    """
    Return a new transform that calls `train`: Faiss's proxy, which owns it, its fields, and what is to be passed here.

    A linear one has its dense matrix as well, for Faiss to write.
    """
    address = _new(d_in, d_out, is_linear, train)
    # Faiss's Python module makes a proxy of whatever address stands in a vector of transforms.
    vector = faiss.VectorTransformVector()
    vector.resize(1)
    c_void_p.from_address(int(vector.data())).value = address
    proxy = vector.at(0)
    # An object made as owned holds a reference to SWIG's type table, and gives it back if it dies as owned. Becoming
    # an owner later does not take one (SWIG 4.3 to 4.5 at least); so the vector, destroyed early, leaves it its own.
    faiss.VectorTransformVector.__swig_destroy__(vector)
    proxy.this.own(True)
    return proxy, TransformFields.from_address(address), address


def _new(d_in: int, d_out: int, is_linear: bool, train: Any) -> int:
    address: int | None = library.prh_transform_new(d_in, d_out, is_linear, train)
    if address is None:
        raise MemoryError("no memory for a transform")
    return address


def set_rotation(
    transform: int, n: int, ends: Ids, i: Indices, j: Indices, theta: Floats, mean: Floats,
    kept: Indices, tail: Floats | None = None,
) -> None:  # fmt: skip
    """
    Make a transform subtract `mean`, apply these layers of `n` dimensions, and keep some of them.

    With a `tail`, the outputs are its products with what is kept.
    """
    check(
        library.prh_transform_set(
            transform, n, len(ends), at(ends), at(i), at(j),
            at(theta), at(mean), len(kept), at(kept), None if tail is None else at(tail),
        )
    )  # fmt: skip


def encode(transform: int, x: Floats, codes: Codes, norms: Floats | None = None) -> int | None:
    """Write the codes of `x`, and the norms of its transform. Return the first row not finite or too large, or None."""
    at_norms = None if norms is None else at(norms)
    row = library.prh_transform_encode(transform, len(x), at(x), at(codes), at_norms)
    return None if row == -1 else _unusable(row)


def apply(transform: int, x: Floats, y: Floats) -> int | None:
    """Write the transform of `x` to `y`. Return the number of the first row not finite or too large, or None."""
    return _unusable(library.prh_transform_apply(transform, len(x), at(x), at(y)))


def reverse(transform: int, y: Floats, x: Floats) -> int | None:
    """Write to `x` what the transform takes to `y`. Return the first row not finite or too large, or None."""
    return _unusable(library.prh_transform_reverse(transform, len(y), at(y), at(x)))


def check_identical(_: int, proxy: Any, other: Any) -> None:
    """Raise a RuntimeError unless another transform does the same."""
    faiss.VectorTransform.check_identical(proxy, other)


def _unusable(row: int) -> int | None:
    if row == -2:
        check(library.prh_last_failure())
    return None if row == -1 else row


class Rotating:
    """A transform that Faiss never sees; `_portable.transforms` has the same without native code."""

    def __init__(self, d_in: int, d_out: int) -> None:
        self._at = _new(d_in, d_out, False, TrainCallback())
        weakref.finalize(self, library.prh_transform_free, self._at)

    def set(self, *what: Any) -> None:
        """Become a rotation: what `set_rotation` takes."""
        set_rotation(self._at, *what)

    def encode(self, x: Floats, codes: Codes, norms: Floats | None) -> int | None:
        """Write codes, and norms."""
        return encode(self._at, x, codes, norms)

    def apply(self, x: Floats, y: Floats) -> int | None:
        """Write the transform of `x` to `y`."""
        return apply(self._at, x, y)

    def reverse(self, y: Floats, x: Floats) -> int | None:
        """Write to `x` what the transform takes to `y`."""
        return reverse(self._at, y, x)


def check_layout(probe: Callable[[bool, Any], Any] | None = None) -> None:
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
            transform = probe(is_linear, note) if probe else new_transform(2, 2, is_linear, note)[0]
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
        raise does_not_fit(f"VectorTransform or LinearTransform ({error})") from error


def does_not_fit(what: str) -> LayoutMismatch:
    """Return the error that says what of this Faiss is laid out in another way."""
    return LayoutMismatch(f"Faiss {faiss.__version__} has another layout than faiss-cpu 1.8 to 1.15 of {what}")
