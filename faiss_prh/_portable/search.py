"""Searching codes where Faiss keeps them, in NumPy: the functions of `_native.search`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import faiss
import numpy as np

from .._common.fields import FLOATS, memory_at
from .._common.filters import filter_of
from .._common.parts import cut
from .._common.types import Floats, Ids
from .candidates import Candidates, Searched
from .estimates import best_estimated, within


class Scan:
    """What to search, and how results are ranked; `native/prh.h` explains the fields."""

    lists: int | None = None
    codes: int | None = None
    coarse: int | None = None
    ids: int | None = None
    centroids: int | None = None
    beside: int | None = None
    norms: int | None = None
    products: int | None = None
    offset: int | None = None
    vectors: int | None = None
    n_lists = n_codes = code_size = bits = d = max_codes = n_ids = n_rows = shortlist = beside_size = vector_size = 0
    low = step = reach = margin = 0.0
    is_product = is_isometric = wants_places = False
    selector: Any = None
    store: Any = None

    def set_offset(self, offset: Floats) -> None:
        """Say what the transforms make of zero, for inner products."""
        self.offset = int(faiss.swig_ptr(offset))
        self.keep(offset)

    def transform_by(self, transform: Any) -> bool:
        """Let queries be transformed on the way, and return whether that is possible: here it is not."""
        return False

    def filter_by(self, params: Any) -> None:
        """Leave out what the filter of search parameters does not allow."""
        self.selector = filter_of(params)
        self.keep(params)

    def keep(self, *things: Any) -> None:
        """Keep alive what fields point to."""
        self.kept = getattr(self, "kept", None), things


class Batch:
    """
    Queries in the forms that a scan takes.

    Parameters
    ----------
    x : ndarray of float32, shape (n, d)
    z : ndarray of float32, optional
        What the transforms make of them.
    probes : ndarray of int64, optional
        The numbers of the lists to search, if they are not to be looked for.
    n_probes : int
        How many lists there are to search.
    """

    def __init__(self, x: Floats, z: Floats | None = None, probes: Ids | None = None, n_probes: int = 1) -> None:
        self.arrays, self.n_probes = (x, z, probes), n_probes


def search(scan: Scan, k: int, queries: Batch) -> tuple[Floats, Ids]:
    """Return the k best of each query: distances, and rows or places."""
    n, searched = len(queries.arrays[0]), Searched(scan)
    D, I = _nothing(scan, n, k)
    n_short = max(k, scan.shortlist) if scan.vectors or scan.beside else k
    for x, z, probes, distances, found in cut(*queries.arrays, D, I):
        numbers = searched.lists(z, probes, queries.n_probes)
        for q in range(len(x)):
            if scan.centroids:
                best = best_estimated(searched, z[q], numbers[q], n_short)
            else:
                best = searched.nearest(z[q], numbers[q], n_short)
            _write(scan, _ranked(scan, best, x[q], None if z is None else z[q], k), distances[q], found[q])
    return D, I


def rank(scan: Scan, k: int, rows: Ids, queries: Batch) -> tuple[Floats, Ids]:
    """Return the k best among some rows for each query."""
    D, I = _nothing(scan, len(rows), k)
    codes = memory_at(scan.codes, (scan.n_codes, scan.code_size), np.uint8)
    for x, z, _, among, distances, found in cut(*queries.arrays, rows, D, I):
        for q, own in enumerate(among):
            there = own[(own >= 0) & (own < scan.n_rows)]
            best = Candidates(np.zeros(len(there), np.float32), there, there, codes[there] if scan.beside else None)
            _write(scan, _ranked(scan, best, x[q], None if z is None else z[q], k), distances[q], found[q])
    return D, I


def range_search(scan: Scan, radius: float, queries: Batch) -> Iterator[tuple[Ids, Floats, Ids]]:
    """Yield limits, distances and rows of all that is within a radius, for some queries at a time."""
    searched, sign = Searched(scan), -1 if scan.is_product else 1
    for _, z, probes in cut(*queries.arrays):
        numbers = searched.lists(z, probes, queries.n_probes)
        found = [within(searched, z[q], numbers[q], sign * np.float32(radius)) for q in range(len(z))]
        limits = np.concatenate([[0], np.cumsum([len(one.rows) for one in found])])
        distances = np.concatenate([np.empty(0, np.float32), *(one.distances for one in found)])
        yield limits, sign * distances, np.concatenate([np.empty(0, np.int64), *(one.rows for one in found)])


def _nothing(scan: Scan, n: int, k: int) -> tuple[Floats, Ids]:
    """Return what there is where nothing is found."""
    worst = np.finfo(np.float32).min if scan.is_product else np.finfo(np.float32).max
    return np.full((n, k), worst, np.float32), np.full((n, k), -1, np.int64)


def _write(scan: Scan, best: Candidates, distances: Floats, found: Ids) -> None:
    n = len(best.rows)
    distances[:n] = -best.distances if scan.is_product else best.distances
    found[:n] = best.places if scan.wants_places else best.rows


def _ranked(scan: Scan, some: Candidates, x: Floats, z: Floats | None, k: int) -> Candidates:
    """Return the k best of a shortlist, in order: by vectors, by bytes beside the codes, or as they are."""
    if scan.vectors or scan.beside:
        some = some.only((some.rows >= 0) & (some.rows < scan.n_rows))
        distances = _by_vectors(scan, some, x) if scan.vectors else _by_bytes(scan, some, z)
        some = some._replace(distances=distances)
    # Of equally good ones the first get in; those are then in the order of their places.
    best = some.only(np.argsort(some.distances, kind="stable")[:k])
    return best.only(np.lexsort((best.places, best.distances)))


def _by_vectors(scan: Scan, some: Candidates, x: Floats) -> Any:
    if type(scan.store) in FLOATS:
        vectors = memory_at(scan.vectors, (scan.n_rows, scan.d), np.float32)[some.rows]
        if scan.is_product:
            return -np.einsum("nd,d->n", vectors, x)
        vectors -= x
        return np.einsum("nd,nd->n", vectors, vectors)
    computer, query = scan.store.get_distance_computer(), np.ascontiguousarray(x)
    computer.set_query(faiss.swig_ptr(query))
    distances = np.array([computer(row) for row in some.rows.tolist()], np.float32)
    return -distances if scan.is_product else distances


def _by_bytes(scan: Scan, some: Candidates, z: Floats | None) -> Any:
    assert z is not None and some.codes is not None
    bytes_beside = memory_at(scan.beside, (scan.n_rows, scan.beside_size), np.uint8)[some.rows]
    norms = memory_at(scan.norms, (256,), np.float32)[bytes_beside[:, 0]]
    signs = np.unpackbits(some.codes, axis=1, count=scan.bits, bitorder="little").astype(np.float32)
    reached = np.float32(scan.reach) * norms * (2 * (signs @ z) - z.sum())
    if not scan.is_product:
        return np.dot(z, z) + norms * norms - 2 * reached
    offset = memory_at(scan.offset, (scan.bits,), np.float32)
    products = memory_at(scan.products, (256,), np.float32)[bytes_beside[:, 1]]
    return products - reached - (np.dot(offset, offset) - np.dot(z, offset))


def rank_by_vectors(scan: Scan, store: Any, size: int, n: int) -> None:
    """Let n queries be ranked by what an index stores of each vector, `size` bytes, from `scan.vectors` on."""
    d = size // 4 if type(store) in FLOATS else store.d
    if d != scan.d:
        raise ValueError(f"transforms of {scan.d} dimensions do not fit stored vectors of {d}")
    scan.vector_size, scan.store = size, store


def rank_by_bytes(scan: Scan, size: int, tables: Floats) -> None:
    """Let queries be ranked by `size` bytes beside each code, which stand for norms, and products with the offset."""
    at = int(faiss.swig_ptr(tables))
    scan.beside_size, scan.norms, scan.products = size, at, at + tables.itemsize * 256
    scan.keep(tables)
