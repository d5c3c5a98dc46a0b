"""The inner loops of learning, and copying from where Faiss keeps codes, on arrays."""

from __future__ import annotations

import numpy as np

from .._common.types import AnyArray, Codes, Doubles, Floats, Ids, Indices
from .library import at, check, library


def rows_fill(rows: Floats, first: int, x: Floats) -> None:
    """Copy the vectors `x` into the columns of `rows` from `first` on."""
    n, m = rows.shape
    check(library.prh_rows_fill(at(rows), n, m, first, len(x), at(x)))


def rows_centre(rows: Floats) -> Doubles:
    """Subtract from each row its mean, and return the means."""
    n, m = rows.shape
    means = np.empty(n)
    check(library.prh_rows_centre(at(rows), n, m, at(means)))
    return means


def rows_covariances(rows: Floats, i: Indices, j: Indices) -> Doubles:
    """Return the mean products of the rows i and j."""
    covariances, m = np.empty(len(i)), rows.shape[1]
    check(library.prh_rows_covariances(at(rows), m, len(i), at(i), at(j), at(covariances)))
    return covariances


def rows_rotate(rows: Floats, i: Indices, j: Indices, theta: Floats) -> None:
    """Rotate the disjoint pairs of rows i and j by theta."""
    check(library.prh_rows_rotate(at(rows), rows.shape[1], len(i), at(i), at(j), at(theta)))


def matrix_rotate(matrix: Doubles, i: Indices, j: Indices, theta: Floats) -> None:
    """Rotate the disjoint pairs of rows i and j of a square matrix by theta, and of its columns."""
    check(library.prh_matrix_rotate(at(matrix), len(matrix), len(i), at(i), at(j), at(theta)))


def inverse_factor(gram: Doubles) -> Doubles:
    """Return the inverse of the lower triangular factor (Cholesky's) of a symmetric matrix, which is overwritten."""
    inverse = np.empty_like(gram)
    check(library.prh_inverse_factor(at(gram), len(gram), at(inverse)))
    return inverse


def match(gain: Doubles, is_symmetric: bool, n_rounds: int) -> tuple[Indices, Indices]:
    """Return pairs of a row and a column that are each other's best, and so on among those left, round by round."""
    first, second = np.empty((2, min(gain.shape)), dtype=np.int32)
    count = np.zeros(1, dtype=np.int64)
    check(library.prh_match(at(gain), *gain.shape, is_symmetric, n_rounds, at(first), at(second), at(count)))
    return first[: count[0]], second[: count[0]]


def tiles_turn(x: Floats, i: Indices, j: Indices, theta: Floats, y: Floats) -> None:
    """Write to `y` the tiles `x` after the rotations, one after the other, of rows i and j by theta."""
    n_tiles, n, _ = x.shape
    check(library.prh_tiles_turn(n, n_tiles, len(i), at(i), at(j), at(theta), at(x), at(y)))


def tiles_slopes(y: Floats, g: Floats, i: Indices, j: Indices, theta: Floats) -> Doubles:
    """Return the slopes of the angles, given those of `y` behind the rotations, which are undone on `y` and `g`."""
    n_tiles, n, _ = y.shape
    slopes = np.empty(len(i))
    check(library.prh_tiles_slopes(n, n_tiles, len(i), at(i), at(j), at(theta), at(y), at(g), at(slopes)))
    return slopes


def tiles_multiply(matrix: Floats, x: Floats, y: Floats) -> None:
    """Write to `y` the products of a square matrix with the vectors of tiles `x`."""
    n_tiles, n, _ = x.shape
    check(library.prh_tiles_multiply(n, n_tiles, at(matrix), at(x), at(y)))


def tiles_outer(g: Floats, x: Floats) -> Doubles:
    """Return the sums, over the vectors of tiles, of the products of each row of `g` and each row of `x`."""
    n_tiles, n, _ = x.shape
    products = np.empty((n, n))
    check(library.prh_tiles_outer(n, n_tiles, at(g), at(x), at(products)))
    return products


