"""Re-ranking by a store of the vectors."""

from __future__ import annotations

from typing import Any

import faiss
import numpy as np
import numpy.typing as npt

from .. import _backend
from .._common.arrays import as_float32, float32_blocks
from .._common.fields import Field, field
from .._common.types import Codes, Floats, Ids, Vectors
from . import binary_ops
from .reranking import K_FACTOR, ReRanked
from .training import WayBack, way_back


class IndexBinaryRefine(ReRanked):
    """
    A binary index behind transforms that re-ranks its results by a store of the vectors, as ``faiss.IndexRefine`` does.

    `reconstruct` and its like return the stored vectors, and `reconstruct_code` and its like codes.

    Parameters
    ----------
    transforms : faiss.VectorTransform or iterable of them
    index : faiss.IndexBinary
        An empty Flat, IVF, HNSW, Hash or MultiHash, or an IDMap of one.
    refine_index : faiss.Index
        An empty index that stores vectors row by row: ``faiss.IndexFlatL2(d)``, a scalar quantizer, …
    k_factor : float, optional
        The length of the shortlist, as a multiple of k: 10 by default, where Faiss has 1, which would rank nothing new.
        ``docs/performance.md`` has the measurements.

    Examples
    --------
    >>> import faiss, numpy as np
    >>> from faiss_prh import IndexBinaryRefine, PRHTransform
    >>> x = np.random.default_rng(0).normal(size=(1000, 64)).astype("float32")
    >>> index = IndexBinaryRefine(PRHTransform(64), faiss.IndexBinaryFlat(64), faiss.IndexFlatL2(64))
    >>> index.train(x)
    >>> index.add(x)
    >>> D, I = index.search(x[:2], 3)
    >>> D.dtype, I[:, 0]
    (dtype('float32'), array([0, 1]))
    """

    _vectors_from_codes = False
    _metric: tuple[Any, Field] | None = None

    def __init__(self, transforms: Any, index: Any, refine_index: Any, k_factor: float = K_FACTOR) -> None:
        super().__init__(transforms, index, refine_index, k_factor)

    def _check_fit(self, beside: Any) -> None:
        super()._check_fit(beside)
        if not isinstance(beside, faiss.IndexFlatCodes):
            raise TypeError(f"refine_index must store vectors row by row, not be a {type(beside).__name__}")
        if beside.d != self.d:
            raise ValueError(f"refine_index must have {self.d} dimensions, not {beside.d}")
        if beside.metric_type not in (faiss.METRIC_L2, faiss.METRIC_INNER_PRODUCT):
            raise ValueError("refine_index must have the metric METRIC_L2 or METRIC_INNER_PRODUCT")

    @property
    def refine_index(self) -> Any:
        """The store of the vectors."""
        return self._beside

    @property
    def metric_type(self) -> int:
        """What distances mean: the metric of the store."""
        if self._metric is None or self._metric[0] is not self._beside:
            self._metric = self._beside, field(self._beside, "metric_type")
        return self._metric[1].value

    @property
    def is_trained(self) -> bool:
        """Whether vectors can be added."""
        return super().is_trained and bool(self.refine_index.is_trained)

    def _ways_back(self) -> list[WayBack]:
        return [*super()._ways_back(), way_back(self.refine_index)]

    def _train(self, vectors: Vectors) -> None:
        super()._train(vectors)
        if not self.refine_index.is_trained:
            self.refine_index.train(as_float32(vectors))

    def sa_code_size(self) -> int:
        """Return how many bytes `sa_encode` makes of a vector: all that is kept of it but its id."""
        return super().sa_code_size() + int(self.refine_index.sa_code_size())

    def sa_encode(self, x: npt.ArrayLike) -> Codes:
        """Return all that the index would keep of vectors, as bytes: the code, then what the store keeps."""
        if not self.is_trained:
            raise RuntimeError("the index is not trained: call train(x) first")
        vectors = self._checked(x)
        codes = self.encode(vectors)
        return np.hstack([codes, self.refine_index.sa_encode(as_float32(vectors))])

    def sa_decode(self, codes: npt.ArrayLike) -> Floats:
        """Return the vectors that bytes from `sa_encode` stand for."""
        stored = np.ascontiguousarray(self._checked_codes(codes)[:, super().sa_code_size() :])
        vectors: Floats = self.refine_index.sa_decode(stored)
        return vectors

    def _decoded(self, rows: Ids, codes: Any) -> Floats:
        binary_ops.check_rows(rows, self.refine_index.ntotal)
        vectors: Floats = self.refine_index.reconstruct_batch(rows)
        return vectors

    def _encoded(self, vectors: Vectors) -> tuple[Codes, Vectors]:
        return self.encode(vectors), vectors

    def _add_beside(self, extra: Vectors) -> None:
        for block in float32_blocks(extra):
            self.refine_index.add(block)

    def _check_trained_alike(self, other: Any) -> None:
        super()._check_trained_alike(other)
        self.refine_index.check_compatible_for_merge(other.refine_index)
        if not _decode_alike(self.refine_index, other.refine_index):
            raise ValueError("only an index whose store was trained alike can be merged")

    def _merge_beside(self, beside: Any) -> None:
        self.refine_index.merge_from(beside)

    def _let_rank(self, scan: _backend.Scan, n: int) -> None:
        n_rows, vectors = self._beside_fields()
        scan.n_rows, scan.vectors = n_rows.value, vectors.value
        self._set_metric(scan)
        _backend.rank_by_vectors(scan, self._beside, self._size_beside, n)


def _decode_alike(store: Any, other: Any) -> bool:
    """Whether the same codes mean the same vectors to two stores."""
    codes = np.random.default_rng(0).integers(0, 256, (16, store.sa_code_size()), dtype=np.uint8)
    return np.array_equal(store.sa_decode(codes), other.sa_decode(codes), equal_nan=True)
