"""Learning the angles of several layers together, by gradient ascent; for the variance that is kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from .._backend import kernels
from .._common.types import Doubles, Floats, Indices
from .descent import descend
from .tiles import TILE, tiled, untiled

Layers: TypeAlias = list[tuple[Indices, Indices, Floats]]
Objective: TypeAlias = Callable[[Floats], tuple[float, Floats]]
"""A function of tiles. It returns a value, and its derivative with respect to them, in an array that is overwritten."""

VARIANCE_STEPS = 20
_ROTATION_PRODUCTS = 8
"""Products with a matrix, and sums of products, that take as long as a rotation and its slope."""


def ascend(layers: Layers, tiles: Floats, objective: Objective, steps: int) -> Layers:
    """
    Optimise the angles of layers together.

    Parameters
    ----------
    layers : list of (i, j, theta)
    tiles : ndarray of float32
        Vectors before the layers, as `tiled` returns them.
    objective : callable
        What to maximise, as a function of the tiles after the layers.
    steps : int
        Most steps of L-BFGS.

    Examples
    --------
    >>> import numpy as np
    >>> layer = np.array([0], "i4"), np.array([1], "i4"), np.array([0.1], "f4")
    >>> slopes = tiled(np.array([[1], [0]], "f4"))
    >>> first = lambda tiles: (float(tiles[0, 0, 0]), slopes.copy())
    >>> ((_, _, theta),) = ascend([layer], tiled(np.array([[1], [-1]], "f4")), first, steps=20)
    >>> bool(np.isclose(theta[0], np.pi / 4, atol=1e-3))
    True
    """
    ends = np.cumsum([len(theta) for _, _, theta in layers])
    if not len(ends) or not ends[-1]:
        return layers
    i, j, start = (np.concatenate(parts) for parts in zip(*layers, strict=True))
    n = tiles.shape[1]
    turned, by_matrix = np.empty_like(tiles), n < len(tiles) * TILE and n * n < _ROTATION_PRODUCTS * len(i)
    units = tiled(np.eye(n, dtype=np.float32)) if by_matrix else tiles[:0]
    turned_units = np.empty_like(units)

    def turn_all(angles: Doubles) -> tuple[float, Doubles]:
        theta = angles.astype(np.float32)
        kernels.tiles_turn(tiles, i, j, theta, turned)
        value, slopes = objective(turned)
        return -value, -kernels.tiles_slopes(turned, slopes, i, j, theta)

    def turn_units(angles: Doubles) -> tuple[float, Doubles]:
        """Do the same by way of the matrix that the layers are."""
        theta = angles.astype(np.float32)
        kernels.tiles_turn(units, i, j, theta, turned_units)
        kernels.tiles_multiply(np.ascontiguousarray(untiled(turned_units, n)), tiles, turned)
        value, slopes = objective(turned)
        slopes = tiled(kernels.tiles_outer(slopes, tiles).astype(np.float32))
        return -value, -kernels.tiles_slopes(turned_units, slopes, i, j, theta)

    thetas = np.split(descend(turn_units if by_matrix else turn_all, start, steps).astype(np.float32), ends[:-1])
    return [(i, j, theta) for (i, j, _), theta in zip(layers, thetas, strict=True)]


def keep_variance(layers: Layers, kept: Indices, covariance: Doubles) -> Layers:
    """
    Optimise the angles of layers so that the kept dimensions have more of the variance.

    The rows of the transform's matrix that belong to them are computed backwards, from unit vectors.
    """
    if not covariance.any():
        return layers
    covariance_of_trace_1 = covariance / np.trace(covariance)

    def variance(tiles: Floats) -> tuple[float, Floats]:
        columns = untiled(tiles, len(kept))
        # In double precision, what other SIMD levels add up otherwise is lost in the rounding.
        products = kernels.column_products(covariance_of_trace_1, columns.astype(np.float64)).astype(np.float32)
        return float(np.sum(columns * products, dtype=np.float64)), tiled(2 * products)

    units = np.zeros((len(covariance), len(kept)), dtype=np.float32)
    units[kept, np.arange(len(kept))] = 1
    return _reversed(ascend(_reversed(layers), tiled(units), variance, VARIANCE_STEPS))


def _reversed(layers: Layers) -> Layers:
    return [(i, j, -theta) for i, j, theta in layers[::-1]]
