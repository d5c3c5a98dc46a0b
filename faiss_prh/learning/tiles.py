"""A sample in tiles of 16 vectors, as native code learns angles from it; soft signs of vectors, and their products."""

from __future__ import annotations

import numpy as np

from .._backend import kernels
from .._common.types import Doubles, Floats, Indices

TILE = 16
_PADDED = 16  # signs have a multiple of so many dimensions


def tiled(rows: Floats) -> Floats:
    """
    Return rows, one for each dimension, as tiles of shape (number of tiles, rows, 16). The last is filled with zeros.

    Examples
    --------
    >>> import numpy as np
    >>> rows = np.arange(40, dtype="f4").reshape(2, 20)
    >>> tiles = tiled(rows)
    >>> tiles.shape
    (2, 2, 16)
    >>> bool((untiled(tiles, 20) == rows).all())
    True
    """
    n, m = rows.shape
    filled = np.zeros((n, -(-m // TILE) * TILE), dtype=np.float32)
    filled[:, :m] = rows
    return np.ascontiguousarray(filled.reshape(n, -1, TILE).transpose(1, 0, 2))


def untiled(tiles: Floats, m: int) -> Floats:
    """Return the first m vectors of tiles as rows, one for each dimension."""
    return tiles.transpose(1, 0, 2).reshape(tiles.shape[1], -1)[:, :m]


class SoftSigns:
    """
    Products of the soft signs of vectors and some partners of each, and their derivatives.

    Parameters
    ----------
    n : int
        Number of dimensions.
    partners : ndarray of int32, shape (m, k)
        For each of the m vectors, k others (or itself).
    softness : float
        Signs are tanh(value / softness).

    Examples
    --------
    >>> import numpy as np
    >>> y = tiled(np.array([[3.0, 3.0, -3.0], [3.0, -3.0, -3.0]], "f4"))  # vectors (3, 3), (3, -3), (-3, -3)
    >>> signs = SoftSigns(2, np.array([[1, 2], [0, 2], [0, 1]], "i4"), softness=0.4)
    >>> products, mean_magnitude = signs.products(y)
    >>> products.round(3).tolist(), mean_magnitude
    ([[0.0, -2.0], [0.0, 0.0], [-2.0, 0.0]], 3.0)
    """

    def __init__(self, n: int, partners: Indices, softness: float) -> None:
        m = len(partners)
        self._shape, self._softness = (n, m), softness
        self._partners = np.ascontiguousarray(partners, dtype=np.int32)
        self._incident = np.argsort(self._partners, axis=None, kind="stable").astype(np.int32)
        self._owners = self._incident // np.int32(self._partners.shape[1])
        self._ends = np.cumsum(np.bincount(self._partners.ravel(), minlength=m))
        self._signs = np.zeros(m * -(-n // _PADDED) * _PADDED, dtype=np.float32)
        self._slopes = np.empty((0, n, TILE), dtype=np.float32)

    def products(self, y: Floats) -> tuple[Doubles, float]:
        """
        Return the products of the soft signs of each vector and its partners, and the mean of |y|.

        Parameters
        ----------
        y : ndarray of float32
            The vectors, in tiles.
        """
        n, m = self._shape
        magnitudes = kernels.soft_signs(y, m, self._softness, self._signs)
        return kernels.sign_products(n, self._signs, self._partners), magnitudes / (n * m)

    def slopes(self, y: Floats, weights: Doubles, mean_weight: float) -> Floats:
        """
        Return the derivative by y, the same as in `products` just before, of a function of its results.

        The next call overwrites it.

        Parameters
        ----------
        y : ndarray of float32
            The vectors, in tiles.
        weights : ndarray, shape (m, k)
            The function's derivative by each product.
        mean_weight : float
            Its derivative by the mean of |y|.
        """
        n, m = self._shape
        if self._slopes.shape != y.shape:
            self._slopes = np.empty_like(y)
        kernels.sign_slopes(
            y, self._signs, self._partners, self._ends, self._incident, self._owners, weights.astype(np.float32),
            self._softness, mean_weight / (n * m), self._slopes,
        )  # fmt: skip
        return self._slopes
