"""
The inner loops of learning, in NumPy, and copying from where Faiss keeps codes.

Native code and this one round alike and add up in the same order, so that both learn the same to the last bit. NumPy
adds up one after the other along an axis that is not the last one; sums are arranged to run along such an axis.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from .._common.fields import memory_at
from .._common.types import AnyArray, Codes, Doubles, Floats, Ids, Indices

_LANES = 16
"""Sums that native code adds up side by side."""
_CACHED = 1 << 17
"""Values that stay in a cache between one operation and the next."""
_PRODUCTS = 1 << 22
"""Inner products that are held in memory at a time."""


def cosines(theta: Floats) -> tuple[Doubles, Doubles]:
    """Return cosines and sines, by C's library of mathematics as in native code: NumPy's own round otherwise."""
    angles = theta.tolist()
    return np.array([math.cos(angle) for angle in angles]), np.array([math.sin(angle) for angle in angles])


def rows_fill(rows: Floats, first: int, x: Floats) -> None:
    """Copy the vectors `x` into the columns of `rows` from `first` on."""
    rows[:, first : first + len(x)] = x.T


def rows_centre(rows: Floats) -> Doubles:
    """Subtract from each row its mean, and return the means."""
    means = np.empty(len(rows))
    for part in _parts(*rows.shape):
        values = rows[part].astype(np.float64)
        means[part] = _sums(values) / rows.shape[1]
        rows[part] = values - means[part, None]
    return means


def rows_covariances(rows: Floats, i: Indices, j: Indices) -> Doubles:
    """Return the mean products of the rows i and j."""
    covariances, m = np.empty(len(i)), rows.shape[1]
    for part in _parts(len(i), m):
        covariances[part] = _sums(rows[i[part]].astype(np.float64) * rows[j[part]]) / m
    return covariances


def _sums(values: Doubles) -> Doubles:
    """Return the sums of rows: 16 side by side, then those, then what is left."""
    n, m = values.shape
    whole = m // _LANES * _LANES
    lanes = values[:, :whole].reshape(n, whole // _LANES, 4, 4).sum(axis=1)
    four = (lanes[:, 0] + lanes[:, 1]) + (lanes[:, 2] + lanes[:, 3])
    total: Doubles = (four[:, 0] + four[:, 1]) + (four[:, 2] + four[:, 3])
    for column in values[:, whole:].T:
        total += column
    return total


def rows_rotate(rows: Floats, i: Indices, j: Indices, theta: Floats) -> None:
    """Rotate the disjoint pairs of rows i and j by theta."""
    cosine, sine = (part.astype(np.float32)[:, None] for part in cosines(theta))
    for part in _parts(len(i), rows.shape[1]):
        _rotate(rows, i[part], j[part], cosine[part], sine[part])


def _rotate(rows: AnyArray, i: Indices, j: Indices, cosine: AnyArray, sine: AnyArray) -> None:
    u, w = rows[i], rows[j]
    rows[i] = cosine * u - sine * w
    rows[j] = sine * u + cosine * w


def matrix_rotate(matrix: Doubles, i: Indices, j: Indices, theta: Floats) -> None:
    """Rotate the disjoint pairs of rows i and j of a square matrix by theta, and of its columns."""
    cosine, sine = cosines(theta)
    _rotate(matrix, i, j, cosine[:, None], sine[:, None])
    u, w = matrix[:, i], matrix[:, j]
    matrix[:, i] = cosine * u - sine * w
    matrix[:, j] = sine * u + cosine * w


def inverse_factor(gram: Doubles) -> Doubles:
    """Return the inverse of the lower triangular factor (Cholesky's) of a symmetric matrix, which is overwritten."""
    inverse = np.eye(len(gram))
    for j in range(len(gram)):
        pivot = np.sqrt(gram[j, j])
        inverse[j, : j + 1] /= pivot
        factor = gram[j + 1 :, j] / pivot
        gram[j + 1 :, j + 1 :] -= factor[:, None] * factor
        inverse[j + 1 :, : j + 1] -= factor[:, None] * inverse[j, : j + 1]
    return inverse


def match(gain: Doubles, is_symmetric: bool, n_rounds: int) -> tuple[Indices, Indices]:
    """Return pairs of a row and a column that are each other's best, and so on among those left, round by round."""
    rows, columns = (np.arange(n, dtype=np.int32) for n in gain.shape)
    first, second = [np.empty(0, np.int32)], [np.empty(0, np.int32)]
    for _ in range(n_rounds):
        if not (len(rows) and len(columns)):
            break
        left = gain[np.ix_(rows, columns)]
        best, these = left.argmax(axis=1), np.arange(len(rows))
        # Symmetric but for rounding: so only rows choose, or one could be in two pairs.
        best_row = best if is_symmetric else left.argmax(axis=0)
        is_pair = (best_row[best] == these) & (left[these, best] > 0)
        if is_symmetric:
            is_pair &= rows < columns[best]
        if not is_pair.any():
            break
        first.append(rows[is_pair])
        second.append(columns[best[is_pair]])
        taken = np.concatenate([first[-1], second[-1]])
        rows = np.setdiff1d(rows, taken if is_symmetric else first[-1])
        columns = np.setdiff1d(columns, taken if is_symmetric else second[-1])
    return np.concatenate(first), np.concatenate(second)


def nearest(x: Floats, others: Floats, k: int) -> Ids:
    """
    Return the numbers of the k nearest others of each vector; of equally near ones, the first.

    Values must be whole numbers, as `whole_numbers` returns them.
    """
    own, norms = (np.square(vectors).sum(axis=1) for vectors in (x, others))
    step = max(1, _PRODUCTS // len(others))
    parts = [slice(start, start + step) for start in range(0, len(x), step)]
    return np.concatenate([nearer(x[part] @ others.T, own[part], norms, k) for part in parts])


def nearer(products: Floats, own: Floats, norms: Floats, k: int) -> Ids:
    """
    Return for each row of products the places of the k least of own + norms - 2 products; of equal ones, the first.

    All must be whole numbers, from 0 to 2^24.
    """
    places = np.empty((len(products), k), dtype=np.int64)
    columns = np.arange(products.shape[1])
    for part in _parts(*products.shape):
        distances = (own[part, None] + norms) - 2 * products[part]
        keys = distances.astype(np.int64) << 32 | columns
        places[part] = np.sort(np.partition(keys, k - 1, axis=1)[:, :k], axis=1) & 0xFFFFFFFF
    return places


def column_products(left: Doubles, right: Doubles) -> Doubles:
    """Return the products of each column of a matrix and each of another: of the transpose of the one and the other."""
    products: Doubles = left.T @ right
    return products


def moments_add(x: Floats, count: int, mean: Doubles, scatter: Doubles) -> None:
    """Add vectors to the mean of `count` others, and to the products of what they are off it, summed over them."""
    total = count + len(x)
    own = x.mean(axis=0, dtype=np.float64)
    apart = own - mean
    # As if there were one vector more, what the distance of the means adds (Chan et al., 1979).
    centred = np.concatenate([x - own, [apart * np.sqrt(count * len(x) / total)]])
    scatter += centred.T @ centred
    mean += apart * (len(x) / total)


def gather(addresses: Ids, size: int) -> Codes:
    """Return the records of `size` bytes at the given addresses; zeros where an address is 0."""
    records = np.zeros((*addresses.shape, size), dtype=np.uint8)
    found = addresses != 0
    if found.any():
        there = addresses[found]
        first = int(there.min())
        # Memory from the first to the last: only what is at the addresses is looked at.
        memory = memory_at(first, (int(there.max()) - first + size,), np.uint8)
        records[found] = memory[(there - first)[:, None] + np.arange(size)]
    return records


def _parts(n: int, width: int) -> Iterator[slice]:
    """Cut n rows of some width so that a part stays in a cache."""
    step = max(1, _CACHED // max(1, width))
    return (slice(first, first + step) for first in range(0, n, step))
