"""
Changes to binary indexes: adding, removing and merging, also where Faiss does it wrongly or not at all.

A *row* is the id that an index without an IDMap gives a vector; an IDMap around it maps rows to the caller's ids.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import faiss
import numpy as np

from .._common.filters import selected
from .._common.interrupts import deferred_interrupts
from .._common.types import Codes, Ids
from .arguments import LARGEST_ID

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
    if not isinstance(rows_index, faiss.IndexBinaryIVF) or rows_index.invlists.compute_ntotal() == 0:
        return True  # millions of empty lists are not worth a look
    rows = [ids_in_list(rows_index, number) for number in range(rows_index.nlist)]
    return np.array_equal(np.sort(np.concatenate(rows)), np.arange(sum(map(len, rows))))


def ids_in_list(ivf: Any, number: int) -> Ids:
    """Return the ids in a list where they are."""
    size = ivf.invlists.list_size(number)
    return faiss.rev_swig_ptr(ivf.invlists.get_ids(number), size) if size else np.empty(0, dtype=np.int64)


@contextlib.contextmanager
def _undoing(undo: Callable[[], None]) -> Iterator[None]:
    """Undo what the block did if it fails: memory may run out at any place."""
    spare = np.empty(_SPARE_BYTES, np.uint8)  # for undoing, if there is no other memory
    try:
        yield
    except BaseException:
        del spare
        with deferred_interrupts():
            undo()
        raise


def add(index: Any, codes: Codes, ids: Ids | None = None, lists: Ids | None = None) -> None:
    """
    Add codes, under ids if there are some, and to the given lists of an IVF.

    If that fails, a flat index or an IVF is what it was.
    """
    if not len(codes):  # which crashes the HNSW of Faiss 1.8
        return
    rows_index, id_map = without_id_map(index)
    before = rows_index.ntotal

    def undo() -> None:
        if isinstance(rows_index, faiss.IndexBinaryIVF):
            _take_back(rows_index, codes, lists, before)
        elif isinstance(rows_index, faiss.IndexBinaryFlat):
            _truncate(rows_index, before)
        if id_map is not None:
            _truncate_ids(id_map, before)

    with _undoing(undo):
        if lists is not None:
            _add_to_lists(rows_index, id_map, codes, ids, lists)
        elif ids is None:
            index.add(codes)
        else:
            index.add_with_ids(codes, ids)


def _add_to_lists(ivf: Any, id_map: Any, codes: Codes, ids: Ids | None, lists: Ids) -> None:
    """Add codes to the given lists, as Faiss does to those that its quantizer finds."""
    in_lists = None if ids is None or id_map is not None else faiss.swig_ptr(ids)
    ivf.add_core(len(codes), faiss.swig_ptr(codes), in_lists, faiss.swig_ptr(lists))
    if id_map is not None:
        assert ids is not None
        n = id_map.id_map.size()
        id_map.id_map.resize(n + len(ids))
        faiss.rev_swig_ptr(id_map.id_map.data(), n + len(ids))[n:] = ids
        _note_new_ids(id_map)


def _take_back(ivf: Any, codes: Codes, lists: Ids | None, ntotal: int) -> None:
    """Remove from the ends of lists the first of the codes, which are all that got there."""
    added = sum(ivf.invlists.list_size(number) for number in range(ivf.nlist)) - ntotal
    for first in range(0, added, 1000):  # a little at a time: there may be no memory
        part = slice(first, min(first + 1000, added))
        numbers = ivf.quantizer.search(codes[part], 1)[1] if lists is None else lists[part]
        for number, count in zip(*np.unique(numbers, return_counts=True), strict=True):
            ivf.invlists.resize(int(number), ivf.invlists.list_size(int(number)) - int(count))
    ivf.ntotal = ntotal


def remove(index: Any, selector: Any) -> int:
    """Remove what an IDSelector selects, and return how many there were."""
    ivf, id_map = without_id_map(index)
    if id_map is None or not isinstance(ivf, faiss.IndexBinaryIVF):
        return int(index.remove_ids(selector))
    # Faiss (1.8 to 1.15) renumbers the IDMap but not the IVF, whose results then get the ids of other vectors.
    if ivf.direct_map.type != faiss.DirectMap.NoMap:
        raise RuntimeError("vectors cannot be removed from an IDMap of an IVF with a direct map")
    ids = faiss.vector_to_array(id_map.id_map)
    is_kept = np.ones(len(ids), dtype=bool)
    is_kept[selected(ids, selector)] = False
    kept, new_row = ids[is_kept], np.cumsum(is_kept) - 1
    removed: int = ivf.remove_ids(selector_of_rows(id_map, selector))
    for number in range(ivf.nlist):
        rows = ids_in_list(ivf, number)
        rows[:] = new_row[rows]
    _set_ids(id_map, kept)
    return removed


def reset(index: Any) -> None:
    """Remove all vectors."""
    rows_index, id_map = without_id_map(index)
    rows_index.reset()
    if id_map is not None:  # an IDMap2 of Faiss (1.8 to 1.15) goes on knowing where ids were
        _set_ids(id_map, np.empty(0, dtype=np.int64))


@contextlib.contextmanager
def moving(index: Any, other: Any, add_id: int) -> Iterator[None]:
    """
    Move all vectors of `other` to `index`, adding `add_id` to their ids where these are not positions.

    The block does what belongs to it. If anything fails, both indexes are what they were.
    """
    check_mergeable(index, other, add_id)
    (rows_index, id_map), (other_rows, other_id_map) = without_id_map(index), without_id_map(other)
    before = rows_index.ntotal
    is_ivf = isinstance(rows_index, faiss.IndexBinaryIVF)
    sizes = [rows_index.invlists.list_size(number) for number in range(rows_index.nlist)] if is_ivf else []

    def undo() -> None:
        if is_ivf:
            for number, size in enumerate(sizes):
                rows_index.invlists.resize(number, size)
            rows_index.ntotal = before
        else:
            _truncate(rows_index, before)
        if id_map is not None:
            _truncate_ids(id_map, before)

    with _undoing(undo):
        if is_ivf:
            _append_lists(rows_index, other_rows, add_id if id_map is None else before)
        else:
            rows_index.add(other_rows.reconstruct_n(0, other_rows.ntotal))
        if id_map is not None:
            ids, other_ids = (faiss.vector_to_array(one.id_map) for one in (id_map, other_id_map))
            _set_ids(id_map, np.concatenate([ids, other_ids + add_id]))
        yield
    reset(other)


def _append_lists(ivf: Any, other: Any, add_id: int) -> None:
    """Append the lists of another IVF. Faiss's own moves them, in threads, where a lack of memory ends the process."""
    for number in range(ivf.nlist):
        ids = ids_in_list(other, number) + add_id
        if len(ids):
            ivf.invlists.add_entries(number, len(ids), faiss.swig_ptr(ids), other.invlists.get_codes(number))
    ivf.ntotal += other.ntotal


