"""Re-ranking: a Hamming shortlist, then float distances."""

from __future__ import annotations

import functools
from typing import Any

import faiss
import numpy as np
import numpy.typing as npt

from .. import _backend
from .._common.arrays import as_float32
from .._common.fields import Field, field
from .._common.filters import selected
from .._common.interrupts import deferred_interrupts
from .._common.numbers import as_float, as_int
from .._common.types import Codes, Floats, Ids, Vectors
from . import binary_ops, binary_search, chain, parameters, scanning
from .arguments import as_new_ids
from .composites import with_ids
from .pretransform import IndexBinaryPreTransform

LARGEST_FACTOR = 1e9
_ROW_BY_ROW = (
    faiss.IndexBinaryFlat,
    faiss.IndexBinaryIVF,
    faiss.IndexBinaryHNSW,
    faiss.IndexBinaryHash,
    faiss.IndexBinaryMultiHash,
)

K_FACTOR = 10.0
"""
The length of shortlists that nobody has set, as a multiple of k.

Faiss's own, 1, would rank nothing new. Beyond 10 RAsym gains almost nothing; RFlat does, but each doubling takes up to
twice the time. The figures are in docs/performance.md.
"""


class ReRanked(IndexBinaryPreTransform):
    """
    A binary index whose results are ranked again with the help of another Faiss index *beside* it, with the same rows.

    All that is stored is in these two, so that adding, removing and merging are the same operations on both.
    """

    _fields_beside: tuple[Any, tuple[Field, Field]] | None = None

    def __init__(self, transforms: Any, index: Any, beside: Any, k_factor: float) -> None:
        super().__init__(transforms, index)
        self._put_beside(beside, k_factor)

    def _put_beside(self, beside: Any, k_factor: float) -> None:
        """Begin with what is beside the codes."""
        self._check_fit(beside)
        if self.index.ntotal or beside.ntotal:
            raise ValueError("re-ranking begins with empty indexes")
        self._go_on(self.index, beside, k_factor)

    def _go_on(self, keyed: Any, beside: Any, k_factor: float) -> None:
        """Go on with parts that have the same rows."""
        self._check_fit(beside)
        self._keyed_index, self._beside = keyed, beside
        self.k_factor = k_factor
        self.check_rows()

    @classmethod
    def _restored(cls, chain: Any, keyed: Any, beside: Any, k_factor: float, has_own_id_map: bool) -> Any:
        """Return an index of parts that come from a file."""
        rows_index, id_map = binary_ops.without_id_map(keyed)
        if has_own_id_map and id_map is None:
            raise ValueError("an index that keeps rows must be behind an IDMap")
        self = cls.__new__(cls)
        IndexBinaryPreTransform.__init__(self, chain, rows_index if has_own_id_map else keyed)
        if has_own_id_map:
            rows_index.owner = keyed  # which deletes it in the end
        self._go_on(keyed, beside, k_factor)
        return self

    def check_rows(self) -> None:
        """Raise an error unless the binary index and what is beside it have the same rows."""
        if self._keyed.ntotal != self._beside.ntotal:
            raise self._unequal()
        if not binary_ops.has_all_rows(binary_ops.without_id_map(self._keyed)[0]):
            raise ValueError("the binary index has ids that are not the rows of what ranks its results again")

    def _unequal(self) -> ValueError:
        n, n_beside = self._keyed.ntotal, self._beside.ntotal
        return ValueError(f"the binary index has {n} vectors, but what ranks its results again has {n_beside}")

    def _check_fit(self, beside: Any) -> None:
        """Raise an error if `beside` cannot rank what the binary index finds."""
        rows_index, _ = binary_ops.without_id_map(self.index)
        if not isinstance(rows_index, _ROW_BY_ROW):
            raise ValueError(f"results of {type(rows_index).__name__} cannot be ranked again")

    @property
    def _keyed(self) -> Any:
        return self._keyed_index

    @property
    def _has_own_id_map(self) -> bool:
        return self._keyed_index is not self.index

    def _keyed_by_ids(self) -> Any:
        """
        Return the binary index to add ids to, or to remove them from: from then on, that must be `_keyed`.

        An IVF or a Hash would keep the ids. So it stands behind an IDMap, and keeps rows: the same as beside. The
        caller goes on seeing it as `index`.
        """
        if not self._has_own_id_map and isinstance(self.index, (faiss.IndexBinaryIVF, faiss.IndexBinaryHash)):
            return with_ids("IndexBinaryIDMap", self.index, np.arange(self.ntotal))
        return self._keyed

    @property
    def k_factor(self) -> float:
        """The length of the shortlist, as a multiple of k."""
        return self._k_factor

    @k_factor.setter
    def k_factor(self, value: float) -> None:
        self._k_factor = _as_factor(value)

    def add(self, x: npt.ArrayLike) -> None:
        """Add vectors."""
        self._add(x, None)

    def add_with_ids(self, x: npt.ArrayLike, ids: npt.ArrayLike) -> None:
        """Add vectors under the given ids, where the binary index can (IDMap, IVF)."""
        self._add(x, ids)

    def _add(self, x: npt.ArrayLike, ids: npt.ArrayLike | None) -> None:
        if not self.is_trained:
            raise RuntimeError("the index is not trained: call train(x) first")
        vectors = self._checked(x)
        new_ids = None if ids is None else as_new_ids(ids, len(vectors))
        codes, extra = self._encoded(vectors)
        if not len(vectors):  # nor is there a reason to keep ids apart from rows
            return
        with self._lock:
            before = self._beside.ntotal
            keyed = self._keyed if new_ids is None else self._keyed_by_ids()
            if new_ids is None and self._has_own_id_map:
                new_ids = np.arange(before, before + len(vectors))
            try:
                self._add_beside(extra)
                self._append(keyed, codes, new_ids)
                self._keyed_index = keyed
            except BaseException:
                with deferred_interrupts():
                    if keyed.ntotal == before:
                        self._beside.remove_ids(faiss.IDSelectorRange(before, self._beside.ntotal))
                    else:  # it came when all was done
                        self._keyed_index = keyed
                raise

    def _encoded(self, vectors: Vectors) -> tuple[Codes, Any]:
        """Return the codes of vectors, and what of them goes beside."""
        raise NotImplementedError

    def _add_beside(self, extra: Any) -> None:
        raise NotImplementedError

    def search(self, x: npt.ArrayLike, k: int, *, params: Any = None) -> tuple[Floats, Ids]:  # type: ignore[override]
        """
        Find the ``k * k_factor`` nearest codes, and among those the k nearest vectors.

        Parameters
        ----------
        x : array of shape (n, d)
        k : int
        params : faiss.SearchParameters, optional
            Those of the binary index, or faiss.SearchParametersPreTransform around them. Around either may stand
            faiss.IndexRefineSearchParameters, whose k_factor (1 if it was not given, as in Faiss) then holds.

        Returns
        -------
        D : ndarray of float32, shape (n, k)
            Distances, or with METRIC_INNER_PRODUCT similarities, the best first; where there are fewer than k
            results, the largest float, or the least, as in Faiss.
        I : ndarray of int64, shape (n, k)
            Ids; -1 where there are fewer than k results.
        """
        D, rows, _ = self._search_rows(x, k, params, False)
        return D, self._ids_of(rows)

    def range_search(
        self, x: npt.ArrayLike, radius: float, *, params: Any = None
    ) -> tuple[npt.NDArray[np.uint64], Floats, Ids]:
        """
        Find all codes whose Hamming distance from the query's is less than `radius`, without ranking them again.

        Whatever the metric, the radius and the distances that come back are Hamming distances.
        """
        return super().range_search(x, radius, params=self._unwrapped(params)[1])

    def _remove(self, selector: Any) -> int:
        keyed = self._keyed_by_ids()
        rows_index, id_map = binary_ops.without_id_map(keyed)
        if not isinstance(rows_index, (faiss.IndexBinaryFlat, faiss.IndexBinaryIVF)):
            raise RuntimeError(f"vectors cannot be removed from {type(rows_index).__name__}")
        ids = binary_ops.ids_of_rows(id_map, np.arange(self.ntotal))
        rows = faiss.IDSelectorBatch(selected(ids, selector))
        removed = binary_ops.remove(keyed, selector)
        self._beside.remove_ids(rows)
        self._keyed_index = keyed
        return removed

    def _reset(self) -> None:
        super()._reset()
        self._beside.reset()

    def _merge(self, other: Any, add_id: int) -> None:
        if int(other._beside.this) == int(self._beside.this):
            raise ValueError("an index cannot be merged with one that shares its store")
        keyed = self._keyed_by_ids()
        with binary_ops.moving(keyed, other._keyed_by_ids(), add_id):
            self._merge_beside(other._beside)
        self._keyed_index = keyed

    def _merge_beside(self, beside: Any) -> None:
        """Move all rows of `beside` behind those that stand beside this index, or none."""
        raise NotImplementedError

    def _unwrapped(self, params: Any) -> tuple[float, Any]:
        """Return the k_factor and the binary index's own parameters."""
        if params is None:
            return self._k_factor, None
        k_factor, inside = parameters.of_reranking(params)
        return self.k_factor if k_factor is None else _as_factor(k_factor), inside

    def _search_rows(self, x: npt.ArrayLike, k: int, params: Any, with_codes: bool) -> tuple[Floats, Ids, Any]:
        k, (k_factor, params) = as_int(k, "k", 1), self._unwrapped(params)
        vectors, scanned = as_float32(self._checked(x)), self._scanned_index()
        params = parameters.checked(scanned.rows_index, params)
        n_short = self._n_short(scanned, k, k_factor)
        if n_short == 0 or len(vectors) == 0:
            self._query_codes(vectors)  # or an error, as if there were any
            return nothing_found(len(vectors), k, self.metric_type, self.index.code_size)
        scan = scanned.scan(params)
        n_probes, quantizer_params = scanned.set_lists(scan, params)
        z = scanning.let_transform(scan, self.chain, vectors)
        queries = _backend.Batch(vectors, z, None, n_probes)
        self._let_rank(scan, len(vectors))
        if scanned.is_known:
            if scanned.is_lists and not scan.coarse:
                codes, quantizer = self._query_codes(vectors), scanned.rows_index.quantizer
                probes = binary_search.search(quantizer, codes, n_probes, quantizer_params)[1]
                queries = _backend.Batch(vectors, z, probes, n_probes)
            scan.shortlist, scan.wants_places = n_short, with_codes
            D, found = _backend.search(scan, k, queries)
        else:
            of_rows = parameters.of_rows(params, scanned.id_map)
            rows = binary_search.search_rows(scanned.rows_index, self._query_codes(vectors), n_short, of_rows)
            # A hash after a reset (Faiss 1.8) or a forged file finds rows that do not exist.
            scan.n_rows = min(scan.n_rows, scanned.ntotal.value)
            D, found = _backend.rank(scan, k, rows, queries)
        return D, *(scanned.rows_and_codes(found) if with_codes else (found, None))

    def _n_short(self, scanned: scanning.Scanned, k: int, k_factor: float) -> int:
        """Return the length of the shortlist, if there is what it is ranked by."""
        n, n_beside = scanned.ntotal.value, self._beside_fields()[0].value
        if n > n_beside:  # fewer, while another thread adds or removes
            raise self._unequal()
        return int(min(k * k_factor, n))

    def _beside_fields(self) -> tuple[Field, Field]:
        """Return the number of rows beside the codes, and where they begin."""
        if self._fields_beside is None or self._fields_beside[0] is not self._beside:
            name = "xb" if isinstance(self._beside, faiss.IndexBinary) else "codes"
            self._fields_beside = self._beside, (field(self._beside, "ntotal"), field(self._beside, name))
        return self._fields_beside[1]

    @functools.cached_property
    def _size_beside(self) -> int:
        """How many bytes are beside each code."""
        return int(self._beside.code_size)

    def _let_rank(self, scan: _backend.Scan, n: int) -> None:
        """Let n queries be ranked by what is beside the codes."""
        raise NotImplementedError

    def _set_metric(self, scan: _backend.Scan) -> None:
        if self.metric_type == faiss.METRIC_INNER_PRODUCT:
            scan.is_product = True
            if chain.is_affine(self.chain):
                scan.set_offset(chain.offset(self.chain))


def nothing_found(n: int, k: int, metric: int, code_size: int) -> tuple[Floats, Ids, Codes]:
    """Return the results of a search that finds nothing."""
    worst = np.finfo(np.float32).max if metric == faiss.METRIC_L2 else np.finfo(np.float32).min
    return np.full((n, k), worst), np.full((n, k), -1), np.zeros((n, k, code_size), np.uint8)


def _as_factor(value: Any) -> float:
    return as_float(value, "k_factor", 1, LARGEST_FACTOR)
