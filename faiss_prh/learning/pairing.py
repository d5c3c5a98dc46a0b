"""Choose pairs of dimensions: pairs that gain much, with no dimension in two of them."""

from __future__ import annotations

import faiss
import numpy as np

from .. import _native
from .._common.types import Doubles, Floats, Indices

_CANDIDATES = 8  # of each sign
_QUERIES = 1024
"""Number of queries at a time, so that Ctrl-C does not wait long."""
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
    return _native.match(np.ascontiguousarray(gain), False, _ROUNDS)


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
    return _native.match(np.ascontiguousarray(gain), True, _ROUNDS)


def candidates(first: Floats, second: Floats) -> tuple[Indices, Indices]:
    """
    Return for each row of `first` the rows of `second` whose product with it is largest in magnitude, as pairs.

    Examples
    --------
    >>> import numpy as np
    >>> i, j = candidates(np.eye(2, 3, dtype="f4"), np.array([[0, -9, 0], [1, 0, 0]], "f4"))
    >>> sorted({(0, 1), (1, 0)} - set(zip(i.tolist(), j.tolist())))
    []
    """
    count = min(_CANDIDATES, len(second))
    queries = np.concatenate([first, -first])
    found = np.concatenate([
        faiss.knn(part, second, count, metric=faiss.METRIC_INNER_PRODUCT)[1]
        for part in np.array_split(queries, max(1, -(-len(queries) // _QUERIES)))
    ])  # fmt: skip
    i = np.tile(np.repeat(np.arange(len(first), dtype=np.int32), count), 2)
    return i, found.ravel().astype(np.int32)


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
