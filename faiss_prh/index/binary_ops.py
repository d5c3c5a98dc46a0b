"""
Binary indexes and their rows: ids, removal and merging, also where Faiss's own goes wrong.

The *rows* of an index are its ids without an IDMap: what an IDMap's `id_map` maps to the caller's ids.
"""

from __future__ import annotations

from typing import Any

import faiss
import numpy as np
from faiss.contrib.inspect_tools import get_invlist

from .._common.types import Codes, Ids

_SPARE_BYTES = 1 << 19


def without_id_map(index: Any) -> tuple[Any, Any]:
    """Return the index of rows, and the IDMap around it or None."""
    if type(index) is faiss.IndexBinary:  # what an attribute of another index shows; Shards would only lose their type
        index = faiss.downcast_IndexBinary(index)
    if isinstance(index, faiss.IndexBinaryIDMap):
        return faiss.downcast_IndexBinary(index.index), index
    return index, None


def storage_of(rows_index: Any) -> Any:
    """Return the IndexBinaryFlat that holds the codes of an index row by row, or None."""
    if isinstance(rows_index, (faiss.IndexBinaryHNSW, faiss.IndexBinaryMultiHash)):
        rows_index = faiss.downcast_IndexBinary(rows_index.storage)
    return rows_index if isinstance(rows_index, faiss.IndexBinaryFlat) else None


def has_all_rows(rows_index: Any) -> bool:
    """Whether the ids of an index are its rows: those of an IVF could be any."""
    if not isinstance(rows_index, faiss.IndexBinaryIVF):
        return True
    rows = [get_invlist(rows_index.invlists, number)[0] for number in range(rows_index.nlist)]
    return np.array_equal(np.sort(np.concatenate(rows)), np.arange(sum(map(len, rows))))


def add(index: Any, codes: Codes, ids: Ids | None = None) -> None:
    """Add codes, under ids if there are some. If that fails, a flat index or an IVF is what it was."""
    if not len(codes):  # which crashes the HNSW of Faiss 1.8
        return
    rows_index, id_map = without_id_map(index)
    before = rows_index.ntotal
    spare = np.empty(_SPARE_BYTES, np.uint8)  # for taking back, if there is no other memory
    try:
        if ids is None:
            index.add(codes)
        else:
            index.add_with_ids(codes, ids)
    except BaseException:  # memory may have run out at any place
        del spare
        if isinstance(rows_index, faiss.IndexBinaryIVF):
            _take_back(rows_index, codes, before)
        elif isinstance(rows_index, faiss.IndexBinaryFlat) and rows_index.ntotal > before:
            rows_index.remove_ids(faiss.IDSelectorRange(before, rows_index.ntotal))
        if id_map is not None and id_map.id_map.size() > before:
            id_map.id_map.resize(before)
            _take_ids(id_map)
        raise


def _take_back(ivf: Any, codes: Codes, ntotal: int) -> None:
    """Remove from the ends of lists the first of the codes, which are all that got there."""
    added = sum(ivf.invlists.list_size(number) for number in range(ivf.nlist)) - ntotal
    for first in range(0, added, 1000):  # a little at a time: there may be no memory
        _, lists = ivf.quantizer.search(codes[first : min(first + 1000, added)], 1)
        for number, count in zip(*np.unique(lists, return_counts=True), strict=True):
            ivf.invlists.resize(int(number), ivf.invlists.list_size(int(number)) - int(count))
    ivf.ntotal = ntotal


def mend_tables(index: Any) -> None:
    """
    Fill the tables of a MultiHash that was read from a file again, from its codes.

    Faiss (1.8 to 1.15) writes the size of a list in as many bits as an id needs. If one list has all of 2**i vectors,
    also of a single one, that is 0, and they are not found again.
    """
    rows_index, _ = without_id_map(index)
    n = rows_index.ntotal
    if isinstance(rows_index, faiss.IndexBinaryMultiHash) and n and n & (n - 1) == 0:
        codes = storage_of(rows_index).reconstruct_n(0, n)
        rows_index.reset()
        rows_index.add(codes)


def remove(index: Any, selector: Any) -> int:
    """Remove what an IDSelector selects, and return how many there were."""
    ivf, id_map = without_id_map(index)
    if id_map is None or not isinstance(ivf, faiss.IndexBinaryIVF):
        return int(index.remove_ids(selector))
    # Faiss closes the gaps in the IDMap but not in the IVF, which then finds others' ids (1.8 to 1.15).
    if ivf.direct_map.type != faiss.DirectMap.NoMap:
        raise RuntimeError("vectors cannot be removed from an IDMap of an IVF with a direct map")
    ids = faiss.vector_to_array(id_map.id_map)
    kept = np.ones(len(ids), dtype=bool)
    kept[selected(ids, selector)] = False
    removed: int = ivf.remove_ids(selector_of_rows(id_map, selector))
    new_row = np.cumsum(kept) - 1
    for number in range(ivf.nlist):
        size = ivf.invlists.list_size(number)
        if size:
            rows = faiss.rev_swig_ptr(ivf.invlists.get_ids(number), size)
            rows[:] = new_row[rows]
    _set_ids(id_map, ids[kept])
    return removed


