"""Fewer dimensions without a dense matrix: which pairs bring the variance into the dimensions that are kept."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int32]

MATCHED_LAYERS = 3
BUDGET = 3.0
"""Rotations between kept and dropped dimensions, in units of (n / 2) ⌈log2 n⌉."""
_ROUNDS = 12
"""Of matching: what is still alone then gains little."""


def mutual_best(gain: Array) -> tuple[Indices, Indices]:
    """
    Match rows with columns that are each other's best, again and again among those left.

    Parameters
    ----------
    gain : ndarray, shape (rows, columns)
        What a pair is worth; pairs that are worth nothing are not made. It is overwritten.

    Examples
    --------
    >>> import numpy as np
    >>> [part.tolist() for part in mutual_best(np.array([[3.0, 2.0], [4.0, 1.0]]))]
    [[1, 0], [0, 1]]
    """
    rows: list[Indices] = []
    columns: list[Indices] = []
    row_left, column_left = np.arange(gain.shape[0]), np.arange(gain.shape[1])
    for _ in range(_ROUNDS):
        if not gain.size:
            break
        best_column = gain.argmax(axis=1)
        best_row = gain.argmax(axis=0)
        row = np.flatnonzero(best_row[best_column] == np.arange(len(best_column)))
        row = row[gain[row, best_column[row]] > 0]
        if not len(row):
            break
        column = best_column[row]
        rows.append(row_left[row].astype(np.int32))
        columns.append(column_left[column].astype(np.int32))
        row_left, column_left = np.delete(row_left, row), np.delete(column_left, column)
        gain = np.delete(np.delete(gain, row, axis=0), column, axis=1)
    empty = np.empty(0, dtype=np.int32)
    return np.concatenate([empty, *rows]), np.concatenate([empty, *columns])


def matching(gain: Array) -> tuple[Indices, Indices]:
    """
    Match dimensions that are each other's best, again and again among those left.

    Parameters
    ----------
    gain : ndarray, shape (n, n)
        Symmetric: what a pair is worth; the diagonal does not count.

    Examples
    --------
    >>> import numpy as np
    >>> [part.tolist() for part in matching(np.array([[0.0, 1, 3], [1, 0, 2], [3, 2, 0]]))]
    [[0], [2]]
    """
    first: list[Indices] = []
    second: list[Indices] = []
    left = np.arange(len(gain))
    np.fill_diagonal(gain, 0)
    for _ in range(_ROUNDS):
        if not gain.size:
            break
        best = gain.argmax(axis=1)
        own = np.arange(len(best))
        i = np.flatnonzero((best[best] == own) & (own < best) & (gain[own, best] > 0))
        if not len(i):
            break
        j = best[i]
        first.append(left[i].astype(np.int32))
        second.append(left[j].astype(np.int32))
        both = np.concatenate([i, j])
        left = np.delete(left, both)
        gain = np.delete(np.delete(gain, both, axis=0), both, axis=1)
    empty = np.empty(0, dtype=np.int32)
    return np.concatenate([empty, *first]), np.concatenate([empty, *second])
