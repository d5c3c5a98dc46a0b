"""What lists of residuals keep of a vector: its list, the signs of its residual, and a byte for the norm of that."""

from __future__ import annotations

from typing import Any, NamedTuple

import faiss
import numpy as np

from .._common.arrays import LARGEST_NORM, packed_signs
from .._common.fields import FLOATS
from .._common.numbers import bytes_of
from .._common.types import Codes, Floats, Ids
from .chain import signs

LONGEST_RESIDUAL = 3 * LARGEST_NORM
"""The largest norm that a byte may stand for: between two of the largest vectors, and a quarter more."""


class ResidualScale(NamedTuple):
    """What the byte behind a code stands for, low + step · byte, and the values that its signs stand for."""

    low: float
    step: float
    reach: float  # E[‖r‖ / Σ|r|]: times ‖r‖, what the values of a code's ±1 are

    @classmethod
    def of(cls, residuals: Floats) -> ResidualScale:
        """Return the scale learned from residuals."""
        norms, sums = np.linalg.norm(residuals, axis=1), np.abs(residuals).sum(axis=1)
        norms, sums = norms[norms > 0], sums[norms > 0]
        if not len(norms):  # every vector is a centroid
            return cls(0.0, 0.0, 0.0)
        low, high = norms.min() / 1.25, norms.max() * 1.25  # those to come may be a little shorter or longer
        reach = min(1.0, float((norms / sums).mean()))  # which rounding may make larger
        return cls(float(low), float((high - low) / 255), reach)

    def norms(self, codes: Codes) -> Floats:
        """Return the norms that bytes stand for."""
        return np.float32(self.low) + np.float32(self.step) * codes.astype(np.float32)

    def encode(self, residuals: Floats) -> Codes:
        """Return the codes of residuals, each with the byte behind it."""
        norms = np.linalg.norm(residuals, axis=1)
        places = (norms - self.low) / self.step if self.step else np.zeros(len(norms))
        return np.hstack([packed_signs(residuals), np.clip(np.rint(places), 0, 255).astype(np.uint8)[:, None]])

    def decode(self, codes: Codes, bits: int) -> Floats:
        """Return the residuals that codes with the byte behind them stand for."""
        lengths = np.float32(self.reach) * self.norms(codes[:, -1:])
        return signs(np.ascontiguousarray(codes[:, :-1]), bits) * lengths


def list_bytes(nlist: int) -> int:
    """
    Return how many bytes stand for the number of a list, as in Faiss.

    Examples
    --------
    >>> list_bytes(256), list_bytes(257)
    (1, 2)
    """
    return bytes_of((nlist - 1).bit_length())


def with_lists(numbers: Ids, codes: Codes, nlist: int) -> Codes:
    """Return codes behind the numbers of their lists."""
    size = list_bytes(nlist)
    as_bytes = np.ascontiguousarray(numbers, "<i8").view(np.uint8).reshape(*numbers.shape, 8)
    return np.concatenate([as_bytes[..., :size], codes], axis=-1)


def without_lists(codes: Codes, nlist: int) -> tuple[Ids, Codes]:
    """Return the numbers of lists and the codes behind them."""
    size = list_bytes(nlist)
    as_bytes = np.zeros((len(codes), 8), np.uint8)
    as_bytes[:, :size] = codes[:, :size]
    return as_bytes.view("<i8")[:, 0].astype(np.int64), np.ascontiguousarray(codes[:, size:])


def centroids_of(quantizer: Any) -> Floats:
    """Return the centroids of a quantizer: where they are, if it keeps them as floats, or else a copy."""
    flat = faiss.downcast_index(quantizer.storage) if isinstance(quantizer, faiss.IndexHNSW) else quantizer
    n, d = quantizer.ntotal, quantizer.d
    if type(flat) in FLOATS and n:
        where_they_are: Floats = faiss.rev_swig_ptr(flat.get_xb(), n * d).reshape(n, d)
        return where_they_are
    copied: Floats = quantizer.reconstruct_n(0, n) if n else np.empty((0, d), np.float32)
    return copied


def clustered(y: Floats, nlist: int, metric: int) -> Floats:
    """Return centroids as an IVF of Faiss's learns them."""
    quantizer = faiss.IndexFlat(y.shape[1], metric)
    trainer = faiss.IndexIVFFlat(quantizer, quantizer.d, nlist, metric)
    trainer.cp.spherical = metric == faiss.METRIC_INNER_PRODUCT
    trainer.train(y)
    return centroids_of(quantizer).copy()


def residuals_of(y: Floats, centroids: Floats, metric: int) -> Floats:
    """Return the differences of vectors from their nearest centroids."""
    _, nearest = faiss.knn(y, centroids, 1, metric)
    residuals: Floats = y - centroids[nearest[:, 0]]
    return residuals