def merge(index: Any, other: Any, add_id: int) -> None:
    """Move all vectors of `other` to `index`, adding `add_id` to their ids where these are not positions."""
    (rows_index, id_map), (other_rows, other_id_map) = without_id_map(index), without_id_map(other)
    if type(rows_index) is not type(other_rows) or type(id_map) is not type(other_id_map) or index.d != other.d:
        raise ValueError(f"{_kind(other)} of {other.d} bits cannot be merged into {_kind(index)} of {index.d} bits")
    if id_map is not None:  # Faiss's does not renumber the rows of an IVF
        ids, other_ids = faiss.vector_to_array(id_map.id_map), faiss.vector_to_array(other_id_map.id_map)
        merge(rows_index, other_rows, len(ids))
        _set_ids(id_map, np.concatenate([ids, other_ids + add_id]))
        _set_ids(other_id_map, other_ids[:0])
    elif isinstance(rows_index, faiss.IndexBinaryFlat):  # which Faiss does not merge
        rows_index.add(other_rows.reconstruct_n(0, other_rows.ntotal))
        other_rows.reset()
    elif isinstance(rows_index, faiss.IndexBinaryIVF):  # which Faiss 1.8 refuses, and later ones do not compare
        _check_same_lists(rows_index, other_rows)
        rows_index.invlists.merge_from(other_rows.invlists, add_id)
        rows_index.ntotal, other_rows.ntotal = rows_index.ntotal + other_rows.ntotal, 0
    else:
        index.merge_from(other, add_id)


def _check_same_lists(ivf: Any, other: Any) -> None:
    if faiss.DirectMap.NoMap != ivf.direct_map.type or faiss.DirectMap.NoMap != other.direct_map.type:
        raise ValueError("an IVF with a direct map cannot be merged")
    centroids, other_centroids = (storage_of(faiss.downcast_IndexBinary(one.quantizer)) for one in (ivf, other))
    same = ivf.nlist == other.nlist and (centroids is None) == (other_centroids is None)
    if same and centroids is not None:
        same = np.array_equal(
            centroids.reconstruct_n(0, centroids.ntotal), other_centroids.reconstruct_n(0, other_centroids.ntotal)
        )
    if not same:
        raise ValueError("only an IVF with the same lists, from the same training, can be merged")


def selected(ids: Ids, selector: Any) -> Ids:
    """Return the positions of the ids that an IDSelector selects."""
    # Faiss asks a selector from C++ only. A range search among equal vectors gives just its answer, on any Faiss.
    zeros = faiss.IndexFlatL2(1)
    zeros.add(np.zeros((len(ids), 1), dtype=np.float32))
    translated = faiss.IDSelectorTranslated(_vector(ids), selector)
    _, _, positions = zeros.range_search(
        np.zeros((1, 1), np.float32), 1.0, params=faiss.SearchParameters(sel=translated)
    )
    return np.sort(positions)


def selector_of_rows(id_map: Any, selector: Any) -> Any:
    """Return an IDSelector of ids as one of rows."""
    return selector if id_map is None else faiss.IDSelectorTranslated(id_map.id_map, selector)


def ids_of_rows(id_map: Any, rows: Ids) -> Ids:
    """Return the ids of rows; -1 stays."""
    if id_map is None or id_map.ntotal == 0:
        return rows
    return pick(faiss.rev_swig_ptr(id_map.id_map.data(), id_map.ntotal), rows)


def pick(ids: Ids, places: Ids) -> Ids:
    """Return the ids at places; -1 stays."""
    return np.where(places < 0, -1, ids[places]) if len(ids) else places


def _set_ids(id_map: Any, ids: Ids) -> None:
    faiss.copy_array_to_vector(ids, id_map.id_map)
    _take_ids(id_map)


def _take_ids(id_map: Any) -> None:
    """Let an IDMap know of a change of its ids."""
    id_map.ntotal = id_map.id_map.size()
    if isinstance(id_map, faiss.IndexBinaryIDMap2):
        id_map.construct_rev_map()


def _vector(ids: Ids) -> Any:
    vector = faiss.Int64Vector()
    faiss.copy_array_to_vector(ids, vector)
    return vector


def _kind(index: Any) -> str:
    rows_index, id_map = without_id_map(index)
    name = type(rows_index).__name__
    return name if id_map is None else f"{type(id_map).__name__} of {name}"
