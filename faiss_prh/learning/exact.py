"""Products and orthonormal bases that do not depend on threads, nor on the order in which sums are added up."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from .._backend import kernels
from .._common.types import Doubles

_NOISE = 2.0**-14
"""Of a column's length: what makes columns independent that are not, and fills those that are zero."""
_ROWS = 4096
_ROUNDS = 6
"""Times that columns are multiplied twice with a matrix, and made orthonormal, on their way to its principal ones."""


def exact_product(a: npt.NDArray[np.floating], b: npt.NDArray[np.floating]) -> Doubles:
    """
    Return the product of two matrices, of which rows and columns are first rounded so that it is exact.

    At least 18 bits are left of the largest value of a row of `a` and a column of `b`, for up to 65536 columns of `a`.

    Examples
    --------
    >>> import numpy as np
    >>> exact_product(np.array([[1.0, 2.0]]), np.array([[3.0], [4.0]]))
    array([[11.]])
    """
    bits = _bits(a.shape[1])
    right, right_unit = _whole(b, bits)
    product = np.empty((len(a), b.shape[1]))
    for first in range(0, len(a), _ROWS):
        left, left_unit = _whole(a[first : first + _ROWS].T, bits)
        part = kernels.column_products(left, right)
        part *= left_unit[:, None]
        np.multiply(part, right_unit, out=product[first : first + _ROWS])
    return product


def exact_gram(rows: npt.NDArray[np.floating]) -> Doubles:
    """Return the inner products of columns; `exact_product` of the transpose and the rows, but in half the time."""
    whole, unit = _whole(rows, _bits(len(rows)))
    gram: Doubles = kernels.column_products(whole, whole) * unit[:, None] * unit
    return gram


def _bits(terms: int) -> int:
    """Return how many bits whole numbers may have for a sum of so many products to be exact."""
    return (52 - (terms - 1).bit_length()) // 2


def _whole(columns: npt.NDArray[np.floating], bits: int) -> tuple[Doubles, Doubles]:
    """Return columns as whole numbers of so many bits, and their units, which are powers of two."""
    largest = np.max(np.abs(columns), axis=0, initial=0).astype(np.float64)
    unit = np.ldexp(1.0, np.frexp(largest)[1] - bits)
    whole: Doubles = np.multiply(columns, 1 / unit, order="C")  # no rounding: they are powers of two
    return np.rint(whole, out=whole), unit


def orthonormal(columns: Doubles, passes: int = 2) -> Doubles:
    """
    Return orthonormal columns that span about the same, each with those before it.

    Columns that depend on others, or are zero, are replaced by random ones. After one pass, columns that were almost
    dependent are not quite orthogonal.

    Examples
    --------
    >>> import numpy as np
    >>> basis = orthonormal(np.array([[3.0, 3.0], [4.0, 4.0], [0.0, 0.0]]))
    >>> bool(np.allclose(basis[:, 0], [0.6, 0.8, 0.0], atol=1e-3))
    True
    >>> bool(np.allclose(basis.T @ basis, np.eye(2), atol=1e-6))
    True
    """
    m, n = columns.shape
    lengths = np.sqrt(np.square(columns).sum(axis=0))
    least = 2.0 ** (1 - _bits(m))  # what is not rounded to nothing
    noise = np.random.default_rng(0).standard_normal((m, n)) * max(_NOISE / np.sqrt(m), least)
    basis: Doubles = columns / np.where(lengths > 0, lengths, 1) + noise
    for _ in range(passes):
        whole, unit = _whole(basis, _bits(m))
        basis = whole * unit  # its products are exact, and so what is corrected is what there is
        basis += exact_product(basis, _correction(exact_gram(basis)))
    return basis


def _correction(gram: Doubles) -> Doubles:
    """Return C so that columns with these inner products, multiplied by 1 + C (upper triangular), are orthonormal."""
    return kernels.inverse_factor(gram).T - np.eye(len(gram))  # LAPACK would round otherwise with other threads


def principal(matrix: Doubles, count: int) -> Doubles:
    """
    Return an orthonormal basis of about the first principal directions of a symmetric matrix, the largest first.

    Examples
    --------
    >>> import numpy as np
    >>> bool(abs(principal(np.diag([1.0, 9.0]), 1)[1, 0]) > 0.999)
    True
    """
    if count >= len(matrix):
        return np.eye(len(matrix))
    basis = np.random.default_rng(0).standard_normal((len(matrix), count))
    for number in range(_ROUNDS):
        is_last = number == _ROUNDS - 1
        basis = orthonormal(exact_product(matrix, exact_product(matrix, basis)), passes=2 if is_last else 1)
    return basis
