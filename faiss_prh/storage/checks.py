"""What Faiss's readers and the walks over formats let through, and Faiss then reads elsewhere with, or never ends."""

from __future__ import annotations

from typing import Any

import faiss
import numpy as np
from faiss.contrib.inspect_tools import get_invlist

from ..index.binary_ops import without_id_map
from .formats import check_values

MOST_NEIGHBOURS = 1 << 12
"""Of a vertex on a level."""
MOST_K_FACTOR = 1000
_BLOCK_VALUES = 1 << 18
_STORES = (faiss.IndexFlat, faiss.IndexScalarQuantizer, faiss.IndexPQ)


def check_transform(transform: Any) -> None:
    """Refuse a Faiss transform whose arrays have other sizes than it says."""
    d_in, d_out = transform.d_in, transform.d_out
    if isinstance(transform, faiss.LinearTransform) and transform.is_trained:
        sizes = transform.A.size(), transform.b.size()
        _expect(sizes == (d_in * d_out, d_out if transform.have_bias else 0), "a linear transform of another size")
    elif isinstance(transform, faiss.RemapDimensionsTransform):
        places = faiss.vector_to_array(transform.map)
        exist = len(places) == d_out and (places >= -1).all() and (places < d_in).all()
        _expect(exist, "dimensions that do not exist")
    elif isinstance(transform, faiss.CenteringTransform) and transform.is_trained:
        _expect(transform.mean.size() == d_in == d_out, "a mean of another size")
    elif isinstance(transform, faiss.ITQTransform) and transform.is_trained:
        matrix = transform.pca_then_itq
        _expect(transform.mean.size() == d_in == matrix.d_in and matrix.d_out == d_out, "an ITQ of another size")
        check_transform(matrix)
    elif isinstance(transform, faiss.NormalizationTransform):
        _expect(d_in == d_out, "a normalization to other dimensions")


def check_binary(index: Any) -> None:
    """Refuse a binary index with parts that do not fit."""
    rows_index, id_map = without_id_map(index)
    if isinstance(rows_index, faiss.IndexBinaryIVF):
        if id_map is not None:
            _check_list_ids(rows_index, index.ntotal)
        rows_index.nprobe = min(rows_index.nprobe, rows_index.nlist)  # with more, Faiss 1.8 reads beyond its arrays
        check_binary(rows_index.quantizer)
    elif isinstance(rows_index, faiss.IndexBinaryHNSW):
        check_graph(rows_index.hnsw, rows_index.ntotal)


def check_graph(hnsw: Any, n: int) -> None:
    """Refuse a graph with an edge, or a way in, to where there is no vertex on that level."""
    ends, levels, offsets = map(faiss.vector_to_array, (hnsw.cum_nneighbor_per_level, hnsw.levels, hnsw.offsets))
    neighbours = np.empty(0, np.int32)
    if hnsw.neighbors.size():
        neighbours = faiss.rev_swig_ptr(hnsw.neighbors.data(), hnsw.neighbors.size())
    ends, offsets = ends.astype(np.int64), offsets.astype(np.int64)
    _expect(len(ends) == hnsw.assign_probas.size() + 1 and ends[0] == 0, "no levels")
    rooms = np.diff(ends)
    _expect(((rooms > 0) & (rooms <= MOST_NEIGHBOURS)).all(), "levels without room, or with too much")
    _expect(len(levels) == n and len(offsets) == n + 1, f"a graph that has not {n} vertices")
    _expect(((levels >= 1) & (levels < len(ends))).all(), "a vertex on no level")
    _expect(offsets[0] == 0 and offsets[-1] == len(neighbours), "neighbours of no vertex")
    _expect((np.diff(offsets) == ends[levels]).all(), "a vertex with more or fewer neighbours than its level has")
    _expect(((neighbours >= -1) & (neighbours < n)).all(), "an edge to no vertex")
    entry = hnsw.entry_point
    if n:
        _expect(0 <= entry < n and levels[entry] - 1 == hnsw.max_level, "no way into the graph")
    else:
        _expect(entry == -1 and hnsw.max_level == -1, "a way into an empty graph")
    for level in range(1, int(levels.max(initial=0))):
        there = np.flatnonzero(levels > level)
        places = offsets[there, None] + np.arange(ends[level], ends[level + 1])
        found = neighbours[places]
        _expect((levels[found[found >= 0]] > level).all(), "an edge to a vertex below its level")


def check_float(index: Any) -> None:
    """Refuse a float index with parts that do not fit."""
    index = faiss.downcast_index(index)
    if isinstance(index, faiss.IndexIDMap):
        check_float(index.index)
        _check_rows(index.index, index.ntotal)
    elif isinstance(index, faiss.IndexPreTransform):
        d = index.d
        for number in range(index.chain.size()):
            transform = faiss.downcast_VectorTransform(index.chain.at(number))
            _expect(transform.d_in == d, "transforms that do not fit")
            _expect(transform.is_trained or not index.ntotal, "vectors behind transforms without training")
            check_transform(transform)
            d = transform.d_out
        _expect((index.index.d, index.index.ntotal) == (d, index.ntotal), "transforms before another index")
        check_float(index.index)
    elif isinstance(index, faiss.IndexRefine):
        base, store = (faiss.downcast_index(part) for part in (index.base_index, index.refine_index))
        for part in (base, store):
            _expect(part.is_trained or not index.is_trained, "an IndexRefine that could add to one part only")
            check_float(part)
        _expect(isinstance(store, _STORES), "an IndexRefine that cannot ask for its vectors")
        _check_rows(base, index.ntotal)
        _expect(1 <= index.k_factor <= max(MOST_K_FACTOR, index.ntotal), f"k_factor = {index.k_factor}")
    elif isinstance(index, faiss.IndexLSH):
        _expect(index.rrot.is_trained if index.rotate_data else index.d == index.nbits, "an LSH without its rotation")
        check_transform(index.rrot)
    elif isinstance(index, faiss.IndexIVF):
        check_float(index.quantizer)
    elif isinstance(index, faiss.IndexHNSW):
        check_graph(index.hnsw, index.ntotal)
        _check_vectors(index.storage)


def _check_vectors(storage: Any) -> None:
    step = max(1, _BLOCK_VALUES // storage.d)
    for first in range(0, storage.ntotal, step):
        check_values(storage.reconstruct_n(first, min(step, storage.ntotal - first)))


def _check_rows(index: Any, ntotal: int) -> None:
    """Refuse a float index that finds other ids than rows."""
    index = faiss.downcast_index(index)
    while isinstance(index, (faiss.IndexPreTransform, faiss.IndexRefine)):
        index = faiss.downcast_index(index.index if isinstance(index, faiss.IndexPreTransform) else index.base_index)
    _expect(not isinstance(index, faiss.IndexIDMap), "an IDMap where rows are meant")
    if isinstance(index, faiss.IndexIVF):
        _check_list_ids(index, ntotal)


def _check_list_ids(ivf: Any, ntotal: int) -> None:
    """Refuse an IVF, in an IDMap or the like, that has not just the rows that this knows, each of them once."""
    seen = np.zeros(ntotal, dtype=bool)
    for number in range(ivf.nlist):
        if ivf.invlists.list_size(number):
            rows, _ = get_invlist(ivf.invlists, number)
            _expect(bool(np.all((rows >= 0) & (rows < ntotal))), "ids that the IDMap does not know")
            seen[rows] = True
    _expect(bool(seen.all()), "a row that stands twice")


def _expect(is_so: bool | np.bool_, otherwise: str) -> None:
    if not is_so:
        raise ValueError(f"a damaged index file: {otherwise}")
