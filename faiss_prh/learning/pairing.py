"""Choose pairs of dimensions: pairs that gain much, with no dimension in two of them."""

from __future__ import annotations

import numpy as np

from .._backend import kernels
from .._common.types import Doubles, Floats, Indices

_CANDIDATES = 16
_PRODUCTS = 1 << 23
"""Most products that are held at a time."""
_ROUNDS = 12
"""Rounds of matching. Dimensions still unpaired after these would gain little."""


def mutual_best(gain: Doubles) -> tuple[Indices, Indices]:
    """
    Match rows with columns that are each other's best, again and again among those left.

    Parameters
    ----------
    gain : ndarray, shape (rows, columns)
        What a pair is worth; pairs that are worth nothing are not made.

    Examples
    --------
    >>> import numpy as np
    >>> [part.tolist() for part in mutual_best(np.array([[3.0, 2.0], [4.0, 1.0]]))]
    [[1, 0], [0, 1]]
    """
    return kernels.match(np.ascontiguousarray(gain), False, _ROUNDS)


def matching(gain: Doubles) -> tuple[Indices, Indices]:
    """
    Match dimensions that are each other's best, again and again among those left.

    Parameters
    ----------
    gain : ndarray, shape (n, n)
        Symmetric: what a pair is worth; the diagonal does not count, and is overwritten.

    Examples
    --------
    >>> import numpy as np
    >>> [part.tolist() for part in matching(np.array([[0.0, 1, 3], [1, 0, 2], [3, 2, 0]]))]
    [[0], [2]]
    """
    np.fill_diagonal(gain, 0)
    return kernels.match(np.ascontiguousarray(gain), True, _ROUNDS)


def candidates(first: Floats, second: Floats, left_out: Indices | None = None) -> tuple[Indices, Indices]:
    """
    Return for each row of `first` the rows of `second` whose product with it is largest in magnitude, as pairs.

    Parameters
    ----------
    first, second : ndarray of float32
        What `whole_numbers` returns.
    left_out : ndarray, optional
        Rows of `second` that do not count.

    Examples
    --------
    >>> import numpy as np
    >>> i, j = candidates(np.eye(2, 3, dtype="f4"), np.array([[0, -9, 0], [1, 0, 0]], "f4"))
    >>> sorted({(0, 1), (1, 0)} - set(zip(i.tolist(), j.tolist())))
    []
    """
    k, block = min(_CANDIDATES, len(second)), max(16, _PRODUCTS // len(second))
    # The least distance is the largest product; these stay from 0 to 2^24, in whole numbers.
    beyond, farther = np.full(len(first), 2.0**23, np.float32), np.zeros(len(second), np.float32)
    if left_out is not None:
        farther[left_out] = 2.0**23
    best = np.empty((len(first), k), dtype=np.int32)
    for start in range(0, len(first), block):
        part = slice(start, start + block)
        products = first[part] @ second.T
        best[part] = kernels.nearer(np.abs(products, out=products), beyond[part], farther, k)
    i, j = np.repeat(np.arange(len(first), dtype=np.int32), k), best.ravel()
    counts = farther[j] == 0
    return i[counts], j[counts]


def greedy(i: Indices, j: Indices, gain: Doubles) -> tuple[Indices, Indices]:
    """
    Choose disjoint pairs, the best first, and none without gain.

    Examples
    --------
    >>> import numpy as np
    >>> i, j = greedy(np.array([0, 0, 1]), np.array([2, 3, 2]), np.array([5.0, 1.0, 2.0]))
    >>> i.tolist(), j.tolist()
    ([0], [2])
    """
    order = np.argsort(-gain, kind="stable")
    order = order[gain[order] > 0]
    taken = bytearray(int(max(i.max(initial=0), j.max(initial=0))) + 1)
    chosen = []
    for pair, a, b in zip(order.tolist(), i[order].tolist(), j[order].tolist(), strict=True):
        if a != b and not taken[a] and not taken[b]:
            taken[a] = taken[b] = 1
            chosen.append(pair)
    return i[chosen], j[chosen]
