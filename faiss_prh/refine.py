"""Re-ranking: a Hamming shortlist, then float distances. Here from a store of vectors."""

from __future__ import annotations

import math
from typing import Any

import faiss
import numpy as np
import numpy.typing as npt

from . import _binary, _blocks, _search
from ._arrays import as_float32, float32_blocks
from ._composites import binary_with_ids
from .index import Codes, Ids, IndexBinaryPreTransform, as_count, as_new_ids, as_selector

Floats = npt.NDArray[np.float32]

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
    ) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.float32], Ids]:
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
        k, (k_factor, params) = as_count(k, "k"), self._unwrapped(params)
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

    def _add_beside(self, vectors: npt.NDArray[np.generic]) -> Codes:
        """Add what vectors leave beside their codes, and return the codes."""
        raise NotImplementedError

    def _shortlist(self, vectors: Floats, k: int, params: Any, with_codes: bool) -> tuple[Floats, Ids, Codes]:
        """Return distances, rows, and if wanted the codes, of the k nearest codes of each vector, in any order."""
        raise NotImplementedError


class IndexBinaryRefine(ReRanked):
    """
    A binary index behind transforms, with a store of the vectors to rank its results by: Faiss's ``IndexRefine``.

    Parameters
    ----------
    transforms : faiss.VectorTransform or iterable of them
    index : faiss.IndexBinary
        An empty Flat, IVF, HNSW, Hash or MultiHash, or an IDMap of one.
    refine_index : faiss.Index
        An empty one that stores vectors row by row: ``faiss.IndexFlatL2(d)``, a scalar quantizer, …
    k_factor : float, optional
        How many times k the shortlist is.

    Examples
    --------
    >>> import faiss, numpy as np
    >>> from faiss_prh import IndexBinaryRefine, PRHTransform
    >>> x = np.random.default_rng(0).normal(size=(1000, 64)).astype("float32")
    >>> index = IndexBinaryRefine(PRHTransform(64), faiss.IndexBinaryFlat(64), faiss.IndexFlatL2(64), k_factor=10)
    >>> index.train(x)
    >>> index.add(x)
    >>> D, I = index.search(x[:2], 3)
    >>> D.dtype, I[:, 0]
    (dtype('float32'), array([0, 1]))
    """

    def __init__(self, transforms: Any, index: Any, refine_index: Any, k_factor: float = 1.0) -> None:
        super().__init__(transforms, index, refine_index, k_factor)

    def _stand_beside(self, keyed: Any, beside: Any, k_factor: float) -> None:
        if not isinstance(beside, faiss.IndexFlatCodes):
            raise TypeError(f"refine_index must store vectors row by row, not be a {type(beside).__name__}")
        if beside.d != self.d:
            raise ValueError(f"refine_index must have {self.d} dimensions, not {beside.d}")
        if beside.metric_type not in (faiss.METRIC_L2, faiss.METRIC_INNER_PRODUCT):
            raise ValueError("refine_index must have the metric METRIC_L2 or METRIC_INNER_PRODUCT")
        super()._stand_beside(keyed, beside, k_factor)

    @property
    def refine_index(self) -> Any:
        """The store of the vectors."""
        return self._beside

    @property
    def is_trained(self) -> bool:
        """Whether vectors can be added."""
        return super().is_trained and bool(self.refine_index.is_trained)

    def train(self, x: npt.ArrayLike) -> None:
        """Train what is untrained: the transforms in turn, the binary index, the store."""
        super().train(x)
        if not self.refine_index.is_trained:
            self.refine_index.train(np.ascontiguousarray(x, dtype=np.float32))

    def merge_from(self, other: IndexBinaryPreTransform, add_id: int = 0) -> None:
        """Move all vectors of another such index with the same transforms here, adding `add_id` to their ids."""
        if isinstance(other, IndexBinaryRefine):
            self.refine_index.check_compatible_for_merge(other.refine_index)
            if not _decode_alike(self.refine_index, other.refine_index):
                raise ValueError("only an index whose store was trained alike can be merged")
        super().merge_from(other, add_id)

    def _merge_beside(self, beside: Any) -> None:
        self.refine_index.merge_from(beside)

    def _add_beside(self, vectors: npt.NDArray[np.generic]) -> Codes:
        codes = self.encode(vectors)
        for block in float32_blocks(vectors):
            self.refine_index.add(block)
        return codes

    def _shortlist(self, vectors: Floats, k: int, params: Any, with_codes: bool) -> tuple[Floats, Ids, Codes]:
        signs = self.encode(vectors)
        if with_codes:
            _, rows, codes = _search.search_rows_and_codes(self._keyed, signs, k, params)
        else:
            _, rows = _search.search_rows(self._keyed, signs, k, params)
            codes = np.empty((*rows.shape, 0), dtype=np.uint8)
        return self._distances(vectors, rows), rows, codes

    def _distances(self, vectors: Floats, rows: Ids) -> Floats:
        distances, k = np.zeros(rows.shape, dtype=np.float32), rows.shape[1]
        if self.ntotal == 0:
            return distances
        if isinstance(self.refine_index, faiss.IndexFlat):
            for part in _blocks.parts(len(vectors)):
                x, D, I = (faiss.swig_ptr(array[part]) for array in (vectors, distances, rows))
                self.refine_index.compute_distance_subset(part.stop - part.start, x, k, D, I)
            return distances
        step = max(1, _DECODED_VALUES // (k * self.d))
        for first in range(0, len(rows), step):
            part = slice(first, first + step)
            stored = self.refine_index.reconstruct_batch(np.maximum(rows[part], 0).ravel()).reshape(-1, k, self.d)
            if self.refine_index.metric_type == faiss.METRIC_L2:
                stored -= vectors[part, None]
                distances[part] = np.einsum("qkd,qkd->qk", stored, stored)
            else:
                distances[part] = np.einsum("qkd,qd->qk", stored, vectors[part])
        return distances


def _decode_alike(store: Any, other: Any) -> bool:
    """Whether the same codes mean the same vectors to two stores."""
    codes = np.random.default_rng(0).integers(0, 256, (16, store.sa_code_size()), dtype=np.uint8)
    return np.array_equal(store.sa_decode(codes), other.sa_decode(codes), equal_nan=True)


def _as_factor(value: Any) -> float:
    if not value >= 1 or not math.isfinite(value):
        raise ValueError(f"k_factor must be at least 1, not {value!r}")
    return float(value)
