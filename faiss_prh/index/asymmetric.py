"""Re-ranking by the float query against the codes, with one more byte per vector."""

from __future__ import annotations

import math
from functools import partial
from typing import Any, NamedTuple

import faiss
import numpy as np

from .. import _native
from .._common.arrays import packed_signs
from .._common.types import Codes, Floats, Ids, Vectors
from ..transform import PRHTransform
from . import binary_ops, binary_search
from .reranking import ReRanked
from .training import WayBack

_SCALE_SAMPLE = 10_000
"""The most training vectors that the scale of norms is learned from."""


class NormScale(NamedTuple):
    """How a norm is written as a byte, and which values the signs of a code stand for."""

    low: float
    step: float  # of the logarithm
    reach: float  # E[‖z‖ / Σ|z|]: times ‖z‖, what the values of a code's ±1 are

    @classmethod
    def of(cls, z: Floats) -> NormScale:
        """Return the scale learned from transformed vectors."""
        norms, sums = np.linalg.norm(z, axis=1), np.abs(z).sum(axis=1)
        norms, sums = norms[norms > 0], sums[norms > 0]
        if not len(norms):
            return cls(1.0, 0.0, 0.0)
        # Vectors to come may be a little shorter or longer than those seen.
        low, high = norms.min() / 1.25, norms.max() * 1.25
        return cls(float(low), math.log(high / low) / 255, float((norms / sums).mean()))

    def to_bytes(self, norms: Floats) -> Codes:
        """Return norms as bytes."""
        with np.errstate(divide="ignore"):
            places = np.log(norms / self.low) / self.step if self.step else np.zeros(len(norms))
        return np.clip(np.rint(places), 0, 255).astype(np.uint8)

    def norms(self, codes: Codes) -> Floats:
        """Return the norms that bytes stand for."""
        table = np.exp(math.log(self.low) + self.step * np.arange(256)).astype(np.float32)
        return np.take(table, codes)


class IndexBinaryAsymmetric(ReRanked):
    """
    A binary index behind transforms that re-ranks its results by comparing the float query with the codes.

    Besides the code, it keeps one byte for each vector: the logarithm of its norm after the transforms. With z the
    transformed query, s the signs (±1) of a code and ‖x‖ its norm, ‖z‖² + ‖x‖² - 2c‖x‖⟨s, z⟩ estimates the squared
    Euclidean distance, where c is learned in training. For a very near vector the estimate can be negative.

    Parameters
    ----------
    transforms : faiss.VectorTransform or iterable of them
    index : faiss.IndexBinary
        An empty Flat, IVF, HNSW or MultiHash, or an IDMap of one.
    k_factor : float, optional
        The length of the shortlist, as a multiple of k.

    Examples
    --------
    >>> import faiss, numpy as np
    >>> from faiss_prh import IndexBinaryAsymmetric, PRHTransform
    >>> x = np.random.default_rng(0).normal(size=(1000, 64)).astype("float32")
    >>> index = IndexBinaryAsymmetric(PRHTransform(64), faiss.IndexBinaryFlat(64), k_factor=10)
    >>> index.train(x)
    >>> index.add(x)
    >>> D, I = index.search(x[:2], 3)
    >>> D.dtype, I[:, 0]
    (dtype('float32'), array([0, 1]))
    """

    _scale: NormScale | None = None

    def __init__(self, transforms: Any, index: Any, k_factor: float = 1.0) -> None:
        super().__init__(transforms, index, faiss.IndexBinaryFlat(8), k_factor)

    def _check_fit(self, beside: Any) -> None:
        super()._check_fit(beside)
        if isinstance(binary_ops.without_id_map(self.index)[0], faiss.IndexBinaryHash):
            raise ValueError("IndexBinaryHash does not give its codes back, which this needs")
        if not isinstance(beside, faiss.IndexBinaryFlat) or beside.d != 8:
            raise TypeError("norms must be in an IndexBinaryFlat of 8 bits")

    @property
    def is_trained(self) -> bool:
        """Whether vectors can be added."""
        return super().is_trained and self._scale is not None

    def _ways_back(self) -> list[WayBack]:
        return [*super()._ways_back(), partial(setattr, self, "_scale", self._scale)]

    def _train(self, vectors: Vectors) -> None:
        super()._train(vectors)
        if self._scale is None:
            self._scale = NormScale.of(self._transformed(vectors[:: -(-len(vectors) // _SCALE_SAMPLE)]))

    def _encoded(self, vectors: Vectors) -> tuple[Codes, Codes]:
        assert self._scale is not None
        codes, norms = self._codes_and_norms(vectors)
        return codes, self._scale.to_bytes(norms)[:, None]

    def _codes_and_norms(self, vectors: Vectors) -> tuple[Codes, Floats]:
        """Return the codes of vectors, and their norms after the transforms."""
        last = self.chain[-1]
        if len(self.chain) == 1 and isinstance(last, PRHTransform):
            return last._encode_with_norms(vectors)
        codes = np.empty((len(vectors), self.index.code_size), dtype=np.uint8)
        norms = np.empty(len(vectors), dtype=np.float32)
        for part, block in self._before_last(vectors):
            if isinstance(last, PRHTransform):
                codes[part], norms[part] = last._encode_with_norms(block)
            else:
                z = last.apply(block)
                codes[part], norms[part] = packed_signs(z), np.linalg.norm(z, axis=1)
        return codes, norms

    def _add_beside(self, extra: Codes) -> None:
        self._beside.add(extra)

    def _check_trained_alike(self, other: Any) -> None:
        super()._check_trained_alike(other)
        if other._scale != self._scale:
            raise ValueError("only an index with the same scale of norms, from the same training, can be merged")

    def _merge_beside(self, beside: Any) -> None:
        with binary_ops.moving(self._beside, beside, 0):
            pass

    def _shortlist(self, vectors: Floats, k: int, params: Any, with_codes: bool) -> tuple[Floats, Ids, Codes]:
        if self._scale is None:
            raise RuntimeError("the index is not trained: call train(x) first")
        z = self._transformed(vectors)
        _, rows, codes = binary_search.search_rows_and_codes(self._keyed, packed_signs(z), k, params)
        if self.ntotal == 0:
            return np.zeros(rows.shape, dtype=np.float32), rows, codes
        norms = self._scale.norms(faiss.rev_swig_ptr(self._beside.xb.data(), self.ntotal)[rows])
        values = np.zeros((len(z), self.index.d), dtype=np.float32)  # as many as there are bits
        values[:, : z.shape[1]] = z
        products = norms * _native.signed_sums(values, codes)
        distances = np.einsum("qd,qd->q", z, z)[:, None] + norms * norms - 2 * self._scale.reach * products
        return distances, rows, codes

    def _transformed(self, vectors: Vectors) -> Floats:
        z = np.empty((len(vectors), self.chain[-1].d_out), dtype=np.float32)
        for part, block in self._before_last(vectors):
            z[part] = self.chain[-1].apply(block)
        return z
