"""Learn a Model: from one array, from a sample of batches, or from moments gathered batch by batch."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from .._backend import kernels
from .._common.arrays import LARGEST_NORM, as_vectors, check_usable
from .._common.numbers import as_int
from .._common.types import Vectors
from ..rotation import PairwiseRotation
from .exact import exact_product
from .layers import learn, learn_expansion
from .model import Model, spread_of, without_idle_rotations
from .moments import MAX_COVARIANCE, CovarianceMoments, Moments, SampleMoments, moments_of
from .neighbours import keep_neighbours, sample_size
from .parameters import Parameters, layers_for
from .sampling import DistinctSample, Sample
from .tail import learn_tail, tail_width

_DESCRIBED = 1000
"""Vectors that are enough to tell how much of the variance is kept."""
_LAYERS_OF_TAIL = 10
"""Layers that are tuned and then multiplied into a tail, as multiples of ⌈log2 bits⌉."""


class Gathered:
    """
    Exact second moments of vectors, and a sample of them: all that training needs. Immutable.

    Parameters
    ----------
    d, d_out : int
        Dimension of the vectors, and number of bits to learn.
    parameters : Parameters
        What to learn.
    x : array of shape (m, d)
        The vectors.
    """

    def __init__(self, d: int, d_out: int, parameters: Parameters, x: npt.ArrayLike) -> None:
        if d > MAX_COVARIANCE:
            raise ValueError(
                f"the exact moments of {d} dimensions take too much memory (at most {MAX_COVARIANCE} dimensions):"
                " use train(batches), which keeps a sample"
            )
        vectors = as_vectors(x, d, "training vectors")
        check_usable(vectors, "training vector")
        self.purpose = d, d_out, parameters
        self._moments, self._sample = CovarianceMoments(d), _empty_sample(d, d_out, parameters)
        self._moments.update(vectors)
        self._sample.update(vectors)

    def merged(self, other: Gathered) -> Gathered:
        """Return what was gathered from the vectors of both, for the same purpose."""
        both = copy.copy(self)
        both._moments = self._moments.merged(other._moments)
        both._sample = copy.deepcopy(self._sample)
        both._sample.merge(other._sample)
        return both

    def learn(self) -> Model:
        """Learn from what was gathered."""
        if not self._moments.count:
            raise ValueError("training needs at least one vector")
        d, d_out, parameters = self.purpose
        return _learn(self._moments.rounded(max(d, d_out)), self._sample, d, d_out, parameters)


def learn_from_array(x: Vectors, d_out: int, parameters: Parameters) -> Model:
    """Learn from an array of shape (m, d)."""
    if len(x) == 0:
        raise ValueError("training needs at least one vector")
    d = x.shape[1]
    with np.errstate(invalid="ignore", over="ignore"):
        moments = moments_of(x, d_out, parameters.tune)
        squared_norms = len(x) * (np.square(moments.mean).sum() + moments.variances().sum())
    if not squared_norms < LARGEST_NORM**2:  # of all vectors together; so one of them may be too large
        check_usable(x, "training vector")
    sample = _empty_sample(d, d_out, parameters)
    sample.update(x)
    return _learn(moments, sample, d, d_out, parameters)


def _empty_sample(d: int, d_out: int, parameters: Parameters) -> DistinctSample:
    """Return a sample for what moments do not tell: neighbours, or the variances after random angles."""
    size = sample_size(d, d_out) if parameters.tune else _DESCRIBED if d_out > d else 0
    return DistinctSample(d, size, parameters.seed)


def _learn(moments: Moments, sample: Sample, d: int, d_out: int, parameters: Parameters) -> Model:
    if width := tail_width(d, d_out, parameters.tune):
        return _learn_with_tail(moments, sample, d_out, width, parameters)
    # Rotations are learned about the mean in any case: what all vectors have in common ranks none of them.
    centre = moments.mean if parameters.center else np.zeros(d)
    mean, total = centre.astype(np.float32), float(moments.variances().sum())
    if d_out <= d and not parameters.tune:
        rotation, kept = learn(moments, parameters, d_out)
        return Model.learned(rotation, mean, kept, moments.variances()[kept], total)
    if d_out > d:
        rotation, kept = learn_expansion(moments, parameters)
    else:
        rotation, kept = learn(moments, parameters, d_out)
        n_last = parameters.n_iso + parameters.n_pca
        rotation = keep_neighbours(rotation, kept, n_last, sample.in_random_order(), centre, parameters.seed)
    described = SampleMoments(sample.vectors()[:_DESCRIBED], rotation.d)
    total = float(described.variances().sum())
    for layer in rotation.layers:
        described.rotate(*layer)
    return Model.learned(rotation, mean, kept, described.variances()[kept], total)


def _learn_with_tail(moments: Moments, sample: Sample, d_out: int, width: int, parameters: Parameters) -> Model:
    """Learn a tail; then layers of rotations of its outputs, which cost nothing: they are multiplied into the tail."""
    centre = (moments.mean if parameters.center else np.zeros_like(moments.mean)).astype(np.float32)
    total = float(moments.variances().sum())
    layers, kept, tail, outputs = learn_tail(moments, d_out, width, parameters.seed)
    share = float(outputs.variances().sum()) / total if total else math.nan
    if parameters.tune:
        vectors = sample.in_random_order() - centre
        rows = np.ascontiguousarray(vectors.T)
        for layer in layers:
            kernels.rows_rotate(rows, *layer)
        y = exact_product(rows[kept].T, tail.T).astype(np.float32)
        turned = PairwiseRotation.random(d_out, _LAYERS_OF_TAIL * layers_for(d_out), parameters.seed)
        everything, n_layers = np.arange(d_out, dtype=np.int32), len(turned.layers)
        turned = keep_neighbours(turned, everything, n_layers, y, np.zeros(d_out), parameters.seed, vectors)
        outputs = SampleMoments(y)
        for layer in turned.layers:
            outputs.rotate(*layer)
    else:
        turned, _ = learn(outputs, parameters)
    for layer in turned.layers:
        kernels.rows_rotate(tail, *layer)
    rotation = without_idle_rotations(PairwiseRotation(len(centre), layers), len(centre), kept)
    return Model(rotation, centre, kept, share, spread_of(outputs.variances()) if total else math.nan, tail)


def sample_of(x: Any, d: int, n_bytes: int, seed: int) -> Vectors:
    """
    Return the training vectors of an array or of batches; if they take more than some memory, a sample of them.

    Parameters
    ----------
    x : array of shape (m, d), or iterable of such
    d : int
        Dimension of the vectors.
    n_bytes : int
        What the vectors may take in single precision.
    seed : int
        Of the sample.
    """
    most = sample_rows(n_bytes, d)
    if not is_batches(x):
        vectors = as_vectors(x, d, "training vectors")
        if len(vectors) <= most:
            return vectors
        return vectors[np.sort(np.random.default_rng(seed).choice(len(vectors), most, replace=False))]
    sample = Sample(d, most, seed)
    for number, batch in enumerate(x):
        vectors = as_vectors(batch, d, f"training vectors of batch {number}")
        check_usable(vectors, "training vector", f" of batch {number}")
        sample.update(vectors)
    return sample.vectors()


def sample_rows(n_bytes: int, d: int) -> int:
    """Return how many vectors take at most so many bytes in single precision."""
    if as_int(n_bytes, "max_train_bytes", 0) < 4 * d:
        raise ValueError(f"max_train_bytes must be at least {4 * d}, for one vector of {d} dimensions, not {n_bytes}")
    return int(n_bytes) // (4 * d)


def is_batches(x: Any) -> bool:
    """
    Return whether `x` is an iterable of arrays rather than an array.

    Examples
    --------
    >>> import numpy as np
    >>> is_batches(np.ones((2, 3))), is_batches([[1, 2], [3, 4]])
    (False, False)
    >>> is_batches(np.ones((2, 3)) for _ in range(2)), is_batches([np.ones((2, 3)), np.ones((1, 3))])
    (True, True)
    """
    if isinstance(x, (list, tuple)):
        return any(getattr(part, "ndim", 0) == 2 for part in x)
    is_array = hasattr(x, "__array__") or hasattr(x, "__array_interface__") or isinstance(x, (str, bytes, memoryview))
    return isinstance(x, Iterable) and not is_array
