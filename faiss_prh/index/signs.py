"""IndexIVFSigns: inverted lists of the signs of residuals."""

from __future__ import annotations

from functools import cached_property, partial
from typing import Any, TypeVar

import faiss
import numpy as np
import numpy.typing as npt

from .. import _backend
from .._common import parts
from .._common.arrays import as_float32
from .._common.fields import FLOATS, Field, field
from .._common.locks import ForkSafeLock
from .._common.numbers import as_float, as_int, bytes_of
from .._common.types import Codes, Floats, Ids, Vectors
from ..transform import PRHTransform
from . import binary_ops, binary_search, chain, parameters, scanning
from .parameters import MARGIN, as_margin
from .pretransform import IndexBinaryPreTransform
from .reranking import nothing_found
from .residuals import ResidualScale, centroids_of, clustered, list_bytes, residuals_of, with_lists, without_lists
from .training import WayBack, way_back

_RESIDUALS, _SCALE_SAMPLE = 50_000, 10_000
"""The most training vectors from whose residuals a rotation is learned, and their scale."""
_POINTS_OF_A_LIST, _FEWEST_POINTS_OF_A_LIST = 256, 10
"""For each list: the most training vectors that k-means looks at, and the fewest for learning from residuals."""


AnyVectors = TypeVar("AnyVectors", Vectors, Floats)


