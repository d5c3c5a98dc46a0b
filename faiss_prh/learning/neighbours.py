"""Learning the angles of the last layers from neighbours in a sample, judged by vectors that were kept aside."""

from __future__ import annotations

import itertools
from typing import NamedTuple

import faiss
import numpy as np

from .._backend import kernels
from .._common.arrays import largest_deviation, packed_signs, whole_numbers
from .._common.types import Doubles, Floats, Ids, Indices
from ..rotation import PairwiseRotation
from .joint_angles import Layers, Objective, ascend
from .tiles import SoftSigns, tiled

FEWEST_VECTORS = 200
MOST_VECTORS = 8000
_INPUT_VALUES, _OUTPUT_VALUES = 1 << 25, 1 << 20
"""Most values of the sample that each step looks at, before and after the transform (but at least 1000 vectors)."""
_ASIDE, _MOST_ASIDE = 8, 500
"""One vector in so many is kept aside to judge by, and at most so many are."""
STEPS, STEPS_FEWER_BITS = (15, 15), (30,)
"""Steps to see whether it helps, and steps after that if it does much. For fewer bits than dimensions, all are made."""
STEPS_FROM_SCRATCH = 30, (15,)
"""The same where angles were random: steps away from zero first, and then those."""
_ALIKE, _WORTH = 0.985, 1.06
"""Of what was found before: a share that may be chance, as few vectors are kept aside; and one worth more steps."""
_BLOCKS = 8
"""Parts into which the sample is cut."""
NEAR, FAR = (1, 5), (2, 12)
"""Ranks of near partners among all, and of farther ones among a vector's own block. (Rank 0 is the vector itself.)"""
N_NEAR, N_FAR, N_ANY = 4, 2, 2
"""Partners of each vector: near ones to compare with farther ones and any."""
_SOFTNESS = 0.4
"""Softness of the signs, in deviations. With less, gradients are noise; with more, signs are no longer signs."""
_WEIGHT, _MOST_WEIGHT = 0.8, 14.0
"""Weight of mean |z| / deviation for one bit, and the most; it grows as mean / deviation of the margins, as √bits."""
_SEARCHED, _FOUND = 10, (10, 100)


