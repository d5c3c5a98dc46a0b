"""IndexIVFSignsRefine: lists of residuals, ranked again by a store of the vectors."""

from __future__ import annotations

from typing import Any

import faiss
import numpy as np
import numpy.typing as npt

from .. import _backend
from .._common.arrays import as_float32
from .._common.numbers import as_int
from .._common.types import Floats, Ids
from . import chain
from .composites import with_ids
from .refine import IndexBinaryRefine
from .reranking import K_FACTOR
from .signs import IndexIVFSigns


class IndexIVFSignsRefine(IndexBinaryRefine, IndexIVFSigns):
    """
    An `IndexIVFSigns` that re-ranks its results by a store of the vectors, as ``faiss.IndexRefine`` does.

    Of the ``k * k_factor`` vectors with the best estimates, it computes the distances of those that may still be among
    the k nearest, as far as the errors of estimates are known.

    `reconstruct` and its like return the stored vectors, and `reconstruct_code` and its like codes.

    Parameters
    ----------
    transforms : faiss.VectorTransform or iterable of them
    quantizer : faiss.Index
    nlist : int
        As for `IndexIVFSigns`.
    refine_index : faiss.Index
        An empty index that stores vectors row by row: ``faiss.IndexFlatL2(d)``, a scalar quantizer, … The metric is
        that of it and of the quantizer.
    k_factor : float, optional
        The most distances that are computed, as a multiple of k.

    Examples
    --------
    >>> import faiss, numpy as np
    >>> from faiss_prh import IndexIVFSignsRefine, PRHTransform
    >>> x = np.random.default_rng(0).normal(size=(2000, 64)).astype("float32")
    >>> index = IndexIVFSignsRefine(PRHTransform(64), faiss.IndexFlatL2(64), 16, faiss.IndexFlatL2(64))
    >>> index.train(x)
    >>> index.add(x)
    >>> index.search(x[:2], 3)[0][:, 0]
    array([0., 0.], dtype=float32)
    """

    def __init__(
        self, transforms: Any, quantizer: Any, nlist: int, refine_index: Any, k_factor: float = K_FACTOR
    ) -> None:
        if not isinstance(refine_index, faiss.Index):
            raise TypeError(f"refine_index must be a faiss.Index, not {type(refine_index).__name__}")
        IndexIVFSigns.__init__(self, transforms, quantizer, nlist, refine_index.metric_type)
        self._put_beside(refine_index, k_factor)

    @classmethod
    def _around(cls, lists: IndexIVFSigns, ids: Ids | None, refine_index: Any, k_factor: float) -> IndexIVFSignsRefine:
        """Return an index of lists and a store with the same rows, which ids may stand for."""
        self = cls.__new__(cls)
        self.__dict__.update(lists.__dict__)
        keyed = self.index if ids is None else with_ids("IndexBinaryIDMap", self.index, ids)
        self._go_on(keyed, refine_index, k_factor)
        return self

    def _search_rows(self, x: npt.ArrayLike, k: int, params: Any, with_codes: bool) -> tuple[Floats, Ids, Any]:
        k, (k_factor, params) = as_int(k, "k", 1), self._unwrapped(params)
        scanned = self._scanned_index()
        n_short = self._n_short(scanned, k, k_factor)
        return self._estimated(scanned, as_float32(self._checked(x)), k, params, with_codes, n_short)

    def _set_metric(self, scan: _backend.Scan) -> None:
        """Set whether estimates and distances can be compared; the metric is that of the lists."""
        scan.is_isometric = chain.is_isometric(self.chain)
        if scan.is_product:  # which dropping dimensions may make larger
            scan.is_isometric &= min(transform.d_out for transform in self.chain) >= self.d

    def range_search(
        self, x: npt.ArrayLike, radius: float, *, params: Any = None
    ) -> tuple[npt.NDArray[np.uint64], Floats, Ids]:
        """
        Find all vectors with an estimate better than `radius`, in the lists that are searched.

        As `IndexIVFSigns.range_search`: results are not ranked again.
        """
        return super().range_search(x, radius, params=params)