class IndexIVFSigns(IndexBinaryPreTransform):
    """
    Inverted lists of the signs of residuals, behind transforms.

    A vector goes through the transforms and to the list of the nearest centroid. Kept are the signs of its difference
    from the centroid, and one byte for the norm of that: bits / 8 + 1 bytes. A search estimates distances from these
    in two steps: from the number of bits that differ, and, where that is promising, from the values of the query.

    `reconstruct` and its like return what a code stands for, sent back through the transforms. Codes, from
    `reconstruct_code` and its like and from `sa_encode`, begin with the number of the list.

    Parameters
    ----------
    transforms : faiss.VectorTransform or iterable of them
        In the order in which they are applied; the last one is usually a `PRHTransform`.
    quantizer : faiss.Index
        It finds the lists: a ``faiss.IndexFlatL2`` of as many dimensions as the last transform has, or any other that
        gives its vectors back. If it has `nlist` vectors, they are the centroids; if none, it gets them in training.
    nlist : int
        Number of lists.
    metric : int, optional
        METRIC_L2 or METRIC_INNER_PRODUCT, that of the quantizer. For inner products the transforms must be linear but
        for their centring, or these behind a normalisation.

    Attributes
    ----------
    chain : list of faiss.VectorTransform
    quantizer : faiss.Index
    index : faiss.IndexBinaryIVF
        The lists; it does not know how to search them.

    Examples
    --------
    >>> import faiss, numpy as np
    >>> from faiss_prh import IndexIVFSigns, PRHTransform
    >>> x = np.random.default_rng(0).normal(size=(2000, 64)).astype("float32")
    >>> index = IndexIVFSigns(PRHTransform(64), faiss.IndexFlatL2(64), 16)
    >>> index.train(x)
    >>> index.add(x)
    >>> index.nprobe = 4
    >>> D, I = index.search(x[:2], 3)
    >>> D.dtype, I[:, 0]
    (dtype('float32'), array([0, 1]))
    """

    _scale: ResidualScale | None = None
    _quantizer_fields: tuple[Field, Field] | None = None

    def __init__(self, transforms: Any, quantizer: Any, nlist: int, metric: int = faiss.METRIC_L2) -> None:
        self.chain = chain.checked_chain(transforms)
        bits, nlist = self.chain[-1].d_out, as_int(nlist, "nlist", 1)
        if not isinstance(quantizer, faiss.Index):
            raise TypeError(f"quantizer must be a faiss.Index, not {type(quantizer).__name__}")
        if quantizer.d != bits:
            raise ValueError(f"transforms to {bits} dimensions need a quantizer of as many, not {quantizer.d}")
        if metric not in (faiss.METRIC_L2, faiss.METRIC_INNER_PRODUCT) or quantizer.metric_type != metric:
            raise ValueError(
                "metric must be METRIC_L2 or METRIC_INNER_PRODUCT, and that of the quantizer: for cosines, put L2norm "
                "first"
            )
        if metric == faiss.METRIC_INNER_PRODUCT:
            chain.check_affine(self.chain)
        self._quantizer = faiss.downcast_index(quantizer) if type(quantizer) is faiss.Index else quantizer
        no_centroids = faiss.IndexBinaryFlat(8 * (bytes_of(bits) + 1))
        self.index = faiss.IndexBinaryIVF(no_centroids, no_centroids.d, nlist)
        self._margin = MARGIN
        self._lock = ForkSafeLock()

    @property
    def quantizer(self) -> Any:
        """What finds the lists. It cannot be replaced: the codes are those of its centroids."""
        return self._quantizer

    @property
    def metric_type(self) -> int:
        """What distances mean: METRIC_L2 or METRIC_INNER_PRODUCT."""
        return self._metric_of_quantizer.value

    @cached_property
    def _metric_of_quantizer(self) -> Field:
        return field(self._quantizer, "metric_type")

    @property
    def margin(self) -> float:
        """
        How much better than its estimate from bits a vector may be, as a share of the product of two norms.

        With more of it, more codes are looked at closely; with 1e9, all. Without native code, all are anyway.
        """
        return self._margin

    @margin.setter
    def margin(self, value: float) -> None:
        self._margin = as_margin(value)

    @property
    def is_trained(self) -> bool:
        """Whether vectors can be added."""
        return super().is_trained and self._scale is not None

    def _ways_back(self) -> list[WayBack]:
        return [
            *(way_back(part) for part in self.chain),
            partial(setattr, self.index, "is_trained", self.index.is_trained),
            _way_back_of_quantizer(self.quantizer),
            partial(setattr, self, "_scale", self._scale),
        ]

    def _train(self, vectors: Vectors) -> None:
        if self.quantizer.ntotal:
            self._centroids()  # or an error, before anything is learned
            chain.train(self.chain, vectors)
        else:
            self._train_with_lists(vectors)
        if self._scale is None:
            z = chain.apply(self.chain, _some(vectors, _SCALE_SAMPLE))
            self._scale = ResidualScale.of(z - self._centroids()[self._assigned(z)])
        self.index.is_trained = True

    def _train_with_lists(self, vectors: Vectors) -> None:
        """
        Train the transforms and the quantizer.

        A rotation to be learned is learned from residuals, whose signs it is for. As it leaves distances as they are,
        the lists can be found before it.
        """
        last, some = self.chain[-1], _some(vectors, _POINTS_OF_A_LIST * self.nlist)
        is_rotation = isinstance(last, PRHTransform) and last.d_in == last.d_out and not last.is_trained
        learns_from_residuals = is_rotation and len(some) >= _FEWEST_POINTS_OF_A_LIST * self.nlist
        before = self.chain[: -1 if learns_from_residuals else None]
        chain.train(before, vectors)
        y = chain.apply(before, some) if before else as_float32(some)
        centroids = clustered(y, self.nlist, self.metric_type)
        if learns_from_residuals:
            last.train(residuals_of(_some(y, _RESIDUALS), centroids, self.metric_type))
            centroids = last.apply(centroids)
        if not self.quantizer.is_trained:
            self.quantizer.train(centroids)
        self.quantizer.add(centroids)

    def _centroids(self) -> Floats:
        if self.quantizer.ntotal != self.nlist:
            raise ValueError(f"the quantizer has {self.quantizer.ntotal} centroids for {self.nlist} lists")
        return centroids_of(self.quantizer)

    def _assigned(self, z: Floats) -> Ids:
        """Return the numbers of the lists that transformed vectors belong to."""
        lists: Ids = self.quantizer.search(z, 1)[1][:, 0]
        return np.maximum(lists, 0)  # a graph may find none

    def encode(self, x: npt.ArrayLike) -> Codes:
        """Return what is kept of vectors: the numbers of their lists, the codes, and the bytes behind them."""
        vectors, scale = self._checked(x), self._trained_scale()
        codes, centroids = np.empty((len(vectors), self._kept_bytes), np.uint8), self._centroids()
        for part, block in chain.before_last(self.chain, vectors):
            z = self.chain[-1].apply(block)
            lists = self._assigned(z)
            codes[part] = with_lists(lists, scale.encode(z - centroids[lists]), self.nlist)
        return codes

    def sa_code_size(self) -> int:
        """Return how many bytes `sa_encode` makes of a vector: all that is kept of it but its id."""
        return self._kept_bytes

    @property
    def _kept_bytes(self) -> int:
        return list_bytes(self.nlist) + int(self.index.code_size)

    def sa_decode(self, codes: npt.ArrayLike) -> Floats:
        """Return the vectors that bytes from `sa_encode` stand for."""
        scale = self._trained_scale()
        lists, codes = without_lists(self._checked_codes(codes), self.nlist)
        if len(lists) and lists.max() >= self.nlist:
            raise ValueError(f"a code of list {lists.max()}; there are {self.nlist}")
        return chain.reverse(self.chain, self._centroids()[lists] + scale.decode(codes, self.chain[-1].d_out))

    def _decoded(self, rows: Ids, codes: Any) -> Floats:
        return self.sa_decode(codes)

    def _codes_of(self, rows: Ids) -> Codes:
        lists, _ = binary_ops.without_id_map(self._keyed)
        places = binary_search.places_in_lists(lists, rows)
        return with_lists(places >> 32, binary_search.from_lists(lists, places)[1], self.nlist)

    def _append(self, keyed: Any, codes: Codes, ids: Ids | None) -> None:
        lists, codes = without_lists(codes, self.nlist)
        binary_ops.add(keyed, codes, ids, lists)

    def _trained_scale(self) -> ResidualScale:
        if self._scale is None:
            raise RuntimeError("the index is not trained: call train(x) first")
        return self._scale

    def _check_trained_alike(self, other: Any) -> None:
        super()._check_trained_alike(other)
        if other._scale != self._scale or other.metric_type != self.metric_type:
            raise ValueError("only an index with the same scale of residuals, from the same training, can be merged")
        if not np.array_equal(self._centroids(), other._centroids()):
            raise ValueError("only an IVF with the same lists, from the same training, can be merged")

    def search(self, x: npt.ArrayLike, k: int, *, params: Any = None) -> tuple[Floats, Ids]:  # type: ignore[override]
        """
        Find the k vectors whose estimates are best.

        Parameters
        ----------
        x : array of shape (n, d)
        k : int
        params : faiss.SearchParameters, optional
            ``faiss.SearchParametersIVF``, or `SearchParametersIVFSigns`, which has a margin as well, or
            ``faiss.SearchParametersPreTransform`` around them.

        Returns
        -------
        D : ndarray of float32, shape (n, k)
            Estimates of squared distances, or with METRIC_INNER_PRODUCT of similarities, the best first; where there
            are fewer than k results, the largest float, or the least, as in Faiss.
        I : ndarray of int64, shape (n, k)
            Ids; -1 where there are fewer than k results.
        """
        D, rows, _ = self._search_rows(x, k, params, False)
        return D, self._ids_of(rows)

    def _search_rows(self, x: npt.ArrayLike, k: int, params: Any, with_codes: bool) -> tuple[Floats, Ids, Any]:
        k, params = as_int(k, "k", 1), parameters.of_binary_index(params)
        return self._estimated(self._scanned_index(), as_float32(self._checked(x)), k, params, with_codes)

    def _estimated(
        self, scanned: scanning.Scanned, vectors: Floats, k: int, params: Any, with_codes: bool, n_short: int = 0
    ) -> tuple[Floats, Ids, Any]:
        """Return distances, rows and, if wanted, codes of the k best."""
        scan, queries = self._what_to_scan(scanned, vectors, params)
        if not (len(vectors) and scanned.ntotal.value):
            chain.apply(self.chain, vectors)  # or an error, as if there were any
            return nothing_found(len(vectors), k, self.metric_type, self._kept_bytes)
        scan.wants_places, scan.shortlist = with_codes, n_short
        self._let_rank(scan, len(vectors))
        D, found = _backend.search(scan, k, queries)
        if not with_codes:
            return D, found, None
        rows, codes = scanned.rows_and_codes(found)
        return D, rows, with_lists(np.maximum(found, 0) >> 32, codes, self.nlist)

    def _let_rank(self, scan: _backend.Scan, n: int) -> None:
        """Let n queries be ranked by more than the codes."""

    def range_search(
        self, x: npt.ArrayLike, radius: float, *, params: Any = None
    ) -> tuple[npt.NDArray[np.uint64], Floats, Ids]:
        """
        Find all vectors with an estimate better than `radius`, in the lists that are searched.

        Returns (limits, distances, ids) as Faiss's indexes do. With METRIC_INNER_PRODUCT, better is more. Results are
        not ranked again.
        """
        radius = as_float(radius, "radius", -np.inf)
        vectors = as_float32(self._checked(x))
        scan, queries = self._what_to_scan(self._scanned_index(), vectors, parameters.of_binary_index(params))
        found = list(_backend.range_search(scan, radius, queries))
        counts = np.concatenate([np.empty(0, np.int64), *(np.diff(limits) for limits, _, _ in found)])
        D = np.concatenate([np.empty(0, np.float32), *(distances for _, distances, _ in found)])
        rows = np.concatenate([np.empty(0, np.int64), *(rows for _, _, rows in found)])
        return np.concatenate([[0], np.cumsum(counts)]).astype(np.uint64), D, self._ids_of(rows)

    def _what_to_scan(
        self, scanned: scanning.Scanned, vectors: Floats, params: Any
    ) -> tuple[_backend.Scan, _backend.Batch]:
        """Return what to scan, and the queries."""
        params = parameters.checked(scanned.rows_index, params, follows_margin=True)
        margin, quantizer = getattr(params, "margin", None), self._quantizer
        scan = scanned.scan(params)
        nprobe, quantizer_params = scanned.set_lists(scan, params)
        if quantizer_params is not None and isinstance(quantizer, (faiss.IndexFlat, faiss.IndexHNSWFlat)):
            parameters.checked(quantizer, quantizer_params)
        scan.low, scan.step, scan.reach = self._trained_scale()
        scan.margin = self._margin if margin is None else as_margin(margin)
        scan.centroids = self._centroids_at(scan)
        if self._metric_of_quantizer.value == faiss.METRIC_INNER_PRODUCT:
            scan.is_product = True
            scan.set_offset(chain.offset(self.chain))
        if type(quantizer) in FLOATS and quantizer_params is None:  # as native code looks for lists
            return scan, _backend.Batch(vectors, scanning.let_transform(scan, self.chain, vectors), None, nprobe)
        z = scanning.transformed(scan, self.chain, vectors)
        y = z - chain.offset(self.chain) if scan.is_product else z  # ⟨Aq, Ax + b⟩ is that of q and x, and ⟨Aq, b⟩
        _, probes = parts.search(quantizer, y, nprobe, quantizer_params)
        return scan, _backend.Batch(vectors, z, probes, nprobe)

    def _centroids_at(self, scan: _backend.Scan) -> int:
        """Return where the centroids are, for as long as the scan lives."""
        if type(self._quantizer) in FLOATS:
            if self._quantizer_fields is None:
                self._quantizer_fields = field(self._quantizer, "ntotal"), field(self._quantizer, "codes")
            ntotal, codes = self._quantizer_fields
            if ntotal.value == scan.n_lists:
                return codes.value
        centroids = self._centroids()
        scan.keep(centroids)
        return int(faiss.swig_ptr(centroids))


def _some(vectors: AnyVectors, most: int) -> AnyVectors:
    """Return at most so many of the vectors, evenly spread."""
    return vectors[:: -(-len(vectors) // most)]


def _way_back_of_quantizer(quantizer: Any) -> WayBack:
    """Return what takes the centroids away again from a quantizer that has none now."""
    if quantizer.ntotal:
        return lambda: None
    was_trained, new = quantizer.is_trained, faiss.HNSW()

    def go_back() -> None:
        quantizer.reset()
        quantizer.is_trained = was_trained
        if isinstance(quantizer, faiss.IndexHNSW):  # whose levels are drawn: the next are to be those of a new one
            quantizer.hnsw.rng = new.rng

    return go_back