def tiles_signs(y: Floats, magnitude: float, g: Floats) -> float:
    """Write to `g` a magnitude with the signs of tiles `y`, and return the sum of |y|."""
    n_tiles, n, _ = y.shape
    magnitudes = np.empty(1)
    check(library.prh_tiles_signs(n, n_tiles, at(y), magnitude, at(g), at(magnitudes)))
    return float(magnitudes[0])


def soft_signs(y: Floats, m: int, softness: float, signs: Floats) -> float:
    """Write the soft signs of the m vectors of tiles to `signs`, in an order of its own, and return the sum of |y|."""
    magnitudes = np.empty(1)
    check(library.prh_soft_signs(y.shape[1], m, at(y), softness, at(signs), at(magnitudes)))
    return float(magnitudes[0])


def sign_products(n: int, signs: Floats, partners: Indices) -> Doubles:
    """Return the products of the soft signs, of n dimensions, of each vector and its partners."""
    m, k = partners.shape
    products = np.empty((m, k))
    check(library.prh_sign_products(n, m, at(signs), k, at(partners), at(products)))
    return products


def sign_slopes(
    y: Floats, signs: Floats, partners: Indices, ends: Ids, incident: Indices, owners: Indices, weights: Floats,
    softness: float, magnitude: float, g: Floats,
) -> None:  # fmt: skip
    """
    Write to `g` the slopes of `y`, given those of the products (`weights`) and of each |y| (`magnitude`).

    The places of `partners` where vector v stands are incident[ends[v - 1]:ends[v]], and `owners` whose they are.
    """
    m, k = partners.shape
    pairs: list[AnyArray] = [partners, ends, incident, owners, weights]
    check(
        library.prh_sign_slopes(
            y.shape[1], m, at(signs), k, *map(at, pairs), softness, magnitude, at(y), at(g)
        )
    )  # fmt: skip


def nearest(x: Floats, others: Floats, k: int) -> Ids:
    """
    Return the numbers of the k nearest others of each vector; of equally near ones, the first.

    Values must be whole numbers, as `whole_numbers` returns them. If both are the same array, it takes half the time.
    """
    keys = np.empty((len(x), k), dtype=np.int64)
    check(library.prh_nearest(x.shape[1], len(x), at(x), len(others), at(others), k, at(keys)))
    return keys & 0xFFFFFFFF


def nearer(products: Floats, own: Floats, norms: Floats, k: int) -> Ids:
    """
    Return for each row of products the places of the k least of own + norms - 2 products; of equal ones, the first.

    All must be whole numbers, from 0 to 2^24.
    """
    keys = np.empty((len(products), k), dtype=np.int64)
    check(library.prh_nearer(*products.shape, *map(at, (products, own, norms)), k, at(keys)))
    return keys & 0xFFFFFFFF


def column_products(left: Doubles, right: Doubles) -> Doubles:
    """
    Return the products of each column of a matrix and each of another: of the transpose of the one and the other.

    How sums are rounded depends on the SIMD level. If both are the same array, it takes half the time.
    """
    products = np.empty((left.shape[1], right.shape[1]))
    check(library.prh_column_products(*left.shape, at(left), right.shape[1], at(right), at(products)))
    return products


def moments_add(x: Floats, count: int, mean: Doubles, scatter: Doubles) -> None:
    """Add vectors to the mean of `count` others, and to the products of what they are off it, summed over them."""
    check(library.prh_moments_add(*x.shape, at(x), count, at(mean), at(scatter)))


def gather(addresses: Ids, size: int) -> Codes:
    """Return the records of `size` bytes at the given addresses; zeros where an address is 0."""
    records = np.empty((*addresses.shape, size), dtype=np.uint8)
    check(library.prh_gather(addresses.size, size, at(addresses), at(records)))
    return records
