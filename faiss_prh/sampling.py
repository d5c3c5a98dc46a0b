"""A sample of more vectors than memory holds, the same in whatever order and batches they come."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ._arrays import float32_blocks

Numbers = npt.NDArray[np.uint64]

_BLOCK_VALUES = 1 << 20


class Sample:
    """
    A uniform sample, without replacement, of vectors that come in batches.

    Each vector has a random number that follows from its values and the seed, and those with the smallest numbers stay.
    So the sample is the same for every order and every cut into batches, and those of several parts can be merged.
    Copies of a vector within a block count as vectors of their own.

    Parameters
    ----------
    d : int
        Dimension of the vectors.
    size : int
        How many to keep.
    seed : int

    Examples
    --------
    >>> import numpy as np
    >>> x = np.arange(20.0).reshape(10, 2)
    >>> sample = Sample(2, size=4, seed=0)
    >>> sample.update(x)
    >>> halves = Sample(2, size=4, seed=0), Sample(2, size=4, seed=0)
    >>> halves[0].update(x[5:])
    >>> halves[1].update(x[:5])
    >>> halves[0].merge(halves[1])
    >>> bool((halves[0].in_random_order() == sample.in_random_order()).all())
    True
    """

    def __init__(self, d: int, size: int, seed: int) -> None:
        self.size = size
        self._count = 0
        self._vectors = np.empty((0, d), dtype=np.float32)
        self._contents, self._numbers = np.empty(0, np.uint64), np.empty(0, np.uint64)
        rng = np.random.default_rng(seed)
        self._factors = rng.integers(0, 1 << 64, d, np.uint64) | np.uint64(1)
        self._start = rng.integers(0, 1 << 64, dtype=np.uint64)

    def vectors(self) -> npt.NDArray[np.float32]:
        """Return the sample; as long as all vectors have found room, in the order in which they came."""
        return self._vectors[: self._count]

    def in_random_order(self) -> npt.NDArray[np.float32]:
        """Return the sample in an order that depends on nothing but the vectors."""
        return self._vectors[np.argsort(self._contents[: self._count], kind="stable")]

    def update(self, x: npt.NDArray[np.generic]) -> None:
        """Add the vectors of an (m, d) array to those that the sample is of."""
        for block in float32_blocks(x, _BLOCK_VALUES):
            contents = _mixed(np.einsum("md,d->m", block.view(np.uint32), self._factors) + self._start)
            self._add(block, contents, _mixed(contents + _copies_before(contents)))

    def merge(self, other: Sample) -> None:
        """Add the vectors that another sample is of. It must have the same size and seed."""
        n = other._count
        self._add(other._vectors[:n], other._contents[:n], other._numbers[:n])

    def _add(self, x: npt.NDArray[np.float32], contents: Numbers, numbers: Numbers) -> None:
        first, self._count = self._count, min(self.size, self._count + len(x))
        if self._count > len(self._vectors):
            room = min(self.size, max(self._count, 2 * len(self._vectors)))
            self._vectors, self._contents, self._numbers = (
                _grown(array, room) for array in (self._vectors, self._contents, self._numbers)
            )
        free = self._count - first
        self._put(slice(first, self._count), x[:free], contents[:free], numbers[:free])
        x, contents, numbers = x[free:], contents[free:], numbers[free:]
        small = np.flatnonzero(numbers < self._numbers.max(initial=0))
        if len(small):
            smallest = np.argpartition(np.concatenate([self._numbers, numbers[small]]), self.size - 1)
            stays, leaves = smallest[: self.size], smallest[self.size :]
            new, old = small[stays[stays >= self.size] - self.size], leaves[leaves < self.size]
            self._put(old, x[new], contents[new], numbers[new])

    def _put(self, where: Any, x: npt.NDArray[np.float32], contents: Numbers, numbers: Numbers) -> None:
        self._vectors[where], self._contents[where], self._numbers[where] = x, contents, numbers


def _grown(array: npt.NDArray[Any], room: int) -> npt.NDArray[Any]:
    grown = np.empty((room, *array.shape[1:]), dtype=array.dtype)
    grown[: len(array)] = array
    return grown


def _copies_before(contents: Numbers) -> Numbers:
    """Return how many equal numbers stand before each, times a large odd number."""
    order = np.argsort(contents, kind="stable")
    in_order, places = contents[order], np.arange(len(contents))
    starts = np.concatenate([[True], in_order[1:] != in_order[:-1]])[: len(contents)]
    counts = np.empty(len(contents), dtype=np.uint64)
    counts[order] = places - np.maximum.accumulate(np.where(starts, places, 0))
    return counts * np.uint64(0x9E3779B97F4A7C15)


def _mixed(numbers: Numbers) -> Numbers:
    """Return numbers all of whose bits depend on all bits of those given (the finaliser of splitmix64)."""
    numbers = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    numbers = (numbers ^ (numbers >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return numbers ^ (numbers >> np.uint64(31))
