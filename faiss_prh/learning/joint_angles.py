"""Learning the angles of several layers together, by gradient ascent: from the covariance, or from neighbours."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import faiss
import numpy as np

from .. import _native
from .._common.arrays import whole_numbers
from .._common.types import Doubles, Floats, Ids, Indices
from ..rotation import PairwiseRotation
from .descent import descend
from .tiles import SoftSigns, tiled, untiled

Layers: TypeAlias = list[tuple[Indices, Indices, Floats]]
Objective: TypeAlias = Callable[[Floats], tuple[float, Floats]]
"""A function of tiles. It returns a value, and its derivative with respect to them, in an array that is overwritten."""

VARIANCE_STEPS = 20
NEIGHBOUR_STEPS = 45
FEWEST_VECTORS = 200
MOST_VECTORS = 10_000
_INPUT_VALUES, _OUTPUT_VALUES = 1 << 25, 1 << 20
"""Most values of the sample that each step looks at, before and after the transform (but at least 1000 vectors)."""
_PRODUCTS = 1 << 23
"""Most inner products that are held at a time while neighbours are searched."""
_NEAR, _FAR = (1, 3), (20, 100)
"""Ranks of the near neighbours, and of the far ones that they are compared with."""
_DRAWS = 5
_SOFTNESS = 0.4
"""Softness of the signs, in deviations. With less, gradients are noise; with more, signs are no longer signs."""
_QUANTISATION = 3.0
"""Weight of mean |z| / deviation, relative to mean / deviation of the margins."""


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
    turned = np.empty_like(tiles)

    def evaluate(angles: Doubles) -> tuple[float, Doubles]:
        theta = angles.astype(np.float32)
        _native.tiles_turn(tiles, i, j, theta, turned)
        value, slopes = objective(turned)
        return -value, -_native.tiles_slopes(turned, slopes, i, j, theta)

    thetas = np.split(descend(evaluate, start, steps).astype(np.float32), ends[:-1])
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
        # In double precision, what a BLAS with other threads adds up otherwise is lost in the rounding.
        products = (covariance_of_trace_1 @ columns.astype(np.float64)).astype(np.float32)
        return float(np.sum(columns * products, dtype=np.float64)), tiled(2 * products)

    units = np.zeros((len(covariance), len(kept)), dtype=np.float32)
    units[kept, np.arange(len(kept))] = 1
    return _reversed(ascend(_reversed(layers), tiled(units), variance, VARIANCE_STEPS))


def _reversed(layers: Layers) -> Layers:
    return [(i, j, -theta) for i, j, theta in layers[::-1]]


def sample_size(d: int, d_out: int) -> int:
    """Return how many vectors `keep_neighbours` is to be given."""
    # At full dimension more vectors gain little, and training is to take less time than ITQ's.
    values = _OUTPUT_VALUES if d_out < d else _OUTPUT_VALUES // 2
    return min(MOST_VECTORS, max(1000, min(values // d_out, _INPUT_VALUES // d)))


def keep_neighbours(
    rotation: PairwiseRotation,
    kept: Indices,
    n_last: int,
    x: Floats,
    mean: Doubles,
    seed: int,
) -> PairwiseRotation:
    """
    Optimise the angles of the last layers so that neighbours among the vectors have similar signs.

    Only the last layers, which rotate the kept dimensions, are changed. With all layers, it overfits the sample.

    Parameters
    ----------
    rotation : PairwiseRotation
    kept : ndarray of int32
        The dimensions that come out.
    n_last : int
        How many layers.
    x : ndarray of float32, shape (m, n)
        The vectors: `sample_size` of them, or all if there are fewer.
    mean : ndarray
        Mean of the vectors.
    seed : int
        Seed of the choice of neighbours.
    """
    if len(x) < FEWEST_VECTORS or n_last == 0 or len(kept) < 2:
        return rotation
    vectors = x - mean.astype(np.float32)
    rng = np.random.default_rng(seed)
    rows = np.ascontiguousarray(vectors.T)
    first, last = rotation.layers[:-n_last], rotation.layers[-n_last:]
    for layer in first:
        _native.rows_rotate(rows, *layer)
    rows = rows[kept]
    deviation = float(np.sqrt(np.mean(np.square(rows, dtype=np.float64))))
    if deviation == 0:
        return rotation
    place = np.zeros(rotation.d, dtype=np.int32)
    place[kept] = np.arange(len(kept))
    neighbours = nearest(vectors)
    before = [(place[i], place[j], theta) for i, j, theta in last]
    objective = neighbours_alike(len(rows), neighbours, rng)
    after = ascend(before, tiled(rows / np.float32(deviation)), objective, NEIGHBOUR_STEPS)
    if neighbours_found(after, rows, neighbours) < neighbours_found(before, rows, neighbours):
        return rotation  # as with few clusters far apart, which leave the gradient no hold
    return PairwiseRotation(rotation.d, [*first, *((kept[i], kept[j], theta) for i, j, theta in after)])


def nearest(vectors: Floats) -> Ids:
    """Return, for each centred vector, itself (or an equal one) and its nearest neighbours."""
    whole = whole_numbers(vectors, over=0)
    norms = np.square(whole).sum(axis=1)
    neighbours = np.empty((len(whole), _FAR[1] + 1), dtype=np.int64)
    block = max(16, _PRODUCTS // len(whole))
    for first in range(0, len(whole), block):
        part = slice(first, first + block)
        _native.nearest(whole[part] @ whole.T, norms[part], norms, neighbours[part])
    return neighbours


def neighbours_found(layers: Layers, rows: Floats, neighbours: Ids) -> float:
    """Return the share of the ten nearest neighbours among the hundred nearest codes, for up to 1000 vectors."""
    rows = rows.copy()
    for layer in layers:
        _native.rows_rotate(rows, *layer)
    codes = np.packbits(rows >= 0, axis=0).T.copy()
    index = faiss.IndexBinaryFlat(8 * codes.shape[1])
    index.add(codes)
    _, found = index.search(codes[:1000], 101)
    return float((found[:, :, None] == neighbours[:1000, None, 1:11]).any(axis=1).mean())


def neighbours_alike(n: int, neighbours: Ids, rng: np.random.Generator) -> Objective:
    """
    Return an objective: how well signs tell near neighbours from far ones, and how far values are from zero.

    For a vector, one of its nearest and one of its farther neighbours, the margin is the difference of the Hamming
    distances, with soft signs. The objective is the margins' mean over their deviation, and mean |value|.

    Parameters
    ----------
    n : int
        Number of dimensions.
    neighbours : ndarray of int64
        What `nearest` returns.
    rng : Generator
        Draws the neighbours that are compared.
    """
    which = np.tile(np.arange(len(neighbours)), (_DRAWS, 1)).T
    near, far = (neighbours[which, rng.integers(low, high + 1, which.shape)] for low, high in (_NEAR, _FAR))
    signs = SoftSigns(n, np.concatenate([near, far], axis=1).astype(np.int32), _SOFTNESS)

    def objective(tiles: Floats) -> tuple[float, Floats]:
        products, magnitude = signs.products(tiles)
        margins = products[:, :_DRAWS] - products[:, _DRAWS:]
        mean, deviation = float(margins.mean()), float(margins.std()) or 1.0
        slope = (1 - mean * (margins - mean) / deviation**2) / (deviation * margins.size)
        slopes = signs.slopes(tiles, np.concatenate([slope, -slope], axis=1), _QUANTISATION)
        return mean / deviation + _QUANTISATION * magnitude, slopes

    return objective
