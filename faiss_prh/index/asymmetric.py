"""Re-ranking by the float query against the codes, with one more byte per vector."""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

import faiss
import numpy as np
import numpy.typing as npt

from .. import _backend
from .._common.arrays import packed_signs
from .._common.types import AnyArray, Codes, Floats, Ids, Vectors
from . import binary_ops, chain
from .reranking import K_FACTOR, ReRanked
from .training import WayBack

_SCALE_SAMPLE = 10_000
"""The most training vectors that the scale of norms is learned from."""


class Scales(NamedTuple):
    """What the bytes beside a code stand for, and the values that its signs stand for."""

    low: float
    step: float  # of the logarithm of norms
    reach: float  # E[‖z‖ / Σ|z|]: times ‖z‖, what the values of a code's ±1 are
    least: float = 0.0
    width: float = 0.0  # of a step of products with the offset

    @classmethod
    def of(cls, z: Floats, products: Floats) -> Scales:
        """Return the scales learned from transformed vectors, and from their products with the offset."""
        norms, sums = np.linalg.norm(z, axis=1), np.abs(z).sum(axis=1)
        norms, sums = norms[norms > 0], sums[norms > 0]
        if not len(norms):
            return cls(1.0, 0.0, 0.0)
        # Vectors to come may be a little shorter or longer than those seen.
        low, high = norms.min() / 1.25, norms.max() * 1.25
        least, most = float(products.min()), float(products.max())
        margin = (most - least) / 8
        return cls(
            float(low),
            math.log(high / low) / 255,
            float((norms / sums).mean()),
            least - margin,
            (most - least + 2 * margin) / 255,
        )

    def to_bytes(self, norms: Floats) -> Codes:
        """Return norms as bytes."""
        with np.errstate(divide="ignore"):
            places = np.log(norms / self.low) / self.step if self.step else np.zeros(len(norms))
        return _as_bytes(places)

    @functools.cache  # noqa: B019 - of a value
    def tables(self) -> Floats:
        """Return the norms, and below them the products, that the 256 bytes stand for."""
        steps = np.arange(256)
        norms = np.exp(math.log(self.low) + self.step * steps)
        return np.array([norms, self.least + self.width * steps], np.float32)

    def products_to_bytes(self, products: Floats) -> Codes:
        """Return products with the offset as bytes."""
        return _as_bytes((products - self.least) / self.width if self.width else np.zeros(len(products)))


def _as_bytes(places: AnyArray) -> Codes:
    return np.clip(np.rint(places), 0, 255).astype(np.uint8)


