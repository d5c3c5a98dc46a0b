"""Vectors from callers: checked once, converted a block at a time."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.ma as ma  # now: while one thread imports it, another could fork a child that waits for it forever
import numpy.typing as npt

from .types import Codes, Floats, Vectors

_FAR = 10
"""Deviations that vectors are seldom off."""
BLOCK_VALUES = 1 << 24
"""Number of values handed to native code at a time. It bounds the memory of conversions and the wait for Ctrl-C."""

LARGEST_NORM = 2.0**60.5
"""The largest norm of a vector: beyond it, distances overflow single precision. Native code has the same limit."""


def as_vectors(x: npt.ArrayLike, d: int, name: str) -> Vectors:
    """Return `x` as an array of shape (n, d) of some real type, or raise an error that says what is wrong."""
    if isinstance(x, ma.MaskedArray):
        raise TypeError(f"{name} must not be a masked array: fill what is masked first")
    array = np.asanyarray(x)
    if array.dtype.kind not in "fiub":
        raise TypeError(f"{name} must hold real numbers, not {array.dtype}")
    if array.ndim != 2:
        raise ValueError(f"{name} must have two dimensions, (n, {d}), not shape {array.shape}")
    if array.shape[1] != d:
        raise ValueError(f"{name} must have {d} columns, not {array.shape[1]} (shape {array.shape})")
    return array


def float32_blocks(x: Vectors, block_values: int | None = None) -> Iterable[Floats]:
    """Return the rows of `x` in contiguous blocks of single precision, converted one at a time."""
    most = block_values or BLOCK_VALUES
    if x.size <= most:  # a single query must not wait for what follows
        return (as_float32(x),)
    step = max(1, most // x.shape[1])
    return (as_float32(x[first : first + step]) for first in range(0, len(x), step))


def as_float32(x: Vectors) -> Floats:
    """Return an array as a contiguous one of single precision."""
    if x.dtype == np.float32:
        return np.ascontiguousarray(x, dtype=np.float32)
    with np.errstate(over="ignore"):  # what does not fit becomes infinite, and is reported as such
        return np.ascontiguousarray(x, dtype=np.float32)


def first_unusable_row(x: Vectors) -> int | None:
    """Return the number of the first row of `x` that is not finite, or too large, in single precision, or None."""
    first = 0
    for block in float32_blocks(x):
        if np.vdot(block, block) <= LARGEST_NORM**2:  # all of them together; a single query must not wait for more
            first += len(block)
            continue
        with np.errstate(over="ignore", invalid="ignore"):
            usable = np.einsum("ij,ij->i", block, block) <= LARGEST_NORM**2
        if not usable.all():
            return first + int(usable.argmin())
        first += len(block)
    return None


def check_usable(x: Vectors, name: str, where: str = "") -> None:
    """Raise a ValueError if a row of `x` is not finite, or too large, in single precision."""
    bad = first_unusable_row(x)
    if bad is not None:
        raise unusable(x[bad], f"{name} {bad}{where}")


def unusable(row: Vectors, name: str) -> ValueError:
    """Return the error that says why a row cannot be used."""
    if np.isfinite(as_float32(row)).all():
        return ValueError(f"{name} is too large: its norm must be below {LARGEST_NORM:.1e}")
    return ValueError(f"{name} has a non-finite value, or one too large for float32")


def whole_numbers(x: Floats, over: int, deviation: float | None = None) -> Floats:
    """
    Return centred values scaled and rounded to whole numbers that Faiss adds up exactly, in any order.

    Inner products and distances of such rows do not depend on the number of threads that compute them. Those of real
    numbers do, and so do the nearest neighbours found by them. Values are clipped to four times the largest standard
    deviation.

    Parameters
    ----------
    x : ndarray of float32
    over : int
        The axis of the sample, over which deviations are taken.
    deviation : float, optional
        What to take for the largest standard deviation, if `x` is a part of what is to be compared.

    Examples
    --------
    >>> import numpy as np
    >>> whole_numbers(np.array([[0.0], [1.0], [-1.0]], "f4"), over=0).ravel()
    array([   0.,  627., -627.], dtype=float32)
    """
    largest = int(np.sqrt(2.0**22 / x.shape[1]))  # squares of distances, of four such terms, then stay below 2^24
    if deviation is None:
        deviation = largest_deviation(x, over)
    scale = min(largest / (4 * deviation), float(np.finfo(np.float32).max)) if deviation else 0.0
    rounded: Floats = np.clip(np.rint(x * np.float32(scale)), -largest, largest)
    return rounded


def largest_deviation(x: Floats, over: int) -> float:
    """Return the largest standard deviation of centred values, without single ones so far off that they make it."""
    deviation = _largest_deviation(x, over)
    while _FAR * deviation < np.abs(x).max(initial=0):
        x = np.clip(x, -4 * deviation, 4 * deviation)
        before, deviation = deviation, _largest_deviation(x, over)
        if deviation > before / 2:
            return before
    return deviation


def _largest_deviation(x: Floats, over: int) -> float:
    return float(np.sqrt(np.max(np.mean(np.square(x, dtype=np.float64), axis=over), initial=0)))


def packed_signs(y: Floats) -> Codes:
    """Return the signs of floats as Faiss's binary codes: the lowest bit of a byte first, 1 for values ≥ 0."""
    return np.packbits(y >= 0, axis=1, bitorder="little")
