"""Samples of more vectors than memory holds."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from .._common.arrays import float32_blocks
from .._common.types import AnyArray, Floats, Vectors

Numbers = npt.NDArray[np.uint64]

_BLOCK_VALUES = 1 << 20


class Sample:
    """
    A uniform sample, without replacement, of vectors that come in batches.

    Each vector gets a random number that depends on its position, and those with the smallest numbers are kept. So the
    sample does not depend on how the vectors are cut into batches, and samples of parts can be merged.

    Parameters
    ----------
    d : int
        Dimension of the vectors.
    size : int
        How many to keep.
    seed : int
    first : int, optional
        Position of the first vector, if this is a part of the data.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.arange(20.0).reshape(10, 2)
    >>> whole, begin, end = Sample(2, 4, seed=0), Sample(2, 4, seed=0), Sample(2, 4, seed=0, first=3)
    >>> whole.update(x)
    >>> begin.update(x[:3])
    >>> end.update(x[3:])
    >>> begin.merge(end)
    >>> bool((begin.in_random_order() == whole.in_random_order()).all())
    True
    """

    def __init__(self, d: int, size: int, seed: int, first: int = 0) -> None:
        self.size = size
        self._count, self._place = 0, first
        self._vectors, self._numbers = np.empty((0, d), np.float32), np.empty(0, np.uint64)
        rng = np.random.default_rng(seed)
        self._start = rng.integers(0, 1 << 64, dtype=np.uint64)
        self._factors = rng.integers(0, 1 << 64, d, np.uint64) | np.uint64(1)

    def vectors(self) -> Floats:
        """Return the sample; as long as all vectors have found room, in the order in which they came."""
        return self._vectors[: self._count]

    def in_random_order(self) -> Floats:
        """Return the sample in the order of its numbers."""
        return self._vectors[np.argsort(self._numbers[: self._count])]

    def update(self, x: Vectors) -> None:
        """Add the vectors of an (m, d) array to those that the sample is of."""
        for block in float32_blocks(x, _BLOCK_VALUES) if self.size else ():
            self._add(block, self._numbers_of(block))
            self._place += len(block)

    def merge(self, other: Sample) -> None:
        """Add the vectors that another sample is of. It must be of the same size and seed."""
        self._add(other.vectors(), other._numbers[: other._count])

    def _numbers_of(self, block: Floats) -> Numbers:
        return _mixed(np.arange(self._place, self._place + len(block), dtype=np.uint64) + self._start)

    def _add(self, x: Floats, numbers: Numbers) -> None:
        first, self._count = self._count, min(self.size, self._count + len(x))
        if self._count > len(self._vectors):
            room = min(self.size, max(self._count, 2 * len(self._vectors)))
            self._vectors, self._numbers = _grown(self._vectors, room), _grown(self._numbers, room)
        free = self._count - first
        self._vectors[first : self._count], self._numbers[first : self._count] = x[:free], numbers[:free]
        x, numbers = x[free:], numbers[free:]
        small = np.flatnonzero(numbers < self._numbers.max(initial=0))
        if len(small):
            smallest = np.argpartition(np.concatenate([self._numbers, numbers[small]]), self.size - 1)
            stays, leaves = smallest[: self.size], smallest[self.size :]
            new, old = small[stays[stays >= self.size] - self.size], leaves[leaves < self.size]
            self._vectors[old], self._numbers[old] = x[new], numbers[new]


class DistinctSample(Sample):
    """
    A uniform sample of the different vectors among those that come in batches.

    The numbers depend on the vectors' values. So the sample does not depend on the order in which vectors come, nor on
    how many processes gather them, and it holds each vector only once.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.arange(20.0).reshape(10, 2)
    >>> forward, backward = DistinctSample(2, 4, seed=0), DistinctSample(2, 4, seed=0)
    >>> forward.update(x)
    >>> backward.update(np.concatenate([x, x])[::-1])
    >>> bool((forward.in_random_order() == backward.in_random_order()).all())
    True
    """

    def _numbers_of(self, block: Floats) -> Numbers:
        return _mixed(np.einsum("md,d->m", block.view(np.uint32), self._factors) + self._start)

    def _add(self, x: Floats, numbers: Numbers) -> None:
        if self._count == self.size:
            worth = numbers < self._numbers.max(initial=0)
            x, numbers = x[worth], numbers[worth]
        numbers, first = np.unique(numbers, return_index=True)
        new = ~np.isin(numbers, self._numbers[: self._count])
        super()._add(x[first[new]], numbers[new])


def _grown(array: AnyArray, room: int) -> AnyArray:
    grown = np.empty((room, *array.shape[1:]), dtype=array.dtype)
    grown[: len(array)] = array
    return grown


def _mixed(numbers: Numbers) -> Numbers:
    """Return numbers all of whose bits depend on all bits of those given (the finaliser of splitmix64)."""
    numbers = numbers * np.uint64(0x9E3779B97F4A7C15)
    numbers = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    numbers = (numbers ^ (numbers >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return numbers ^ (numbers >> np.uint64(31))
