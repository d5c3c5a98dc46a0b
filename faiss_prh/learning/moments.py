"""Second moments of a sample, as learning needs them: two ways to keep them, one interface."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np

from .._backend import kernels
from .._common.arrays import float32_blocks, largest_deviation, whole_numbers
from .._common.types import Doubles, Floats, Indices, Vectors
from .pairing import candidates, greedy, matching, mutual_best

Gain = Callable[[Indices, Indices, Doubles], Doubles]
"""The gain of pairing dimensions i and j, given their covariances."""
Angle = Callable[[Doubles, Doubles, Doubles], Doubles]
"""The angles of pairs, given the variances of both dimensions and their covariances."""

MAX_COVARIANCE = 4096
"""Most dimensions for which a covariance matrix is worth its memory."""
_KEPT_BITS = 20
"""Bits kept of a covariance, relative to the deviations: more than a sample tells, fewer than rounding disturbs."""
_UP_FROM = (3 - 5**0.5) / 2
"""
Share of a unit from which on what is left of a covariance becomes a whole unit. Not a half, nor a fraction of small
numbers: those are what whole numbers come to in exact arithmetic, and rounding would then decide.
"""
_SKETCH = 300
"""Number of training vectors that are enough to find dimensions which vary together."""
_CACHED_VALUES = 1 << 21
"""Values of the sample that stay in a cache from one look at them to the next."""
_GROUP = 4096
"""Most dimensions that are all compared with each other."""


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

    def turn(self, i: Indices, j: Indices, a: Doubles, b: Doubles, angle: Angle) -> tuple[Floats, Doubles]:
        """Rotate disjoint pairs, of variances a and b, by what `angle` says. Return that, and their covariances."""

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
            kernels.rows_fill(self._rows[:d], first, block)
            first += len(block)
        self.mean = kernels.rows_centre(self._rows[:d])
        self._sketch: _Sketch | None = None
        self._variances: Doubles | None = None

    @property
    def rows(self) -> Floats:
        """The centred sample, a row for each dimension."""
        return self._rows

    def variances(self) -> Doubles:
        """Return the variance of each dimension."""
        if self._variances is None:
            all_dimensions = np.arange(len(self._rows), dtype=np.int32)
            self._variances = self.covariances(all_dimensions, all_dimensions)
        return self._variances.copy()

    def covariances(self, i: Indices, j: Indices) -> Doubles:
        """Return the covariances of the pairs (i, j)."""
        return kernels.rows_covariances(self._rows, i, j)

    def matched(self, i: Indices, j: Indices, gain: Gain) -> tuple[Indices, Indices]:
        """Return disjoint pairs with a large gain, each of one of i and one of j (of two of i, if j is i)."""
        if self._sketch is None:
            self._sketch = _Sketch(self._rows)
        if i is j:
            groups = np.array_split(i, -(-len(i) // _GROUP))
            pairs = [self._sketch.candidates(group, group) for group in groups]
            first, second = (np.concatenate(parts) for parts in zip(*pairs, strict=True))
            numbers = np.sort(np.minimum(first, second) * np.int64(len(self._rows)) + np.maximum(first, second))
            distinct = numbers[np.diff(numbers, prepend=-1) > 0]
            first, second = (part.astype(np.int32) for part in np.divmod(distinct, len(self._rows)))
        else:
            first, second = self._sketch.candidates(i, j)
        return greedy(first, second, gain(first, second, self.covariances(first, second)))

    def turn(self, i: Indices, j: Indices, a: Doubles, b: Doubles, angle: Angle) -> tuple[Floats, Doubles]:
        """Rotate disjoint pairs, of variances a and b, by what `angle` says. Return that, and their covariances."""
        theta, covariances = np.empty(len(i), dtype=np.float32), np.empty(len(i))
        pairs = max(1, _CACHED_VALUES // (2 * self._rows.shape[1]))
        for first in range(0, len(i), pairs):  # the rows are still in cache when they are rotated
            part = slice(first, first + pairs)
            covariances[part] = self.covariances(i[part], j[part])
            theta[part] = angle(a[part], b[part], covariances[part])
            self.rotate(i[part], j[part], theta[part])
        return theta, covariances

    def rotate(self, i: Indices, j: Indices, theta: Floats) -> None:
        """Rotate the disjoint pairs (i, j) by theta."""
        self._variances = None
        kernels.rows_rotate(self._rows, i, j, theta)
        if self._sketch is not None:
            self._sketch.rotate(i, j, theta)


class _Sketch:
    """Some vectors of the sample, a row for each dimension, in whole numbers: to find dimensions that vary together."""

    def __init__(self, rows: Floats) -> None:
        columns = np.random.default_rng(0).permutation(rows.shape[1])[:_SKETCH]
        self._rows = np.ascontiguousarray(rows[:, columns])
        self._round()

    def _round(self) -> None:
        self._deviation = largest_deviation(self._rows, over=1)
        self._whole = whole_numbers(self._rows, 1, self._deviation)

    def candidates(self, i: Indices, j: Indices) -> tuple[Indices, Indices]:
        """Return pairs of dimensions, of i and of j, that vary together."""
        if len(i) + len(j) == len(self._whole):  # all the others, which are not worth a copy
            first, second = candidates(self._whole[i], self._whole, left_out=i)
            return i[first], second
        first, second = candidates(self._whole[i], self._whole[j])
        return i[first], j[second]

    def rotate(self, i: Indices, j: Indices, theta: Floats) -> None:
        """Rotate the disjoint pairs (i, j) by theta."""
        kernels.rows_rotate(self._rows, i, j, theta)
        both = np.concatenate([i, j])
        changed = self._rows[both]
        if largest_deviation(changed, over=1) > 1.5 * self._deviation:  # or more and more values would be clipped
            self._round()
        else:
            self._whole[both] = whole_numbers(changed, 1, self._deviation)


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

    @classmethod
    def of(cls, matrix: Doubles) -> CovarianceMoments:
        """Return the moments of one vector, so to speak, with this covariance matrix and mean zero."""
        moments = cls(len(matrix))
        moments.count, moments._scatter = 1, np.ascontiguousarray(matrix)
        return moments

    def update(self, x: Vectors) -> None:
        """Add the vectors of an (m, n) array to the sample."""
        if len(x) == 0:
            return
        # As many as the caches hold in double precision, but so many that the products take most of the time.
        for block in float32_blocks(x, block_values=max(1 << 19, 1024 * x.shape[1])):
            kernels.moments_add(block, self.count, self.mean, self._scatter)
            self.count += len(block)

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
        scatter += 1 - _UP_FROM
        np.floor(scatter, out=scatter)
        scatter *= units[:, None] * units / 2**_KEPT_BITS
        return rounded

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

    def turn(self, i: Indices, j: Indices, a: Doubles, b: Doubles, angle: Angle) -> tuple[Floats, Doubles]:
        """Rotate disjoint pairs, of variances a and b, by what `angle` says. Return that, and their covariances."""
        covariances = self.covariances(i, j)
        theta = angle(a, b, covariances).astype(np.float32)
        self.rotate(i, j, theta)
        return theta, covariances

    def rotate(self, i: Indices, j: Indices, theta: Floats) -> None:
        """Rotate the disjoint pairs (i, j) by theta."""
        kernels.matrix_rotate(self._scatter, i, j, theta)


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