class IndexBinaryAsymmetric(ReRanked):
    """
    A binary index behind transforms that re-ranks its results by comparing the float query with the codes.

    Besides the code, it keeps one byte for each vector: the logarithm of its norm after the transforms. With z the
    transformed query, s the signs (±1) of a code and ‖x‖ its norm, ‖z‖² + ‖x‖² - 2c‖x‖⟨s, z⟩ estimates the squared
    Euclidean distance, where c is learned in training. For a very near vector the estimate can be negative.

    With METRIC_INNER_PRODUCT it estimates inner products, and cosines if ``L2norm`` is the first transform. It then
    keeps a second byte: the product ⟨b, x⟩ of the transformed vector x and what the transforms make of zero, b, which
    undoes their centring. c‖x‖⟨s, z⟩ - ⟨b, x⟩ - ⟨b, z - b⟩ estimates the inner product.

    `reconstruct` and its like return c‖x‖s sent back through the transforms, and `reconstruct_code` and its like codes.

    Parameters
    ----------
    transforms : faiss.VectorTransform or iterable of them
    index : faiss.IndexBinary
        An empty Flat, IVF, HNSW or MultiHash, or an IDMap of one.
    k_factor : float, optional
        The length of the shortlist, as a multiple of k: 10 by default, where Faiss has 1, which would rank nothing new.
        ``docs/performance.md`` has the measurements.
    metric : int, optional
        METRIC_L2 or METRIC_INNER_PRODUCT. For inner products the transforms must be linear but for their centring, or
        these behind a normalisation.

    Examples
    --------
    >>> import faiss, numpy as np
    >>> from faiss_prh import IndexBinaryAsymmetric, PRHTransform
    >>> x = np.random.default_rng(0).normal(size=(1000, 64)).astype("float32")
    >>> index = IndexBinaryAsymmetric(PRHTransform(64), faiss.IndexBinaryFlat(64))
    >>> index.train(x)
    >>> index.add(x)
    >>> D, I = index.search(x[:2], 3)
    >>> D.dtype, I[:, 0]
    (dtype('float32'), array([0, 1]))
    """

    _scale: Scales | None = None

    def __init__(self, transforms: Any, index: Any, k_factor: float = K_FACTOR, metric: int = faiss.METRIC_L2) -> None:
        super().__init__(transforms, index, faiss.IndexBinaryFlat(8 * bytes_beside(metric)), k_factor)

    def _check_fit(self, beside: Any) -> None:
        super()._check_fit(beside)
        if isinstance(binary_ops.without_id_map(self.index)[0], faiss.IndexBinaryHash):
            raise ValueError("IndexBinaryHash does not give its codes back, which this needs")
        if beside.code_size == bytes_beside(faiss.METRIC_INNER_PRODUCT):
            chain.check_affine(self.chain)

    @property
    def metric_type(self) -> int:
        """What distances mean: METRIC_L2 or METRIC_INNER_PRODUCT."""
        is_product = self._size_beside == bytes_beside(faiss.METRIC_INNER_PRODUCT)
        return int(faiss.METRIC_INNER_PRODUCT if is_product else faiss.METRIC_L2)

    @property
    def is_trained(self) -> bool:
        """Whether vectors can be added."""
        return super().is_trained and self._scale is not None

    def _ways_back(self) -> list[WayBack]:
        return [*super()._ways_back(), functools.partial(setattr, self, "_scale", self._scale)]

    def _train(self, vectors: Vectors) -> None:
        super()._train(vectors)
        if self._scale is None:
            z = chain.apply(self.chain, vectors[:: -(-len(vectors) // _SCALE_SAMPLE)])
            self._scale = Scales.of(z, np.einsum("nd,d->n", z, self._offset()))

    def sa_code_size(self) -> int:
        """Return how many bytes `sa_encode` makes of a vector: all that is kept of it but its id."""
        return int(self.index.code_size + self._beside.code_size)

    def sa_encode(self, x: npt.ArrayLike) -> Codes:
        """Return all that the index would keep of vectors, as bytes: the code, then what is kept beside it."""
        return np.hstack(self._encoded(self._checked(x)))

    def sa_decode(self, codes: npt.ArrayLike) -> Floats:
        """Return the vectors that bytes from `sa_encode` stand for."""
        scale, codes = self._trained_scale(), self._checked_codes(codes)
        lengths = np.float32(scale.reach) * np.take(scale.tables()[0], codes[:, self.index.code_size])
        return self._from_signs(np.ascontiguousarray(codes[:, : self.index.code_size]), lengths[:, None])

    def _decoded(self, rows: Ids, codes: Any) -> Floats:
        return self.sa_decode(np.hstack([codes, self._bytes_beside[rows]]))

    def _encoded(self, vectors: Vectors) -> tuple[Codes, Codes]:
        scale = self._trained_scale()
        if self.metric_type == faiss.METRIC_L2:
            codes, norms = chain.encode_with_norms(self.chain, vectors)
            return codes, scale.to_bytes(norms)[:, None]
        codes, beside = (np.empty((len(vectors), one.code_size), np.uint8) for one in (self.index, self._beside))
        offset = self._offset()
        for part, block in chain.before_last(self.chain, vectors):
            z = self.chain[-1].apply(block)
            codes[part] = packed_signs(z)
            beside[part, 0] = scale.to_bytes(np.linalg.norm(z, axis=1))
            beside[part, 1] = scale.products_to_bytes(np.einsum("nd,d->n", z, offset))
        return codes, beside

    def _trained_scale(self) -> Scales:
        if self._scale is None:
            raise RuntimeError("the index is not trained: call train(x) first")
        return self._scale

    @property
    def _bytes_beside(self) -> Codes:
        """What is kept beside the codes, where it is."""
        size, n = self._beside.code_size, self.ntotal
        return faiss.rev_swig_ptr(self._beside.xb.data(), n * size).reshape(n, size) if n else np.empty((0, size), "u1")

    def _add_beside(self, extra: Codes) -> None:
        self._beside.add(extra)

    def _check_trained_alike(self, other: Any) -> None:
        super()._check_trained_alike(other)
        if other._scale != self._scale:
            raise ValueError("only an index with the same scale of norms, from the same training, can be merged")

    def _merge_beside(self, beside: Any) -> None:
        with binary_ops.moving(self._beside, beside, 0):
            pass

    def _let_rank(self, scan: _backend.Scan, n: int) -> None:
        scale = self._trained_scale()
        n_rows, beside = self._beside_fields()
        scan.n_rows, scan.beside, scan.reach = n_rows.value, beside.value, scale.reach
        self._set_metric(scan)
        _backend.rank_by_bytes(scan, self._size_beside, scale.tables())

    def _offset(self) -> Floats:
        """Return what the transforms make of zero; for distances, which centring does not change, zeros."""
        if self.metric_type == faiss.METRIC_L2:
            return np.zeros(self.chain[-1].d_out, dtype=np.float32)
        return chain.offset(self.chain)


def bytes_beside(metric: int) -> int:
    """Return how many bytes are kept beside a code."""
    if metric not in (faiss.METRIC_L2, faiss.METRIC_INNER_PRODUCT):
        raise ValueError("RAsym estimates METRIC_L2 and METRIC_INNER_PRODUCT: for cosines, put L2norm first")
    return 1 if metric == faiss.METRIC_L2 else 2
