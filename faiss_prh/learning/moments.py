"""Second moments of a sample, as learning needs them: two ways to keep them, one interface."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np

from .. import _native
from .._common.arrays import float32_blocks, whole_numbers
from .._common.types import Doubles, Floats, Indices, Vectors
from ..rotation import rotate_rows
from .exact import exact_product
from .pairing import candidates, greedy, matching, mutual_best

Gain = Callable[[Indices, Indices, Doubles], Doubles]
"""The gain of pairing dimensions i and j, given their covariances."""

MAX_COVARIANCE = 4096
"""Most dimensions for which a covariance matrix is worth its memory."""
_KEPT_BITS = 20
"""Bits kept of a covariance, relative to the deviations: more than a sample tells, fewer than rounding disturbs."""
_SKETCH = 300
"""Number of training vectors that are enough to find dimensions which vary together."""


class Moments(Protocol):
    """What learning needs to know about a sample."""

    @property
    def mean(self) -> Doubles:
        """Mean of the sample."""

    def variances(self) -> Doubles:
        """Return the variance of each dimension."""

    def covariances(self, i: Indices, j: Indices) -> Doubles:
        """Return the covariances of the pairs (i, j)."""

    def matched(self, i: Indices, j: Indices, gain: Gain) -> tuple[Indices, Indices]:
        """Return disjoint pairs with a large gain, each of one of i and one of j (of two of i, if j is i)."""

    def rotate(self, i: Indices, j: Indices, theta: Floats) -> None:
        """Rotate the disjoint pairs (i, j) by theta."""


class SampleMoments:
    """
    Keeps the centred sample, a row for each dimension: O(m·n) memory and O(m·n) work a layer.

    Parameters
    ----------
    x : array of shape (m, d)
        The sample.
    n : int, optional
        Number of dimensions, if they are more than the sample's: the others are zero.

    Examples
    --------
    >>> import numpy as np
    >>> SampleMoments(np.array([[1.0, 5.0], [3.0, 5.0]])).variances()
    array([1., 0.])
    """

    def __init__(self, x: Vectors, n: int | None = None) -> None:
        m, d = x.shape
        self._rows = np.empty((n or d, m), dtype=np.float32)
        self._rows[d:] = 0
        first = 0
        for block in float32_blocks(x):
            _native.rows_fill(self._rows[:d], first, block)
            first += len(block)
        self.mean = _native.rows_centre(self._rows[:d])
        self._sketch: Floats | None = None

    @property
    def rows(self) -> Floats:
        """The centred sample, a row for each dimension."""
        return self._rows

    def variances(self) -> Doubles:
        """Return the variance of each dimension."""
        all_dimensions = np.arange(len(self._rows), dtype=np.int32)
        return self.covariances(all_dimensions, all_dimensions)

    def covariances(self, i: Indices, j: Indices) -> Doubles:
        """Return the covariances of the pairs (i, j)."""
        return _native.rows_covariances(self._rows, i, j)

    def matched(self, i: Indices, j: Indices, gain: Gain) -> tuple[Indices, Indices]:
        """Return disjoint pairs with a large gain, each of one of i and one of j (of two of i, if j is i)."""
        if self._sketch is None:
            columns = np.random.default_rng(0).permutation(self._rows.shape[1])[:_SKETCH]
            self._sketch = np.ascontiguousarray(self._rows[:, columns])
        sketch = whole_numbers(self._sketch, over=1)
        first, second = candidates(sketch[i], sketch[j])
        first, second = i[first], j[second]
        return greedy(first, second, gain(first, second, self.covariances(first, second)))

    def rotate(self, i: Indices, j: Indices, theta: Floats) -> None:
        """Rotate the disjoint pairs (i, j) by theta."""
        _native.rows_rotate(self._rows, i, j, theta)
        if self._sketch is not None:
            _native.rows_rotate(self._sketch, i, j, theta)


class CovarianceMoments:
    """
    Keeps the covariance matrix: O(n²) memory and work a layer, whatever the size of the sample.

    The sample comes in as many parts as one likes.

    Parameters
    ----------
    n : int
        Number of dimensions.

    Examples
    --------
    >>> import numpy as np
    >>> moments = CovarianceMoments(2)
    >>> moments.update(np.array([[1.0, 5.0]]))
    >>> moments.update(np.array([[3.0, 5.0]]))
    >>> moments.variances()
    array([1., 0.])
    """

    def __init__(self, n: int) -> None:
        self.count = 0
        self.mean = np.zeros(n)
        self._scatter = np.zeros((n, n))

    def update(self, x: Vectors) -> None:
        """Add the vectors of an (m, n) array to the sample."""
        if len(x) == 0:
            return
        for block in float32_blocks(x, block_values=1 << 19):  # what the caches hold in double precision
            centred = block.astype(np.float64)
            block_mean = centred.mean(axis=0)
            centred -= block_mean
            self._add(len(block), block_mean, centred.T @ centred)

    def merged(self, other: CovarianceMoments) -> CovarianceMoments:
        """Return the moments of this sample and another together."""
        both = CovarianceMoments(len(self.mean))
        for part in (self, other):
            if part.count:
                both._add(part.count, part.mean, part._scatter)
        return both

    def _add(self, count: int, mean: Doubles, scatter: Doubles) -> None:
        """Make the mean that of both parts, and add what their distance adds to the scatter (Chan et al., 1979)."""
        total = self.count + count
        apart = mean - self.mean
        self._scatter += scatter
        self._scatter += np.outer(apart, apart * (self.count * count / total))
        self.mean = self.mean + apart * (count / total)
        self.count = total

    def rounded(self, n: int | None = None) -> CovarianceMoments:
        """
        Return a copy with what rounding may have left in covariances rounded off.

        So what is learned does not depend on the batches in which vectors came, nor on threads that added them up.

        Parameters
        ----------
        n : int, optional
            Number of dimensions, if more: the others are zero.
        """
        d = len(self.mean)
        rounded = CovarianceMoments(n or d)
        rounded.count, rounded.mean = self.count, self.mean
        # Powers of two, of which a multiplication leaves all digits.
        units = np.ldexp(1.0, np.frexp(np.sqrt(np.diagonal(self._scatter)))[1])
        scatter = rounded._scatter[:d, :d]
        np.divide(self._scatter, units[:, None] * units / 2**_KEPT_BITS, out=scatter)
        np.rint(scatter, out=scatter)
        scatter *= units[:, None] * units / 2**_KEPT_BITS
        return rounded

    def projected(self, basis: Doubles) -> CovarianceMoments:
        """Return the moments of the products with the columns of a basis; their mean is left out."""
        projected = CovarianceMoments(basis.shape[1])
        projected.count = self.count
        scatter = exact_product(basis.T, exact_product(self._scatter, basis))
        projected._scatter = (scatter + scatter.T) / 2
        return projected

    def variances(self) -> Doubles:
        """Return the variance of each dimension."""
        return np.diagonal(self._scatter) / self.count

    def covariances(self, i: Indices, j: Indices) -> Doubles:
        """Return the covariances of the pairs (i, j)."""
        covariances: Doubles = self._scatter[i, j] / self.count
        return covariances

    def matrix(self) -> Doubles:
        """Return all covariances."""
        return self._scatter / self.count

    def matched(self, i: Indices, j: Indices, gain: Gain) -> tuple[Indices, Indices]:
        """Return disjoint pairs with a large gain, each of one of i and one of j (of two of i, if j is i)."""
        worth = gain(i[:, None], j, self._scatter[np.ix_(i, j)] / self.count)
        first, second = matching(worth) if i is j else mutual_best(worth)
        return i[first], j[second]

    def rotate(self, i: Indices, j: Indices, theta: Floats) -> None:
        """Rotate the disjoint pairs (i, j) by theta."""
        rotate_rows(self._scatter, i, j, theta)
        rotate_rows(self._scatter.T, i, j, theta)


def moments_of(x: Vectors, d_out: int, tune: bool) -> Moments:
    """Return the moments of a sample, kept the cheaper way for its shape and for what is to be learned."""
    m, n = x.shape
    if d_out > n:
        return SampleMoments(x, d_out)
    # Reducing looks at many covariances. Else the passes over the sample cost less, but in single precision: what is
    # learned is then not to the last bit what `partial_train` learns, and so they are left to many dimensions, and to
    # few with few vectors, where they take a fraction of the time.
    few = n <= 128 and m < 1024 * n and not tune
    if n > (MAX_COVARIANCE if d_out < n else 1024) or (d_out == n and few):
        return SampleMoments(x)
    moments = CovarianceMoments(n)
    moments.update(x)
    return moments.rounded()
