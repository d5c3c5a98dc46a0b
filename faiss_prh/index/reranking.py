"""Re-ranking: a Hamming shortlist, then float distances."""

from __future__ import annotations

import math
from typing import Any

import faiss
import numpy as np
import numpy.typing as npt

from .._common.arrays import as_float32
from .._common.numbers import as_int
from .._common.types import Codes, Floats, Ids, Vectors
from . import binary_ops as _binary
from . import binary_search as _search
from .composites import binary_with_ids
from .pretransform import IndexBinaryPreTransform, as_new_ids, as_selector

_ROW_BY_ROW = (
    faiss.IndexBinaryFlat,
    faiss.IndexBinaryIVF,
    faiss.IndexBinaryHNSW,
    faiss.IndexBinaryHash,
    faiss.IndexBinaryMultiHash,
)
_DECODED_VALUES = 1 << 24
"""Values decoded at a time, to bound memory."""


class ReRanked(IndexBinaryPreTransform):
    """
    A binary index whose results are ranked again by what stands *beside* it: a Faiss index with the same rows.

    All that is stored is in the two indexes, so that adding, removing and merging are the same operations on both.
    """

    def __init__(self, transforms: Any, index: Any, beside: Any, k_factor: float) -> None:
        super().__init__(transforms, index)
        self._stand_beside(index, beside, k_factor)
        if index.ntotal or beside.ntotal:
            raise ValueError("re-ranking begins with empty indexes")

    @classmethod
    def _restored(cls, chain: Any, keyed: Any, beside: Any, k_factor: float, has_own_id_map: bool) -> Any:
        """Return an index of parts that come from a file."""
        rows_index, id_map = _binary.without_id_map(keyed)
        if has_own_id_map and id_map is None:
            raise ValueError("an index that keeps rows must be behind an IDMap")
        if beside.ntotal != keyed.ntotal or not _binary.has_all_rows(rows_index):
            raise ValueError("the rows of a re-ranked index do not fit")
        if has_own_id_map:
            rows_index.owner = keyed  # which deletes it in the end
        self = cls.__new__(cls)
        IndexBinaryPreTransform.__init__(self, chain, rows_index if has_own_id_map else keyed)
        self._stand_beside(keyed, beside, k_factor)
        return self

    def _stand_beside(self, keyed: Any, beside: Any, k_factor: float) -> None:
        rows_index, _ = _binary.without_id_map(keyed)
        if not isinstance(rows_index, _ROW_BY_ROW):
            raise ValueError(f"results of {type(rows_index).__name__} cannot be ranked again")
        self._id_index = keyed
        self._beside = beside
        self.k_factor = k_factor

    @property
    def _keyed(self) -> Any:
        return self._id_index

    @property
    def _has_own_id_map(self) -> bool:
        return self._id_index is not self.index

    def _take_ids(self) -> None:
        """
        Make ids something else than rows.

        An IVF or a Hash would keep whatever ids it is given. Behind an IDMap it is given rows; the caller goes on
        seeing it as `index`.
        """
        if not self._has_own_id_map and isinstance(self.index, (faiss.IndexBinaryIVF, faiss.IndexBinaryHash)):
            self._id_index = binary_with_ids(self.index, np.arange(self.ntotal))

    @property
    def k_factor(self) -> float:
        """How many times k the shortlist is."""
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

    def search(self, x: npt.ArrayLike, k: int, *, params: Any = None) -> tuple[Floats, Ids]:  # type: ignore[override]
        """
        Find the ``k * k_factor`` nearest codes, and of those the k nearest vectors.

        Parameters
        ----------
        x : array of shape (n, d)
        k : int
        params : faiss.SearchParameters, optional
            As the binary index takes them, or a faiss.IndexRefineSearchParameters around them.

        Returns
        -------
        D : ndarray of float32, shape (n, k)
            Distances, the best first; as in Faiss, the largest float where there are fewer than k results.
        I : ndarray of int64, shape (n, k)
            Ids; -1 where there are fewer.
        """
        D, rows, _ = self._search_rows(x, k, params)
        return D, _binary.ids_of_rows(_binary.without_id_map(self._keyed)[1], rows)

    def search_and_reconstruct(  # type: ignore[override]
        self, x: npt.ArrayLike, k: int, *, params: Any = None
    ) -> tuple[Floats, Ids, Codes]:
        """Search, and return the codes of the results as well: zeros where there is none."""
        D, rows, codes = self._search_rows(x, k, params, with_codes=True)
        return D, _binary.ids_of_rows(_binary.without_id_map(self._keyed)[1], rows), codes

    def range_search(
        self, x: npt.ArrayLike, radius: int, *, params: Any = None
    ) -> tuple[npt.NDArray[np.uint64], Floats, Ids]:
        """Find all codes nearer than `radius` by Hamming distance, without ranking them again."""
        return super().range_search(x, radius, params=self._unwrapped(params)[1])

    def remove_ids(self, ids: Any) -> int:
        """Remove vectors by an array of ids or an IDSelector, and return how many there were."""
        selector = as_selector(ids)
        self._take_ids()
        rows_index, id_map = _binary.without_id_map(self._keyed)
        if not isinstance(rows_index, (faiss.IndexBinaryFlat, faiss.IndexBinaryIVF)):
            raise RuntimeError(f"vectors cannot be removed from {type(rows_index).__name__}")
        rows = _binary.selected(_binary.ids_of_rows(id_map, np.arange(self.ntotal)), selector)
        removed = _binary.remove(self._keyed, selector)
        self._beside.remove_ids(rows)
        return removed

    def reset(self) -> None:
        """Remove all vectors; what was trained stays."""
        super().reset()
        self._beside.reset()

    def merge_from(self, other: IndexBinaryPreTransform, add_id: int = 0) -> None:
        """Move all vectors of another such index with the same transforms here, adding `add_id` to their ids."""
        if isinstance(other, ReRanked):
            self._take_ids()
            other._take_ids()
        super().merge_from(other, add_id)
        self._merge_beside(other._beside)  # type: ignore[attr-defined]

    def _merge_beside(self, beside: Any) -> None:
        raise NotImplementedError

    def _add(self, x: npt.ArrayLike, ids: npt.ArrayLike | None) -> None:
        if not self.is_trained:
            raise RuntimeError("the index is not trained: call train(x) first")
        vectors, before, id_index = self._checked(x), self.ntotal, self._id_index
        if ids is not None:
            ids = as_new_ids(ids, len(vectors))
            self._take_ids()
        elif self._has_own_id_map:
            ids = np.arange(before, before + len(vectors))
        try:
            codes = self._add_beside(vectors)
            _binary.add(self._keyed, codes, ids)
        except BaseException:
            self._beside.remove_ids(faiss.IDSelectorRange(before, self._beside.ntotal))
            self._id_index = id_index
            raise

    def _unwrapped(self, params: Any) -> tuple[float, Any]:
        """Return the k_factor and the binary index's own parameters."""
        if isinstance(params, faiss.IndexRefineSearchParameters):
            return _as_factor(params.k_factor), _search.inner_params(params, "base_index_params")
        return self.k_factor, params

    def _search_rows(
        self, x: npt.ArrayLike, k: int, params: Any, with_codes: bool = False
    ) -> tuple[Floats, Ids, Codes]:
        k, (k_factor, params) = as_int(k, "k", 1), self._unwrapped(params)
        vectors = as_float32(self._checked(x))
        k_short = int(min(k * k_factor, max(1, self.ntotal)))
        distances, rows, codes = self._shortlist(vectors, k_short, params, with_codes)
        largest_first = self._beside.metric_type == faiss.METRIC_INNER_PRODUCT
        sign = np.float32(-1 if largest_first else 1)
        keys = np.where(rows < 0, np.inf, sign * distances)
        best = np.argsort(keys, axis=1, kind="stable")[:, :k]
        D = np.full((len(vectors), k), sign * np.finfo(np.float32).max, dtype=np.float32)
        I = np.full((len(vectors), k), -1, dtype=np.int64)
        I[:, : best.shape[1]] = np.take_along_axis(rows, best, axis=1)
        D[I >= 0] = np.take_along_axis(distances, best, axis=1)[I[:, : best.shape[1]] >= 0]
        C = np.zeros((*I.shape, codes.shape[2]), dtype=np.uint8)
        C[:, : best.shape[1]] = np.take_along_axis(codes, best[..., None], axis=1)
        return D, I, C

    def _add_beside(self, vectors: Vectors) -> Codes:
        """Add what vectors leave beside their codes, and return the codes."""
        raise NotImplementedError

    def _shortlist(self, vectors: Floats, k: int, params: Any, with_codes: bool) -> tuple[Floats, Ids, Codes]:
        """Return distances, rows, and if wanted the codes, of the k nearest codes of each vector, in any order."""
        raise NotImplementedError


def _as_factor(value: Any) -> float:
    if not value >= 1 or not math.isfinite(value):
        raise ValueError(f"k_factor must be at least 1, not {value!r}")
    return float(value)
