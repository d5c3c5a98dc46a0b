"""IndexBinaryPreTransform: floats in, a Faiss binary index inside."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import Any

import faiss
import numpy as np
import numpy.typing as npt

from .._common.arrays import as_vectors, check_usable, first_unusable_row, float32_blocks, packed_signs, unusable
from .._common.interrupts import deferred_interrupts
from .._common.locks import ForkSafeLock, held
from .._common.numbers import as_int, bytes_of
from .._common.types import Codes, Floats, Ids, Indices, Vectors
from ..learning.train import sample_of
from ..transform import PRHTransform
from . import binary_ops, binary_search
from .arguments import LARGEST_ID, as_new_ids, as_radius, as_selector
from .training import WayBack, all_or_nothing, way_back

_SEED = 1234
"""Draws the sample of training vectors if no PRHTransform has a seed for it."""


class IndexBinaryPreTransform:
    """
    Float transforms in front of a binary index, as ``faiss.IndexPreTransform`` has them in front of a float index.

    Vectors go through the transforms; the signs of what comes out are the codes of the binary index. If the last
    transform is a `PRHTransform`, its native `encode` makes them. Codes whose number of bits is not a multiple of 8
    are padded with zeros.

    Parameters
    ----------
    transforms : faiss.VectorTransform or iterable of them
        In the order in which they are applied: PCA, L2norm, ITQ, random rotations, OPQ, PRH, …
    index : faiss.IndexBinary
        It has as many bits as the last transform has output dimensions, rounded up to a multiple of 8.

    Attributes
    ----------
    chain : list of faiss.VectorTransform
    index : faiss.IndexBinary

    Examples
    --------
    >>> import faiss, numpy as np
    >>> from faiss_prh import IndexBinaryPreTransform, PRHTransform
    >>> x = np.random.default_rng(0).normal(size=(1000, 100)).astype("float32")
    >>> index = IndexBinaryPreTransform(PRHTransform(100), faiss.IndexBinaryFlat(104))
    >>> index.train(x)
    >>> index.add(x)
    >>> D, I = index.search(x[:3], 2)
    >>> I[:, 0], D[:, 0]
    (array([0, 1, 2]), array([0, 0, 0], dtype=int32))
    """

    def __init__(self, transforms: Any, index: Any) -> None:
        chain = [transforms] if isinstance(transforms, faiss.VectorTransform) else list(_iterable(transforms))
        if not chain:
            raise ValueError("at least one transform is needed in front of a binary index")
        for transform in chain:
            if not isinstance(transform, faiss.VectorTransform):
                raise TypeError(f"transforms must be faiss.VectorTransform, not {type(transform).__name__}")
        if not isinstance(index, faiss.IndexBinary):
            raise TypeError(f"index must be a faiss.IndexBinary, not {type(index).__name__}")
        for before, after in itertools.pairwise(chain):
            if before.d_out != after.d_in:
                raise ValueError(f"a transform to {before.d_out} dimensions stands before one from {after.d_in}")
        bits = 8 * bytes_of(chain[-1].d_out)
        if index.d != bits:
            raise ValueError(f"transforms to {chain[-1].d_out} dimensions need an index of {bits} bits, not {index.d}")
        self.chain = chain
        self.index = index
        self._lock = ForkSafeLock()  # held by whatever changes the index; a search takes none

    @property
    def d(self) -> int:
        """Dimension of the vectors."""
        return int(self.chain[0].d_in)

    @property
    def ntotal(self) -> int:
        """Number of indexed vectors."""
        return int(self.index.ntotal)

    @property
    def is_trained(self) -> bool:
        """Whether vectors can be added."""
        return bool(self.index.is_trained) and all(transform.is_trained for transform in self.chain)

    @property
    def verbose(self) -> bool:
        """Whether Faiss prints what it does."""
        return bool(self.index.verbose)

    @verbose.setter
    def verbose(self, value: bool) -> None:
        self.index.verbose = value

    def encode(self, x: npt.ArrayLike) -> Codes:
        """Return the codes that the binary index is given for vectors."""
        vectors = self._checked(x)
        last = self.chain[-1]
        if len(self.chain) == 1 and isinstance(last, PRHTransform):
            return last.encode(vectors)
        codes = np.empty((len(vectors), self.index.code_size), dtype=np.uint8)
        for part, block in self._before_last(vectors):
            codes[part] = last.encode(block) if isinstance(last, PRHTransform) else packed_signs(last.apply(block))
        return codes

    def train(self, x: npt.ArrayLike | Iterable[npt.ArrayLike], *, max_train_bytes: int = 1 << 30) -> None:
        """
        Train what is untrained: the transforms in turn, then the binary index, then what ranks its results again.

        If that fails, all of it is as untrained as it was.

        Parameters
        ----------
        x : array of shape (m, d), or iterable of such arrays
        max_train_bytes : int, optional
            If the vectors take more than this in single precision, train with a uniform sample of this size.
        """
        seeds = [transform.parameters.seed for transform in self.chain if isinstance(transform, PRHTransform)]
        vectors = sample_of(x, self.d, max_train_bytes, seeds[0] if seeds else _SEED)
        if len(vectors) == 0:
            raise ValueError("training needs at least one vector")
        check_usable(vectors, "training vector")
        with self._lock, all_or_nothing(self._ways_back()):
            self._train(vectors)

    def _ways_back(self) -> list[WayBack]:
        """Return what makes untrained again all that `_train` trains."""
        return [way_back(part) for part in (*self.chain, self._keyed)]

    def _train(self, vectors: Vectors) -> None:
        transformed = vectors
        for number, transform in enumerate(self.chain):
            if not transform.is_trained:
                transform.train(transformed)
            if not all(later.is_trained for later in self.chain[number + 1 :]):
                transformed = transform.apply(transformed)
        if not self._keyed.is_trained:
            self._keyed.train(self.encode(vectors))

    def add(self, x: npt.ArrayLike) -> None:
        """Add vectors."""
        codes = self._to_add(x)
        with self._lock:
            binary_ops.add(self._keyed, codes)

    def add_with_ids(self, x: npt.ArrayLike, ids: npt.ArrayLike) -> None:
        """Add vectors under the given ids, where the binary index can (IDMap, IVF)."""
        codes = self._to_add(x)
        new_ids = as_new_ids(ids, len(codes))
        with self._lock:
            binary_ops.add(self._keyed, codes, new_ids)

    def search(self, x: npt.ArrayLike, k: int, *, params: Any = None) -> tuple[Indices, Ids]:
        """
        Find the k nearest codes.

        Parameters
        ----------
        x : array of shape (n, d)
        k : int
        params : faiss.SearchParameters, optional
            Those of the binary index. An IDSelector (``sel``) also works with an IVF, where Faiss refuses it.

        Returns
        -------
        D : ndarray of int32, shape (n, k)
            Hamming distances; 2147483647 where there are fewer than k results.
        I : ndarray of int64, shape (n, k)
            Ids; -1 where there are fewer than k results.
        """
        return binary_search.search(self._keyed, self.encode(x), as_int(k, "k", 1), params)

    def range_search(
        self, x: npt.ArrayLike, radius: float, *, params: Any = None
    ) -> tuple[npt.NDArray[np.uint64], Floats, Ids]:
        """
        Find all codes whose Hamming distance is less than `radius`, any number from 0 on.

        Returns (limits, distances, ids) as Faiss's indexes do.
        """
        return binary_search.range_search(self._keyed, self.encode(x), as_radius(radius, self.index.d), params)

    def assign(self, x: npt.ArrayLike, k: int) -> Ids:
        """Return the ids of the k nearest codes."""
        return self.search(x, k)[1]

    def remove_ids(self, ids: Any) -> int:
        """Remove vectors by an array of ids or an IDSelector, and return how many there were."""
        selector = as_selector(ids)
        with self._lock, deferred_interrupts():
            return self._remove(selector)

    def _remove(self, selector: Any) -> int:
        return binary_ops.remove(self._keyed, selector)

    def reconstruct(self, key: int) -> Codes:
        """Return the code stored under an id."""
        self._check_rows(int(key), 1)
        code: Codes = self._keyed.reconstruct(int(key))
        return code

    def reconstruct_n(self, n0: int, ni: int) -> Codes:
        """Return the codes of `ni` consecutive ids from `n0` on."""
        self._check_rows(int(n0), int(ni))
        codes: Codes = self._keyed.reconstruct_n(int(n0), int(ni))
        return codes

    def search_and_reconstruct(self, x: npt.ArrayLike, k: int, *, params: Any = None) -> tuple[Indices, Ids, Codes]:
        """Search, and return the codes of the results as well: zeros where there is none."""
        D, rows, codes = binary_search.search_rows_and_codes(self._keyed, self.encode(x), as_int(k, "k", 1), params)
        return D, binary_ops.ids_of_rows(binary_ops.without_id_map(self._keyed)[1], rows), codes

    def reset(self) -> None:
        """Remove all vectors; what was trained stays."""
        with self._lock, deferred_interrupts():
            self._reset()

    def _reset(self) -> None:
        binary_ops.reset(self._keyed)

    def merge_from(self, other: IndexBinaryPreTransform, add_id: int = 0) -> None:
        """
        Move all vectors of another index of this kind, trained alike, here.

        Parameters
        ----------
        other : index of the same class
            It is empty afterwards; or, if there is an error, both are what they were.
        add_id : int, optional
            What is added to the ids of the other's vectors. Where ids are positions, as in an IndexBinaryFlat, it is
            ignored: their vectors follow those that are here.
        """
        add_id = as_int(add_id, "add_id", 0, LARGEST_ID)
        if type(other) is not type(self) or len(other.chain) != len(self.chain):
            raise ValueError(f"only an {type(self).__name__} with the same transforms can be merged")
        with held(self._lock, other._lock):
            if int(other.index.this) == int(self.index.this):
                raise ValueError("an index cannot be merged into itself")
            self._check_trained_alike(other)
            self._merge(other, add_id)

    def _check_trained_alike(self, other: Any) -> None:
        for mine, others in zip(self.chain, other.chain, strict=True):
            mine.check_identical(others)

    def _merge(self, other: Any, add_id: int) -> None:
        with binary_ops.moving(self._keyed, other._keyed, add_id):
            pass

    def _check_rows(self, first: int, count: int) -> None:
        """Refuse ids that are not there where they are positions: Faiss's flat index does not look."""
        rows_index, id_map = binary_ops.without_id_map(self._keyed)
        is_position = id_map is None and binary_ops.storage_of(rows_index) is not None
        if is_position and not 0 <= first <= first + count <= self.ntotal:
            raise ValueError(f"no ids {first} to {first + count - 1} among {self.ntotal} vectors")

    @property
    def _keyed(self) -> Any:
        """The binary index that knows the caller's ids."""
        return self.index

    def _checked(self, x: npt.ArrayLike) -> Vectors:
        if not all(transform.is_trained for transform in self.chain):
            raise RuntimeError("the transforms are not trained: call train(x) first")
        return as_vectors(x, self.d, "vectors")

    def _before_last(self, vectors: Vectors) -> Iterator[tuple[slice, Floats]]:
        """Yield vectors, block by block, as all transforms but the last leave them, and which ones they are."""
        first = 0
        for block in float32_blocks(vectors):
            bad = first_unusable_row(block)
            if bad is not None:
                raise unusable(block[bad], f"vector {first + bad}")
            for transform in self.chain[:-1]:
                block = transform.apply(block)
            yield slice(first, first + len(block)), block
            first += len(block)

    def _to_add(self, x: npt.ArrayLike) -> Codes:
        if not self.is_trained:
            raise RuntimeError("the index is not trained: call train(x) first")
        return self.encode(x)


def _iterable(transforms: Any) -> Iterable[Any]:
    if not isinstance(transforms, Iterable):
        raise TypeError(f"transforms must be faiss.VectorTransform, not {type(transforms).__name__}")
    return transforms
