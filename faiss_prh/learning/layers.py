"""Learn a PairwiseRotation from second moments: the pairs of each layer, and their angles."""

from __future__ import annotations

from functools import partial

import numpy as np
import numpy.typing as npt

from .._common.types import Doubles, Floats, Indices
from ..rotation import PairwiseRotation, random_pairings
from .joint_angles import keep_variance
from .moments import Angle, CovarianceMoments, Moments
from .parameters import Parameters, layers_for
from .progress import tell

MAX_REDUCTION_LAYERS = 600
MATCHED_LAYERS = 3
LEAST_BUDGET, BUDGET = 2.0, 4.0
"""Least and most rotations between kept and dropped dimensions, in units of (n / 2) ⌈log2 n⌉."""
WORTH = 0.015
"""How much a unit of rotations must add to the kept variance, relative to it, to go on beyond the least."""
LEAST_GROWTH, MOST_EXCHANGES = 1e-5, 200
"""Where rotations cost nothing later: how much the kept variance must grow to go on, and most layers."""
SAMPLE_BUDGET = 30_000
"""Number of rotations where a covariance matrix would be too large. More gained little there."""
MAX_JOINT = 2048
"""Most dimensions for which all these angles are then optimised together."""


def isotropic_angle(a: Doubles, b: Doubles, c: Doubles) -> Doubles:
    """
    Return the angles that make the variances of pairs equal, of those the ones within ±π/4.

    Parameters
    ----------
    a, b, c : ndarray
        Variances of the two dimensions of each pair, and their covariance.

    Examples
    --------
    >>> import numpy as np
    >>> theta = isotropic_angle(np.array([3.0]), np.array([1.0]), np.array([0.5]))
    >>> [v.round(6).tolist() for v in rotated_variances(np.array([3.0]), np.array([1.0]), np.array([0.5]), theta)]
    [[2.0], [2.0]]
    """
    angle: Doubles = np.arctan2(np.where(c < 0, b - a, a - b), 2 * np.abs(c)) / 2
    return angle


def pca_angle(a: Doubles, b: Doubles, c: Doubles) -> Doubles:
    """Return the angles that make the covariances of pairs zero and give the first the larger variance."""
    return np.arctan2(-2 * c, a - b) / 2


def tilted_angle(a: Doubles, b: Doubles, c: Doubles, tilt: float) -> Doubles:
    """
    Return the angles that lie `tilt` of the way from the isotropic to the principal axes.

    The two always lie π/4 apart.

    Examples
    --------
    >>> import numpy as np
    >>> pairs = np.array([3.0, 3.0]), np.array([1.0, 1.0]), np.array([0.5, -0.5])
    >>> bool(np.allclose(tilted_angle(*pairs, tilt=1.0), pca_angle(*pairs)))
    True
    """
    return isotropic_angle(a, b, c) - tilt * np.where(c < 0, -np.pi / 4, np.pi / 4)


def rotated_variances(a: Doubles, b: Doubles, c: Doubles, theta: npt.NDArray[np.floating]) -> tuple[Doubles, Doubles]:
    """Return the two variances of each pair after a rotation by `theta`."""
    theta = theta.astype(np.float64)
    mean, half_difference = (a + b) / 2, (a - b) / 2
    turned = half_difference * np.cos(2 * theta) - c * np.sin(2 * theta)
    return np.maximum(mean + turned, 0), np.maximum(mean - turned, 0)


