"""An index side by side with a model in NumPy that searches everything."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import faiss
import numpy as np

import faiss_prh

MISSING = -1


class Modelled:
    """
    An index, and which vectors of a pool it should hold under which ids.

    Parameters
    ----------
    description : str
        Of a flat or an IVF index behind transforms that do not depend on how a batch is cut.
    pool : ndarray of float32
        The vectors to train with and to add.
    metric : int, optional
        METRIC_L2, or METRIC_INNER_PRODUCT for lists of signs.
    """

    def __init__(self, description: str, pool: np.ndarray, metric: int = faiss.METRIC_L2) -> None:
        self.description, self.pool, self.queries = description, pool, pool[:4] + np.float32(0.1)
        self.index = faiss_prh.index_factory(pool.shape[1], description, metric)
        self.index.train(pool)
        self.is_product, self.has_signs = metric == faiss.METRIC_INNER_PRODUCT, "Signs" in description
        self.takes_ids = "IDMap" in description or "IVF" in description
        self.takes_none = "IDMap" not in description
        self.ids: list[int] = []
        self.which: list[int] = []

    def vectors(self, which: Sequence[int]) -> np.ndarray:
        return self.pool[list(which)].reshape(-1, self.pool.shape[1])

    def add(self, which: Sequence[int]) -> None:
        self.index.add(self.vectors(which))
        self._note(range(len(self.ids), len(self.ids) + len(which)), which)

    def add_with_ids(self, which: Sequence[int], first: int) -> None:
        ids = [first + 3 * number for number in range(len(which))]
        self.index.add_with_ids(self.vectors(which), ids)
        self._note(ids, which)

    def remove(self, first: int, count: int, as_range: bool) -> None:
        removed = set(range(first, first + count))
        kept = [row for row, id_ in enumerate(self.ids) if id_ not in removed]
        ids = np.array(sorted(removed), dtype=np.int64)
        selector = faiss.IDSelectorRange(first, first + count) if as_range else ids
        assert self.index.remove_ids(selector) == len(self.ids) - len(kept)
        self.which = [self.which[row] for row in kept]
        self.ids = [self.ids[row] for row in kept] if self.takes_ids else list(range(len(kept)))

    def merge(self, which: Sequence[int], add_id: int) -> None:
        other = faiss_prh.clone_index(self.index)
        other.reset()
        if self.takes_none:
            other.add(self.vectors(which))
        else:
            other.add_with_ids(self.vectors(which), np.arange(len(which)))
        self.index.merge_from(other, add_id)
        assert other.ntotal == 0
        first = add_id if self.takes_ids else len(self.ids)
        self._note(range(first, first + len(which)), which)

    def fail(self) -> None:
        """Add a vector that cannot be added."""
        spoiled = self.pool[:3].copy()
        spoiled[2, 5] = np.nan
        try:
            if self.takes_none:
                self.index.add(spoiled)
            else:
                self.index.add_with_ids(spoiled, [1, 2, 3])
        except ValueError as error:
            assert "vector 2 " in str(error)
        else:
            raise AssertionError("a vector with a NaN was added")

    def reset(self) -> None:
        self.index.reset()
        self.ids, self.which = [], []

    def check(self) -> None:
        """Search for some vectors, all and only those with even ids, and in a radius, and compare."""
        assert self.index.ntotal == len(self.ids)
        self._probe_everything()
        k = len(self.ids) + 2
        self._compare(*self.index.search(self.queries, k), np.arange(len(self.ids)))
        even = faiss.SearchParameters(sel=faiss.IDSelectorBatch(np.arange(0, 10_000, 2)))
        rows = np.flatnonzero(np.array(self.ids, dtype=int) % 2 == 0)
        self._compare(*self.index.search(self.queries, k, params=even), rows)
        if self.has_signs:
            self._compare_few_lists()
            self._compare_estimates_in_range()
        else:
            self._compare_range(self.index.index.d // 3)

    def _note(self, ids: Sequence[int], which: Sequence[int]) -> None:
        self.ids += ids
        self.which += which

    def _probe_everything(self) -> None:
        rows_index = self.index.index
        while hasattr(rows_index, "index"):
            rows_index = faiss.downcast_IndexBinary(rows_index.index)
        if hasattr(rows_index, "nprobe"):
            rows_index.nprobe = rows_index.nlist
        if hasattr(self.index, "k_factor"):
            self.index.k_factor = 1000
        if self.has_signs:
            self.index.margin = 1e9

    def _transformed(self, x: np.ndarray) -> np.ndarray:
        for transform in self.index.chain:
            x = transform.apply(x)
        return x

    def _hamming(self, x: np.ndarray) -> np.ndarray:
        return ((self._transformed(self.queries) >= 0)[:, None] != (self._transformed(x) >= 0)).sum(axis=2)

    def _distances_to(self, which: np.ndarray) -> np.ndarray:
        """Return what a search must find as the distances of vectors, by the book."""
        x = self.vectors(which)
        if isinstance(self.index, faiss_prh.IndexBinaryRefine):
            return self.queries @ x.T if self.is_product else ((self.queries[:, None] - x) ** 2).sum(axis=2)
        if self.has_signs:
            return self._estimates(x)
        if not isinstance(self.index, faiss_prh.IndexBinaryAsymmetric):
            return self._hamming(x)
        z, z_query = self._transformed(x), self._transformed(self.queries)
        low, step, reach = self.index._scale[:3]
        norms = low * np.exp(step * np.clip(np.rint(np.log(np.linalg.norm(z, axis=1) / low) / step), 0, 255))
        products = z_query @ np.where(z >= 0, 1, -1).T
        return (z_query**2).sum(axis=1)[:, None] + norms**2 - 2 * reach * norms * products

    def _nearness(self, z: np.ndarray) -> np.ndarray:
        """Return how near each centroid is to transformed vectors."""
        centroids = self._centroids()
        return z @ centroids.T if self.is_product else -((z[:, None] - centroids) ** 2).sum(axis=2)

    def _centroids(self) -> np.ndarray:
        return self.index.quantizer.reconstruct_n(0, self.index.nlist)

    def _lists_of(self, x: np.ndarray) -> np.ndarray:
        return self._nearness(self._transformed(x)).argmax(axis=1)

    def _estimates(self, x: np.ndarray) -> np.ndarray:
        """Return what lists of signs should find as the distances or products of vectors."""
        z, z_query = self._transformed(x), self._transformed(self.queries)
        centroids = self._centroids()[self._lists_of(x)]
        low, step, reach = self.index._scale
        residuals = z - centroids
        norms = low + step * np.clip(np.rint((np.linalg.norm(residuals, axis=1) - low) / step), 0, 255)
        decoded = reach * norms[:, None] * np.where(residuals >= 0, 1.0, -1.0)
        if self.is_product:
            offset = self._transformed(np.zeros_like(self.queries[:1]))
            return (z_query - offset) @ (centroids + decoded - offset).T
        from_centroids = z_query[:, None] - centroids
        return (from_centroids**2).sum(axis=2) + norms**2 - 2 * (from_centroids * decoded).sum(axis=2)

    def _query_lists(self, nprobe: int) -> np.ndarray:
        z = self._transformed(self.queries)
        if self.is_product:
            z = z - self._transformed(np.zeros_like(self.queries[:1]))
        return np.argsort(-self._nearness(z), axis=1)[:, :nprobe]

    def _compare_few_lists(self) -> None:
        """Search for a few, in some of the lists."""
        nprobe, k = (self.index.nlist + 1) // 2, 3
        expected = self._distances_to(np.array(self.which, dtype=int))
        lists, of_queries = self._lists_of(self.vectors(self.which)), self._query_lists(nprobe)
        # Exact distances are computed of those that may be nearest as far as errors are known, and so of all if k is.
        k = len(self.ids) + 1 if isinstance(self.index, faiss_prh.IndexBinaryRefine) else k
        found, ids = self.index.search(self.queries, k, params=faiss_prh.SearchParametersIVFSigns(nprobe=nprobe))
        for query, mine in enumerate(expected):
            rows = np.flatnonzero(np.isin(lists, of_queries[query]))
            best = np.sort(-mine[rows] if self.is_product else mine[rows])[:k]
            assert (ids[query, len(best) :] == MISSING).all()
            assert set(ids[query, : len(best)].tolist()) <= set(np.array(self.ids, dtype=int)[rows].tolist())
            theirs = found[query, : len(best)]
            np.testing.assert_allclose(-theirs if self.is_product else theirs, best, rtol=1e-4, atol=2e-2)

    def _compare_estimates_in_range(self) -> None:
        expected = self._estimates(self.vectors(self.which))
        radius = float(np.median(expected)) if expected.size else 1.0
        limits, distances, ids = self.index.range_search(self.queries, radius)
        for query, mine in enumerate(expected):
            found: Any = slice(int(limits[query]), int(limits[query + 1]))
            order = np.argsort(ids[found], kind="stable")
            better = mine > radius if self.is_product else mine < radius
            unsure = np.abs(mine - radius) < 2e-2 + 1e-4 * abs(radius)
            certain = sorted(np.array(self.ids, dtype=int)[better & ~unsure].tolist())
            possible = sorted(np.array(self.ids, dtype=int)[better | unsure].tolist())
            assert not Counter(certain) - Counter(ids[found].tolist())
            assert not Counter(ids[found].tolist()) - Counter(possible)
            assert ((distances[found] > radius) if self.is_product else (distances[found] < radius)).all()
            if len(set(self.ids)) == len(self.ids):
                rows = [self.ids.index(one) for one in ids[found][order].tolist()]
                np.testing.assert_allclose(distances[found][order], mine[rows], rtol=1e-4, atol=2e-2)

    def _compare(self, found_distances: np.ndarray, found_ids: np.ndarray, rows: np.ndarray) -> None:
        expected = self._distances_to(np.array(self.which, dtype=int)[rows])
        ids = np.array(self.ids, dtype=int)[rows]
        assert (found_ids[:, len(rows) :] == MISSING).all()
        if self.is_product:
            expected, found_distances = -expected, -found_distances
        assert (np.diff(found_distances.astype(float), axis=1) >= 0).all()
        for query, mine in enumerate(expected):
            order = np.lexsort((ids, np.round(mine, 2)))
            theirs, their_ids = found_distances[query, : len(rows)], found_ids[query, : len(rows)]
            their_order = np.lexsort((their_ids, np.round(theirs, 2)))
            np.testing.assert_allclose(theirs[their_order], mine[order], rtol=1e-4, atol=2e-2)
            np.testing.assert_array_equal(np.sort(their_ids), np.sort(ids))

    def _compare_range(self, radius: int) -> None:
        limits, distances, ids = self.index.range_search(self.queries, radius)
        for query, mine in enumerate(self._hamming(self.vectors(self.which))):
            found: Any = slice(int(limits[query]), int(limits[query + 1]))
            near = mine < radius
            expected = sorted(zip(np.array(self.ids, dtype=int)[near].tolist(), mine[near].tolist(), strict=True))
            assert sorted(zip(ids[found].tolist(), distances[found].tolist(), strict=True)) == expected
