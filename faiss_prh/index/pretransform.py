"""IndexBinaryPreTransform: floats in, a Faiss binary index inside."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import nullcontext
from typing import Any

import faiss
import numpy as np
import numpy.typing as npt

from .._common.arrays import check_usable
from .._common.interrupts import deferred_interrupts
from .._common.locks import ForkSafeLock, held
from .._common.numbers import as_int
from .._common.types import Codes, Floats, Ids, Indices, Vectors
from ..learning.progress import printing, telling
from ..learning.train import sample_of
from ..transform import PRHTransform
from . import binary_ops, binary_search, chain, parameters, scanning
from .arguments import LARGEST_ID, as_new_ids, as_radius, as_selector
from .codec import Codec
from .grammar import MOST_LISTS
from .training import WayBack, all_or_nothing, way_back

_SEED = 1234
"""Draws the sample of training vectors if no PRHTransform has a seed for it."""


class IndexBinaryPreTransform(Codec):
    """
    Float transforms in front of a binary index, as ``faiss.IndexPreTransform`` has them in front of a float index.

    Vectors go through the transforms; the signs of what comes out are the codes of the binary index. If the last
    transform is a `PRHTransform`, its native `encode` makes them. Codes whose number of bits is not a multiple of 8
    are padded with zeros.

    `reconstruct`, `reconstruct_n`, `reconstruct_batch` and `search_and_reconstruct` return vectors of `d` floats: here
    the ±1 of a code, sent back through the transforms, as ``faiss.IndexPreTransform`` does with an IndexLSH. Codes come
    from `reconstruct_code`, `reconstruct_codes` and `search_and_return_codes`.

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

    _scanned: scanning.Scanned | None = None

    def __init__(self, transforms: Any, index: Any) -> None:
        super().__init__(transforms, index)
        self._lock = ForkSafeLock()  # held by whatever changes the index; a search takes none

    @property
    def metric_type(self) -> int:
        """What distances mean: METRIC_L2, for which Hamming distances stand in."""
        return int(faiss.METRIC_L2)

    @property
    def nlist(self) -> int:
        """Number of lists of an IVF."""
        return int(self._ivf().nlist)

    @property
    def nprobe(self) -> int:
        """How many lists of an IVF are searched."""
        return int(self._ivf().nprobe)

    @nprobe.setter
    def nprobe(self, value: int) -> None:
        self._ivf().nprobe = as_int(value, "nprobe", 1, MOST_LISTS)

    def _ivf(self) -> Any:
        lists, _ = binary_ops.without_id_map(self._keyed)
        if not isinstance(lists, faiss.IndexBinaryIVF):
            raise AttributeError(f"{type(lists).__name__} has no lists")
        return lists

    @property
    def verbose(self) -> bool:
        """Whether training prints how far it is, and Faiss what it does."""
        return bool(self.index.verbose)

    @verbose.setter
    def verbose(self, value: bool) -> None:
        self.index.verbose = value

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
        progress = telling(printing()) if self.verbose else nullcontext()
        with self._lock, all_or_nothing(self._ways_back()), progress:
            self._train(vectors)

    def _ways_back(self) -> list[WayBack]:
        """Return what makes untrained again all that `_train` trains."""
        return [way_back(part) for part in (*self.chain, self._keyed)]

    def _train(self, vectors: Vectors) -> None:
        chain.train(self.chain, vectors)
        if not self._keyed.is_trained:
            self._keyed.train(self.encode(vectors))

    def add(self, x: npt.ArrayLike) -> None:
        """Add vectors."""
        codes = self._to_add(x)
        with self._lock:
            self._append(self._keyed, codes, None)

    def add_with_ids(self, x: npt.ArrayLike, ids: npt.ArrayLike) -> None:
        """Add vectors under the given ids, where the binary index can (IDMap, IVF)."""
        codes = self._to_add(x)
        new_ids = as_new_ids(ids, len(codes))
        with self._lock:
            self._append(self._keyed, codes, new_ids)

    def _append(self, keyed: Any, codes: Codes, ids: Ids | None) -> None:
        binary_ops.add(keyed, codes, ids)

    def search(self, x: npt.ArrayLike, k: int, *, params: Any = None) -> tuple[Indices, Ids]:
        """
        Find the k nearest codes.

        Parameters
        ----------
        x : array of shape (n, d)
        k : int
        params : faiss.SearchParameters, optional
            Those of the binary index, or faiss.SearchParametersPreTransform around them. An IDSelector (``sel``) also
            works with an IVF, where Faiss refuses it. What the index does not follow is an error.

        Returns
        -------
        D : ndarray of int32, shape (n, k)
            Hamming distances; 2147483647 where there are fewer than k results.
        I : ndarray of int64, shape (n, k)
            Ids; -1 where there are fewer than k results.
        """
        params = parameters.of_binary_index(params)
        return binary_search.search(self._keyed, self._query_codes(self._checked(x)), as_int(k, "k", 1), params)

    def range_search(
        self, x: npt.ArrayLike, radius: float, *, params: Any = None
    ) -> tuple[npt.NDArray[np.uint64], Floats, Ids]:
        """
        Find all codes whose Hamming distance is less than `radius`, any number from 0 on.

        Returns (limits, distances, ids) as Faiss's indexes do.
        """
        params = parameters.of_binary_index(params)
        codes = self._query_codes(self._checked(x))
        return binary_search.range_search(self._keyed, codes, as_radius(radius, self.index.d), params)

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

    def search_and_reconstruct(self, x: npt.ArrayLike, k: int, *, params: Any = None) -> tuple[Any, Ids, Floats]:
        """Search, and return the vectors of the results as well, as `reconstruct` does: NaN where there is none."""
        D, rows, codes = self._search_rows(x, k, params, self._vectors_from_codes)
        found = rows >= 0
        vectors = np.full((*rows.shape, self.d), np.nan, dtype=np.float32)
        vectors[found] = self._decoded(rows[found], codes[found] if self._vectors_from_codes else None)
        return D, self._ids_of(rows), vectors

    def search_and_return_codes(self, x: npt.ArrayLike, k: int, *, params: Any = None) -> tuple[Any, Ids, Codes]:
        """Search, and return the codes of the results as well: zeros where there is none."""
        D, rows, codes = self._search_rows(x, k, params, True)
        return D, self._ids_of(rows), codes

    def _search_rows(self, x: npt.ArrayLike, k: int, params: Any, with_codes: bool) -> tuple[Any, Ids, Any]:
        """Return distances, rows and, if wanted, codes of the results."""
        params, codes = parameters.of_binary_index(params), self._query_codes(self._checked(x))
        return binary_search.search_rows_and_codes(self._keyed, codes, as_int(k, "k", 1), params)

    def _scanned_index(self) -> scanning.Scanned:
        """Return the binary index as native code is told of it."""
        scanned, keyed = self._scanned, self._keyed
        if scanned is None or not scanned.is_of(keyed):
            scanned = self._scanned = scanning.Scanned(keyed)
        return scanned

    def _query_codes(self, vectors: Vectors) -> Codes:
        """Return the codes that are searched for."""
        if self.metric_type == faiss.METRIC_INNER_PRODUCT and chain.is_affine(self.chain):
            return chain.product_codes(chain.apply(self.chain, vectors), chain.offset(self.chain))
        return chain.encode(self.chain, vectors)

    def _ids_of(self, rows: Ids) -> Ids:
        return binary_ops.ids_of_rows(self._scanned_index().id_map, rows)

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

    def _to_add(self, x: npt.ArrayLike) -> Codes:
        if not self.is_trained:
            raise RuntimeError("the index is not trained: call train(x) first")
        return self.encode(x)