def sample_size(d: int, d_out: int) -> int:
    """Return how many vectors `keep_neighbours` is to be given."""
    part = 1 if d_out < d else 2  # at full dimension, more vectors gain nothing
    return min(MOST_VECTORS // part, max(1000, min(_OUTPUT_VALUES // part // d_out, _INPUT_VALUES // d)))


def keep_neighbours(
    rotation: PairwiseRotation,
    kept: Indices,
    n_last: int,
    x: Floats,
    mean: Doubles,
    seed: int,
    from_scratch: Floats | None = None,
) -> PairwiseRotation:
    """
    Optimise the angles of the last layers so that neighbours among the vectors have similar signs.

    Only the last layers, which rotate the kept dimensions, are changed. With all layers, it overfits the sample. Some
    vectors are kept aside: if more of their neighbours are found with the angles as they were, those stay.

    Parameters
    ----------
    rotation : PairwiseRotation
    kept : ndarray of int32
        The dimensions that come out.
    n_last : int
        How many layers.
    x : ndarray of float32, shape (m, n)
        The vectors, in random order: `sample_size` of them, or all if there are fewer.
    mean : ndarray
        Mean of the vectors.
    seed : int
        Seed of the choice of neighbours.
    from_scratch : ndarray of float32, optional
        If angles are random, and `x` is what has already been made of the vectors: these, centred, by which neighbours
        are found.
    """
    if len(x) < FEWEST_VECTORS or n_last == 0 or len(kept) < 2:
        return rotation
    vectors = x - mean.astype(np.float32)
    rows = np.ascontiguousarray(vectors.T)
    first, last = rotation.layers[:-n_last], rotation.layers[-n_last:]
    for layer in first:
        kernels.rows_rotate(rows, *layer)
    rows = rows[kept]
    deviation = largest_deviation(rows.reshape(1, -1), over=1)
    if deviation == 0:
        return rotation
    place = np.zeros(rotation.d, dtype=np.int32)
    place[kept] = np.arange(len(kept))
    before = [(place[i], place[j], theta) for i, j, theta in last]
    rows /= np.float32(deviation)
    if from_scratch is None:
        steps = STEPS if len(kept) == rotation.d else STEPS_FEWER_BITS
        after = tuned(before, rows, whole_numbers(vectors, over=0), seed, 0, steps)
    else:
        after = tuned(before, rows, whole_numbers(from_scratch, over=0), seed, *STEPS_FROM_SCRATCH)
    return PairwiseRotation(rotation.d, [*first, *((kept[i], kept[j], theta) for i, j, theta in after)])


def tuned(
    layers: Layers,
    rows: Floats,
    whole: Floats,
    seed: int,
    steps_away: int,
    steps_alike: tuple[int, ...],
) -> Layers:
    """
    Return layers with better angles, or as they are.

    Parameters
    ----------
    layers : list of (i, j, theta)
    rows : ndarray of float32, shape (n, m)
        A row for each dimension, before the layers.
    whole : ndarray of float32, shape (m, d)
        The vectors by which neighbours are found, in random order.
    seed : int
    steps_away : int
        Steps that only bring values away from zero, to begin with.
    steps_alike : tuple of int
        Steps for neighbours, after each of which it is judged whether they helped, and whether more may be worth it.
    """
    n_learned = len(whole) - min(_MOST_ASIDE, len(whole) // _ASIDE)
    judge = Judge(rows, n_learned, kernels.nearest(whole[n_learned:], whole[:n_learned], _SEARCHED))
    weight = min(_MOST_WEIGHT, _WEIGHT * len(rows) ** 0.5)
    objective = neighbours_alike(len(rows), partners(whole[:n_learned], np.random.default_rng(seed)), weight)
    learned = tiled(rows[:, :n_learned])
    best, found = layers, judge.found(layers)
    if steps_away:
        layers = ascend(layers, learned, away_from_zero, steps_away)
        found_now = judge.found(layers)
        if found_now < _ALIKE * found:  # as with clusters, of which all vectors then have the same code
            return best
        best, found = layers, max(found, found_now)
    for steps in steps_alike:
        layers = ascend(layers, learned, objective, steps)
        found_now = judge.found(layers)
        if found_now < _ALIKE * found:  # as with few clusters far apart, which leave the gradient no hold
            break
        is_worth_more, best, found = found_now > _WORTH * found, layers, max(found, found_now)
        if not is_worth_more:
            break
    return best


class Judge(NamedTuple):
    """
    Tells how many neighbours are found of vectors that nothing was learned from.

    Parameters
    ----------
    rows : ndarray of float32, shape (n, m)
        A row for each dimension, before the layers; of the vectors learned from, and then of those kept aside.
    n_learned : int
        How many were learned from.
    neighbours : ndarray of int64
        For each vector kept aside, its nearest neighbours among those learned from.
    """

    rows: Floats
    n_learned: int
    neighbours: Ids

    def found(self, layers: Layers) -> float:
        """Return the share of neighbours among the ten and the hundred nearest codes: the mean of the two."""
        rows = self.rows.copy()
        for layer in layers:
            kernels.rows_rotate(rows, *layer)
        codes = packed_signs(np.ascontiguousarray(rows.T))
        index = faiss.IndexBinaryFlat(8 * codes.shape[1])
        index.use_heap = False  # counting is faster for so many results
        index.add(codes[: self.n_learned])
        _, ids = index.search(codes[self.n_learned :], min(_FOUND[-1], self.n_learned))
        is_found = (ids[:, :, None] == self.neighbours[:, None, :]).any(axis=2)
        return float(np.mean([is_found[:, :k].sum() for k in _FOUND]) / self.neighbours.size)


def partners(whole: Floats, rng: np.random.Generator) -> Indices:
    """
    Return for each vector some near ones, some that are farther, and any, as columns.

    Parameters
    ----------
    whole : ndarray of float32, shape (m, n)
        Vectors of whole numbers: products of them do not depend on the order in which they are added up.
    rng : Generator
        Draws them.

    Examples
    --------
    >>> import numpy as np
    >>> whole = np.random.default_rng(0).integers(-9, 9, size=(400, 8)).astype("f4")
    >>> partners(whole, np.random.default_rng(0)).shape
    (400, 8)
    """
    m = len(whole)
    near = kernels.nearest(whole, whole, NEAR[1] + 1)
    edges = [m * number // _BLOCKS for number in range(_BLOCKS + 1)]
    blocks = [(start, whole[start:end]) for start, end in itertools.pairwise(edges)]
    far = np.concatenate([start + kernels.nearest(block, block, FAR[1] + 1) for start, block in blocks])
    these = np.arange(m)[:, None]
    some = [
        neighbours[these, rng.integers(low, high + 1, (m, n))]
        for neighbours, (low, high), n in ((near, NEAR, N_NEAR), (far, FAR, N_FAR))
    ]
    others = (these + rng.integers(1, m, (m, N_ANY))) % m
    return np.concatenate([*some, others], axis=1).astype(np.int32)


def away_from_zero(tiles: Floats) -> tuple[float, Floats]:
    """Return the mean of |values|, which is what ITQ maximises, and its derivative."""
    slopes = np.empty_like(tiles)
    return kernels.tiles_signs(tiles, 1 / tiles.size, slopes) / tiles.size, slopes


def neighbours_alike(n: int, all_partners: Indices, weight: float) -> Objective:
    """
    Return an objective: how well signs tell near vectors from others, and how far values are from zero.

    For a vector, a near partner and one that is not, the margin is the difference of the Hamming distances, with soft
    signs. The objective is the margins' mean over their deviation, and mean |value|.

    Parameters
    ----------
    n : int
        Number of dimensions.
    all_partners : ndarray of int32
        What `partners` returns.
    weight : float
        Of mean |value|.
    """
    signs = SoftSigns(n, all_partners, _SOFTNESS)

    def objective(tiles: Floats) -> tuple[float, Floats]:
        products, magnitude = signs.products(tiles)
        margins = products[:, :N_NEAR] - products[:, N_NEAR:]
        mean, deviation = float(margins.mean()), float(margins.std()) or 1.0
        slope = (1 - mean * (margins - mean) / deviation**2) / (deviation * margins.size)
        slopes = signs.slopes(tiles, np.concatenate([slope, -slope], axis=1), weight)
        return mean / deviation + weight * magnitude, slopes

    return objective
