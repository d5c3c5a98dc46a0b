"""
Few bits: a dense matrix at the end, where it is worth its time.

A small matrix takes no longer than rotations would, and there are none. Of very many dimensions, PCA alone is a large
matrix, and rotations alone keep far less of the variance. The principal directions of the sample are found first.
Rotations then merge dimensions, two by two, so that what is dropped has little to do with them, until as many are left
as a dense matrix within a budget takes.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from .._backend import kernels
from .._common.arrays import whole_numbers
from .._common.types import Doubles, Floats, Indices
from .exact import exact_gram, exact_product, orthonormal, principal
from .layers import Learner, pca_angle
from .moments import MAX_COVARIANCE, CovarianceMoments, Moments, SampleMoments
from .pairing import matching, mutual_best

Layers = list[tuple[Indices, Indices, Floats]]

DENSE_PRODUCTS = 1 << 16
"""Multiplications of a matrix that takes about as long as rotations, and gives better codes."""
MOST_PRODUCTS = 1 << 20
"""Multiplications that a tail may take, where there are too many dimensions for a covariance matrix."""
LEAST_WIDTH = 4
"""A tail is worth its time if it takes at least as many times more dimensions than it gives."""
MORE_ROTATIONS, MORE_LAYERS = 36_000, 12
"""Most rotations between kept and dropped dimensions, after merging, and most layers of them."""
_GROUP = 1000
"""Dimensions among which partners are looked for."""
_SAMPLE = 2048
"""Training vectors that are enough to find principal directions."""


class Tailed(NamedTuple):
    """Rotations, what is kept of them, the matrix that follows, and the moments of its outputs."""

    layers: Layers
    kept: Indices
    tail: Floats
    moments: Moments


def tail_width(d: int, d_out: int, tune: bool) -> int:
    """
    Return from how many dimensions a tail starts, or 0 if there is none.

    Examples
    --------
    >>> [tail_width(d, d_out, tune=True) for d, d_out in [(25600, 256), (25600, 1024), (784, 64), (784, 256)]]
    [4096, 0, 784, 0]
    >>> tail_width(784, 64, tune=False)  # as in the paper: only rotations
    0
    """
    if d <= MAX_COVARIANCE:
        return d if tune and d_out < d and d * d_out <= DENSE_PRODUCTS else 0
    width = min(d, MOST_PRODUCTS // d_out)
    return width if width >= LEAST_WIDTH * d_out else 0


def learn_tail(moments: Moments, d_out: int, width: int, seed: int) -> Tailed:
    """Learn rotations that bring the principal directions into `width` dimensions, and a tail to `d_out` from there."""
    if isinstance(moments, CovarianceMoments):
        return _principal_rows(moments.matrix(), d_out)
    assert isinstance(moments, SampleMoments)
    rng = np.random.default_rng(seed)
    columns = np.sort(rng.permutation(moments.rows.shape[1])[:_SAMPLE])
    kept = np.arange(len(moments.rows), dtype=np.int32)
    layers: Layers = []
    if width < len(kept):
        layers, kept = merged(_loadings(moments.rows[:, columns], d_out).astype(np.float32), width, rng)
        for layer in layers:
            moments.rotate(*layer)
    rows = moments.rows[kept]
    loadings = _loadings(rows[:, columns], d_out)
    basis = orthonormal(np.pad(loadings, ((0, 0), (0, d_out - loadings.shape[1]))))
    outputs = exact_product(rows.T, basis).astype(np.float32)
    return Tailed(layers, kept, _as_rows(basis), SampleMoments(outputs))


def _principal_rows(covariance: Doubles, d_out: int) -> Tailed:
    """Return principal directions as a tail of all dimensions."""
    d = len(covariance)
    more = max(8, d_out // 2)  # than needed: they are found sooner
    basis = principal(covariance, min(d_out + more, (d_out + d) // 2))
    within = exact_product(basis.T, exact_product(covariance, basis))
    learner = Learner(CovarianceMoments.of((within + within.T) / 2))
    best = learner.concentrate(d_out)
    rows = _as_rows(basis)
    for layer in learner.layers:
        kernels.rows_rotate(rows, *layer)
    tail = orthonormal(rows[best].T.astype(np.float64))
    outputs = exact_product(tail.T, exact_product(covariance, tail))
    return Tailed([], np.arange(d, dtype=np.int32), _as_rows(tail), CovarianceMoments.of((outputs + outputs.T) / 2))


def _as_rows(basis: Doubles) -> Floats:
    return np.ascontiguousarray(basis.T, dtype=np.float32)


def _loadings(rows: Floats, count: int) -> Doubles:
    """Return what the dimensions, one a row, have of the first principal directions of a sample."""
    return exact_product(rows, principal(exact_gram(rows), count))


def merged(loadings: Floats, width: int, rng: np.random.Generator) -> tuple[Layers, Indices]:
    """
    Rotate dimensions in pairs, and drop the lesser of each, until `width` are left.

    Parameters
    ----------
    loadings : ndarray of float32, shape (d, count)
        What each dimension has of the directions that are to be kept. It is rotated along.
    width : int
        How many dimensions to keep.
    rng : Generator

    Returns
    -------
    layers : list of (i, j, theta)
    kept : ndarray of int32

    Examples
    --------
    >>> import numpy as np
    >>> layers, kept = merged(np.array([[3], [4]], "f4"), 1, np.random.default_rng(0))
    >>> len(layers[0]), kept.tolist()
    (3, [1])
    """
    merging = _Merging(loadings)
    left = np.arange(len(loadings), dtype=np.int32)
    while len(left) > width:
        left = merging.halve(left, width, rng)
    for _ in range(min(MORE_LAYERS, -(-MORE_ROTATIONS // width))):
        merging.exchange(left, rng)
    return merging.layers, np.sort(left)


class _Merging:
    def __init__(self, loadings: Floats) -> None:
        self.loadings = loadings
        self.layers: Layers = []

    def halve(self, left: Indices, width: int, rng: np.random.Generator) -> Indices:
        """Merge pairs of those that are left, but no more than needed. Return what is then left."""
        directions, energies = self.described(left)
        first, second = [], []
        for group in _alike(directions, rng):
            if len(group) > 1:
                i, j = matching(_merging_gain(directions[group], energies[group]))
                first.append(group[i])
                second.append(group[j])
        i, j = left[np.concatenate(first)], left[np.concatenate(second)]
        losses = self.losses(i, j)
        best = np.sort(np.argsort(losses, kind="stable")[: len(left) - width])
        i, j = i[best], j[best]
        if not len(i):  # cannot be: of every group, the pair with the least loss is made
            raise RuntimeError("no dimensions to merge")
        lesser = self.turn(i, j)
        is_left = np.zeros(len(self.loadings), dtype=bool)
        is_left[left] = True
        is_left[lesser] = False
        return np.flatnonzero(is_left).astype(np.int32)

    def exchange(self, kept: Indices, rng: np.random.Generator) -> None:
        """Turn pairs of a kept and a dropped dimension so that the kept one takes what it can."""
        is_dropped = np.ones(len(self.loadings), dtype=bool)
        is_dropped[kept] = False
        dropped = np.flatnonzero(is_dropped).astype(np.int32)
        dropped = dropped[np.argsort(-self.energies(dropped), kind="stable")[: len(kept)]]
        parts = -(-len(kept) // _GROUP)
        pairs = []
        for some, others in zip(
            np.array_split(rng.permutation(kept), parts), np.array_split(rng.permutation(dropped), parts), strict=True
        ):
            (mine, mine_energy), (theirs, their_energy) = self.described(some), self.described(others)
            c = (mine @ theirs.T) * _units(mine, mine_energy)[:, None] * _units(theirs, their_energy)
            half = (mine_energy[:, None] - their_energy) / 2
            i, j = mutual_best(np.sqrt(c * c + half * half) - half)
            pairs.append((some[i], others[j]))
        self.turn(*(np.concatenate(part) for part in zip(*pairs, strict=True)))

    def energies(self, which: Indices) -> Doubles:
        return kernels.rows_covariances(self.loadings, which, which)

    def described(self, which: Indices) -> tuple[Floats, Doubles]:
        """Return the directions of some loadings, as whole numbers whose products are exact, and their energies."""
        energies = self.energies(which)
        lengths = np.sqrt(np.where(energies > 0, energies, 1)).astype(np.float32)
        return whole_numbers(self.loadings[which] / lengths[:, None], over=1), energies

    def losses(self, i: Indices, j: Indices) -> Doubles:
        a, b, c = self.energies(i), self.energies(j), kernels.rows_covariances(self.loadings, i, j)
        return (a + b) / 2 - np.hypot((a - b) / 2, c)

    def turn(self, i: Indices, j: Indices) -> Indices:
        """Turn pairs to their principal axes, so that the larger keeps most. Return the lesser ones."""
        a, b = self.energies(i), self.energies(j)
        i, j = np.where(a < b, j, i), np.where(a < b, i, j)
        a, b, c = np.maximum(a, b), np.minimum(a, b), kernels.rows_covariances(self.loadings, i, j)
        theta = pca_angle(a, b, c).astype(np.float32)
        kernels.rows_rotate(self.loadings, i, j, theta)
        self.layers.append((i, j, theta))
        return j


def _alike(directions: Floats, rng: np.random.Generator) -> list[Indices]:
    """Split rows into groups of rows with similar directions, by which of two of them a row is more like."""
    groups = [np.arange(len(directions), dtype=np.int32)]
    lengths = np.sqrt(_squares(directions))
    while len(groups[0]) > _GROUP:
        halves = []
        for group in groups:
            two = group[rng.integers(len(group), size=2)]
            alike = np.abs(directions[group] @ directions[two].T) / lengths[two]
            order = group[np.argsort((alike[:, 0] - alike[:, 1]) / lengths[group], kind="stable")]
            halves += np.array_split(order, 2)
        groups = halves
    return groups


def _merging_gain(directions: Floats, energies: Doubles) -> Doubles:
    """Return what is good about merging two dimensions: that little is lost."""
    units = _units(directions, energies)
    gain: Doubles = (directions @ directions.T) * (units[:, None] * units)
    np.square(gain, out=gain)
    halves = energies / 2
    gain += np.square(halves[:, None] - halves)
    np.sqrt(gain, out=gain)
    gain -= halves[:, None] + halves  # less than zero: by what is lost
    gain += 2 * (energies.max() or 1.0)  # so that every pair is worth something
    return gain


def _units(directions: Floats, energies: Doubles) -> Doubles:
    """Return what directions, as whole numbers, are to be multiplied with to have their energies."""
    units: Doubles = np.sqrt(energies / _squares(directions))
    return units


def _squares(rows: Floats) -> Doubles:
    """Return the squared lengths of rows of whole numbers, and 1 for zeros."""
    squares: Doubles = np.maximum(np.einsum("ij,ij->i", rows, rows), 1).astype(np.float64)
    return squares