class Learner:
    """Adds layers one by one; the moments are rotated along."""

    def __init__(self, moments: Moments) -> None:
        self.moments = moments
        self.variances = moments.variances()
        self.layers: list[tuple[Indices, Indices, Floats]] = []

    def add(self, i: Indices, j: Indices, angle: Angle, equal: bool = False) -> None:
        """Turn pairs by the angles that follow from their variances and covariance."""
        a, b = self.variances[i], self.variances[j]
        theta, c = self.moments.turn(i, j, a, b, angle)
        # Rounding apart, an isotropic layer makes the two equal. Making them so exactly keeps dimensions that
        # have been paired together in the next sorting, and so the layers in the form of small cubes, which
        # the native code applies without leaving the first-level cache.
        self.variances[i], self.variances[j] = ((a + b) / 2,) * 2 if equal else rotated_variances(a, b, c, theta)
        self.layers.append((i, j, theta))

    def largest(self, count: int) -> tuple[Indices, Indices]:
        """Return the dimensions of the largest variances, and the others."""
        threshold = np.partition(self.variances, -count)[-count]
        is_kept = self.variances > threshold
        equal = np.flatnonzero(self.variances == threshold)
        is_kept[equal[: count - np.count_nonzero(is_kept)]] = True
        return np.flatnonzero(is_kept).astype(np.int32), np.flatnonzero(~is_kept).astype(np.int32)

    def reduce(self, count: int) -> Indices:
        """Bring the variance into `count` dimensions, and return these."""
        n = len(self.variances)
        everything = np.arange(n, dtype=np.int32)
        for _ in range(MATCHED_LAYERS):
            self.add(*self.moments.matched(everything, everything, lambda i, j, c: c**2), pca_angle)
        has_covariance = isinstance(self.moments, CovarianceMoments)
        unit = n / 2 * layers_for(n) if has_covariance else SAMPLE_BUDGET / BUDGET
        spent = 0.0
        while spent < BUDGET and len(self.layers) < MAX_REDUCTION_LAYERS:
            tell("reducing dimensions", spent / BUDGET)
            pairs, growth = self.exchange(count)
            spent += pairs / unit
            if not pairs or (spent >= LEAST_BUDGET and growth < WORTH * pairs / unit):
                break
        kept = self.largest(count)[0]
        if isinstance(self.moments, CovarianceMoments) and n <= MAX_JOINT:
            self.turn_jointly(self.moments, kept)
        return kept

    def concentrate(self, count: int) -> Indices:
        """Bring what variance the first principal directions have into `count` dimensions, and return these."""
        for _ in range(MOST_EXCHANGES):
            if self.exchange(count)[1] < LEAST_GROWTH:
                break
        return self.largest(count)[0]

    def exchange(self, count: int) -> tuple[int, float]:
        """Turn pairs of a kept and a dropped dimension. Return how many, and by which share the kept variance grew."""
        kept, dropped = self.largest(count)
        i, j = self.moments.matched(kept, dropped, self.gain)
        before = self.variances[kept].sum()
        if not len(i) or not before:
            return 0, 0.0
        self.add(i, j, pca_angle)
        return len(i), float(self.variances[kept].sum() / before - 1)

    def gain(self, i: Indices, j: Indices, c: Doubles) -> Doubles:
        """Return what the variances of dimensions i gain at the principal axes of the pairs (i, j)."""
        half: Doubles = (self.variances[i] - self.variances[j]) / 2
        return np.sqrt(half * half + c * c) - half

    def turn_jointly(self, moments: CovarianceMoments, kept: Indices) -> None:
        """Turn all angles so far for what they do together to the variance of the kept dimensions."""
        for i, j, theta in reversed(self.layers):
            moments.rotate(i, j, -theta)
        self.layers = keep_variance(self.layers, kept, moments.matrix())
        for layer in self.layers:
            moments.rotate(*layer)
        self.variances = moments.variances()

    def make_isotropic(self, dimensions: Indices, parameters: Parameters) -> None:
        """Add layers that pair the largest with the smallest variances."""
        order = dimensions[np.argsort(-self.variances[dimensions], kind="stable")]
        d, half = len(order), len(order) // 2
        for number in range(parameters.n_iso):
            tell("making variances equal", number / parameters.n_iso)
            i, middle, j = order[:half].copy(), order[half : d - half], order[::-1][:half].copy()
            self.add(i, j, partial(tilted_angle, tilt=parameters.tilt), equal=parameters.tilt == 0)
            order = np.concatenate([np.stack([i, j], axis=1).ravel(), middle])
            order = order[np.argsort(-self.variances[order], kind="stable")]


def learn(moments: Moments, parameters: Parameters, d_out: int | None = None) -> tuple[PairwiseRotation, Indices]:
    """
    Learn a rotation from the moments of a sample, which are rotated along, and which dimensions to keep of it.

    The last n_iso + n_pca layers turn only those that are kept.

    Examples
    --------
    >>> import numpy as np
    >>> from faiss_prh.learning.moments import CovarianceMoments
    >>> moments = CovarianceMoments(4)
    >>> moments.update(np.random.default_rng(0).normal(size=(100, 4)) * [1, 2, 3, 4])
    >>> rotation, kept = learn(moments, Parameters(n_iso=2, n_pca=0, tilt=0.0, seed=0, tune=False, center=True))
    >>> variances = moments.variances()
    >>> bool(np.ptp(variances) < 1e-6 * variances.max())
    True
    """
    learner = Learner(moments)
    n = len(learner.variances)
    kept = np.arange(n, dtype=np.int32) if d_out is None or d_out >= n else learner.reduce(d_out)
    learner.make_isotropic(kept, parameters)
    for i, j in random_pairings(len(kept), parameters.n_pca, np.random.default_rng(parameters.seed)):
        learner.add(kept[i], kept[j], pca_angle)
    return PairwiseRotation(n, learner.layers), kept


def learn_expansion(moments: Moments, parameters: Parameters) -> tuple[PairwiseRotation, Indices]:
    """
    Learn a rotation of moments some of whose dimensions are always zero, so that all get their share.

    After the isotropic layers, ⌈log2 n⌉ layers of random angles: measured, as good as a random orthonormal frame.
    """
    learner = Learner(moments)
    n = len(learner.variances)
    everything = np.arange(n, dtype=np.int32)
    learner.make_isotropic(everything, parameters)
    mixing = PairwiseRotation.random(n, layers_for(n), parameters.seed)
    return PairwiseRotation(n, [*learner.layers, *mixing.layers]), everything