def check_mergeable(index: Any, other: Any, add_id: int) -> None:
    """Raise an error if the vectors of `other` cannot be moved to `index`."""
    (rows_index, id_map), (other_rows, other_id_map) = without_id_map(index), without_id_map(other)
    if type(rows_index) is not type(other_rows) or type(id_map) is not type(other_id_map) or index.d != other.d:
        raise ValueError(f"{_kind(other)} of {other.d} bits cannot be merged into {_kind(index)} of {index.d} bits")
    if isinstance(rows_index, faiss.IndexBinaryIVF):
        _check_same_lists(rows_index, other_rows)
    elif not isinstance(rows_index, faiss.IndexBinaryFlat):
        raise RuntimeError(f"vectors cannot be moved from one {type(rows_index).__name__} to another")
    largest = _largest_id(other_rows, other_id_map) if add_id else 0
    if largest + add_id > LARGEST_ID:
        raise ValueError(f"add_id = {add_id} takes id {largest} beyond 2**63 - 1")


def _largest_id(rows_index: Any, id_map: Any) -> int:
    """Return the largest id that is not a position; 0 if there is none."""
    if id_map is not None:
        return int(faiss.vector_to_array(id_map.id_map).max(initial=0))
    if not isinstance(rows_index, faiss.IndexBinaryIVF):
        return 0
    return max(int(ids_in_list(rows_index, number).max(initial=0)) for number in range(rows_index.nlist))


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


def selector_of_rows(id_map: Any, selector: Any) -> Any:
    """Return an IDSelector of ids as one of rows."""
    return selector if id_map is None else faiss.IDSelectorTranslated(id_map.id_map, selector)


def ids_of_rows(id_map: Any, rows: Ids) -> Ids:
    """Return the ids of rows; -1 stays."""
    if id_map is None or id_map.ntotal == 0:
        return rows
    return pick(faiss.rev_swig_ptr(id_map.id_map.data(), id_map.ntotal), rows)


def rows_of_ids(index: Any, ids: Ids) -> Ids:
    """Return the rows that ids stand for; an IVF without an IDMap is not asked whether it has them."""
    rows_index, id_map = without_id_map(index)
    if id_map is not None:
        return places_of(ids, faiss.vector_to_array(id_map.id_map))
    if not isinstance(rows_index, faiss.IndexBinaryIVF):
        check_rows(ids, rows_index.ntotal)
    return ids


def check_rows(rows: Ids, ntotal: int) -> None:
    """Raise an error if one of the rows is not there; Faiss's flat indexes do not all look."""
    missing = (rows < 0) | (rows >= ntotal)
    if missing.any():
        raise _no_vector(rows[missing][0])


def places_of(ids: Ids, among: Ids) -> Ids:
    """Return where ids stand among others, the last place of each."""
    candidates = np.flatnonzero(np.isin(among, ids))
    order = candidates[np.argsort(among[candidates], kind="stable")]
    missing = np.isin(ids, among[order], invert=True)
    if missing.any():
        raise _no_vector(ids[missing][0])
    return order[np.searchsorted(among[order], ids, side="right") - 1]


def _no_vector(key: int) -> ValueError:
    return ValueError(f"no vector has the id {key}")


def pick(ids: Ids, places: Ids) -> Ids:
    """Return the ids at places; -1 stays."""
    return np.where(places < 0, -1, ids[places]) if len(ids) else places


def _truncate(flat: Any, n: int) -> None:
    """Remove all rows from the n-th on."""
    if flat.ntotal > n:
        flat.remove_ids(faiss.IDSelectorRange(n, flat.ntotal))


def _truncate_ids(id_map: Any, n: int) -> None:
    id_map.id_map.resize(n)
    _note_new_ids(id_map)


def _set_ids(id_map: Any, ids: Ids) -> None:
    faiss.copy_array_to_vector(ids, id_map.id_map)
    _note_new_ids(id_map)


def _note_new_ids(id_map: Any) -> None:
    """Bring the rest of an IDMap into line with its `id_map`."""
    id_map.ntotal = id_map.id_map.size()
    if isinstance(id_map, faiss.IndexBinaryIDMap2):
        id_map.construct_rev_map()


def _kind(index: Any) -> str:
    rows_index, id_map = without_id_map(index)
    name = type(rows_index).__name__
    return name if id_map is None else f"{type(id_map).__name__} of {name}"
