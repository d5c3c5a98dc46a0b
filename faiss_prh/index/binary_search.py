"""Searching binary indexes: with filters and parameters that Faiss does not take, for rows, and for codes as well."""

from __future__ import annotations

from typing import Any

import faiss
import numpy as np
import numpy.typing as npt
from faiss.contrib.inspect_tools import get_invlist

from .._backend import kernels
from .._common import parts
from .._common.filters import selected
from .._common.types import Codes, Distances, Floats, Ids
from .binary_ops import ids_in_list, ids_of_rows, pick, places_of, storage_of, without_id_map
from .parameters import checked, inner_params, is_filtered, of_rows

Range = tuple[npt.NDArray[np.uint64], Floats, Ids]

MISSING = np.iinfo(np.int32).max


def search(index: Any, codes: Codes, k: int, params: Any) -> tuple[Distances, Ids]:
    """Search any binary index, with a filter on IVF as well."""
    if params is None:
        D, I = parts.search(index, codes, k)
        if len(I) != 1 or I.item(-1) == -1:  # what is missing comes last; a single query must not wait
            D[I == -1] = MISSING  # Faiss's HNSW puts the least integer there, the others the greatest
        return D, I
    rows_index, id_map = without_id_map(index)
    # By rows and with a copy of the parameters: Faiss's IDMap would change those that other threads are using.
    D, rows = _search_with(rows_index, codes, k, of_rows(checked(rows_index, params), id_map))
    D[rows == -1] = MISSING
    return D, ids_of_rows(id_map, rows)


def _search_with(rows_index: Any, codes: Codes, k: int, params: Any) -> tuple[Distances, Ids]:
    own = _of_kind(rows_index, params)
    if not _needs_help(rows_index, own):
        return parts.search(rows_index, codes, k, own)
    if isinstance(rows_index, faiss.IndexBinaryIVF):
        return _search_lists(*_probed(rows_index, codes, params), codes, k, params, False)
    part, rows = _allowed_rows(rows_index, params)
    D, places = parts.search(part, codes, k)
    return D, pick(rows, places)


def range_search(index: Any, codes: Codes, radius: int, params: Any) -> Range:
    """Range-search a binary index, with a filter on IVF as well."""
    rows_index, id_map = without_id_map(index)
    if params is None:
        return parts.range_search(lambda part: index.range_search(part, radius), codes)
    params = of_rows(checked(rows_index, params), id_map)
    if getattr(params, "max_codes", 0):
        raise ValueError("range_search does not follow max_codes")
    if not _needs_help(rows_index, params):
        limits, D, I = parts.range_search(lambda few: rows_index.range_search(few, radius, params=params), codes)
    elif isinstance(rows_index, faiss.IndexBinaryIVF):
        part, lists, coarse = _probed(rows_index, codes, params)
        limits, D, I = part.range_search_preassigned(codes, radius, lists, coarse)
    else:
        part, rows = _allowed_rows(rows_index, params)
        limits, D, places = parts.range_search(lambda few: part.range_search(few, radius), codes)
        I = pick(rows, places)
    return limits, D, ids_of_rows(id_map, I)


def search_rows(rows_index: Any, codes: Codes, k: int, params: Any) -> Ids:
    """Return the rows that a search finds, of which some may not exist."""
    return (parts.search(rows_index, codes, k) if params is None else search(rows_index, codes, k, params))[1]


def search_rows_and_codes(index: Any, codes: Codes, k: int, params: Any) -> tuple[Distances, Ids, Codes]:
    """Search the rows, and return the codes found as well: zeros where there is none."""
    rows_index, id_map = without_id_map(index)
    params = of_rows(checked(rows_index, params), id_map)
    if isinstance(rows_index, faiss.IndexBinaryIVF):
        part, lists, coarse = _probed(rows_index, codes, params)
        D, places = _search_lists(part, lists, coarse, codes, k, params, True)
        return D, *from_lists(part, places)
    flat = storage_of(rows_index)
    if flat is None:
        raise ValueError(f"{type(rows_index).__name__} does not give its codes back")
    D, rows = search(rows_index, codes, k, params)
    rows = _known(rows, rows_index)
    return D, rows, from_flat(flat, rows)


def codes_of_rows(rows_index: Any, rows: Ids) -> Codes:
    """Return the codes of rows; those of an IVF are looked for in its lists if it has no direct map."""
    flat = storage_of(rows_index)
    if flat is not None:
        return from_flat(flat, rows)
    if isinstance(rows_index, faiss.IndexBinaryIVF) and rows_index.direct_map.type == faiss.DirectMap.NoMap:
        return from_lists(rows_index, places_in_lists(rows_index, rows))[1]
    if isinstance(rows_index, faiss.IndexBinaryHash):
        raise ValueError("IndexBinaryHash does not give its codes back")
    return np.array([rows_index.reconstruct(int(row)) for row in rows], np.uint8).reshape(-1, rows_index.code_size)


def places_in_lists(ivf: Any, rows: Ids) -> Ids:
    """Return where rows are in an IVF's lists: the number of the list and of the entry, as Faiss packs them."""
    lists = [ids_in_list(ivf, number) for number in range(ivf.nlist)]
    places = places_of(rows, np.concatenate(lists))
    ends = np.cumsum([len(ids) for ids in lists])
    numbers = np.searchsorted(ends, places, side="right")
    packed: Ids = numbers << 32 | places - np.concatenate([[0], ends])[numbers]
    return packed


def _known(rows: Ids, rows_index: Any) -> Ids:
    """Return rows without those that do not exist: a hash after a reset (Faiss 1.8) or a forged file has some."""
    return np.where(rows < rows_index.ntotal, rows, -1)


def _needs_help(rows_index: Any, params: Any) -> bool:
    """Whether search parameters are among those that Faiss does not take, but that can be followed."""
    if isinstance(rows_index, faiss.IndexBinaryIVF):
        return True  # it takes no filter, and before 1.14 no parameters at all
    kind = type(rows_index)
    if kind in (faiss.IndexBinaryShards, faiss.IndexBinaryReplicas) and is_filtered(params):
        raise RuntimeError(f"{kind.__name__} gives a filter to parts with ids of their own: filter what it finds")
    if _TAKES_PARAMS.get(kind, _TAKES_PARAMS[faiss.IndexBinaryFlat]):
        return False
    if kind in _TAKES_PARAMS and is_filtered(params):
        return True
    raise RuntimeError(f"{kind.__name__} of Faiss {faiss.__version__} takes no such parameters: set them on the index")


def _takes(index: Any, params: Any) -> bool:
    try:
        index.search(np.zeros((1, 1), np.uint8), 1, params=params)
    except (TypeError, RuntimeError):
        return False
    return True


_TAKES_PARAMS = {
    faiss.IndexBinaryFlat: _takes(faiss.IndexBinaryFlat(8), faiss.SearchParameters()),
    faiss.IndexBinaryHNSW: _takes(faiss.IndexBinaryHNSW(8, 4), faiss.SearchParametersHNSW()),
}


def _of_kind(rows_index: Any, params: Any) -> Any:
    """Return parameters as an index takes them: HNSW takes no plain ones."""
    if isinstance(rows_index, faiss.IndexBinaryHNSW) and type(params) is faiss.SearchParameters:
        return faiss.SearchParametersHNSW(sel=params.sel, efSearch=rows_index.hnsw.efSearch)
    return params


def _allowed_rows(rows_index: Any, params: Any) -> tuple[Any, Ids]:
    """Return a flat index of what a filter allows, and its rows in the whole."""
    flat = storage_of(rows_index)
    rows = selected(np.arange(flat.ntotal), params.sel)
    part = faiss.IndexBinaryFlat(flat.d)
    part.add(from_flat(flat, rows))
    return part, rows


def _probed(ivf: Any, codes: Codes, params: Any) -> tuple[Any, Ids, Distances]:
    """
    Return the lists to search for each code, with their distances, and the IVF whose lists they are.

    Where there is a filter, that is one of what it allows of those lists.
    """
    nprobe, quantizer_params = ivf.nprobe, None
    if isinstance(params, faiss.SearchParametersIVF):
        nprobe, quantizer_params = params.nprobe, inner_params(params, "quantizer_params")
    nprobe = min(nprobe, ivf.nlist)
    if nprobe < 1:
        raise ValueError("nprobe must be at least 1")
    coarse, lists = search(ivf.quantizer, codes, nprobe, quantizer_params)
    if not is_filtered(params):
        return _with_nprobe(ivf, nprobe), lists, coarse
    if getattr(params, "max_codes", 0):
        raise ValueError("a filter and max_codes do not go together")
    numbers, places = np.unique(lists, return_inverse=True)
    part = _allowed_lists(ivf, [int(number) for number in numbers if number >= 0], params.sel, nprobe)
    absent = int((numbers < 0).sum())  # -1, where the quantizer found fewer lists, stands before the others
    return part, places.reshape(lists.shape).astype(np.int64) - absent, coarse


def _with_nprobe(ivf: Any, nprobe: int) -> Any:
    """Return the IVF, or one with the same lists that probes another number of them."""
    if min(ivf.nprobe, ivf.nlist) == nprobe:
        return ivf
    part = faiss.IndexBinaryIVF(ivf.quantizer, ivf.d, ivf.nlist)
    part.replace_invlists(ivf.invlists, False)
    part.nprobe, part.use_heap, part.ntotal = nprobe, ivf.use_heap, ivf.ntotal
    return part


def _allowed_lists(ivf: Any, numbers: list[int], selector: Any, nprobe: int) -> Any:
    """Return an IVF of what a filter allows of some lists, in their order."""
    contents = [get_invlist(ivf.invlists, number) for number in numbers]
    ids = np.concatenate([np.empty(0, np.int64), *(list_ids for list_ids, _ in contents)])
    allowed = np.zeros(len(ids), dtype=bool)
    allowed[selected(ids, selector)] = True
    part = faiss.IndexBinaryIVF(ivf.quantizer, ivf.d, max(nprobe, len(contents)))  # fewer lists: fewer are probed
    part.nprobe, part.use_heap, part.ntotal = nprobe, ivf.use_heap, int(allowed.sum())
    end = 0
    for number, (list_ids, list_codes) in enumerate(contents):
        begin, end = end, end + len(list_ids)
        mask = allowed[begin:end]
        few_ids, few_codes = list_ids[mask], list_codes[mask]
        if len(few_ids):
            part.invlists.add_entries(number, len(few_ids), faiss.swig_ptr(few_ids), faiss.swig_ptr(few_codes))
    return part


def _search_lists(
    ivf: Any, lists: Ids, coarse: Distances, codes: Codes, k: int, params: Any, store_pairs: bool
) -> tuple[Distances, Ids]:
    """Search an IVF's lists for ids, or for pairs of the number of a list and that of an entry, as Faiss packs them."""
    D, I = np.empty((len(codes), k), np.int32), np.empty((len(codes), k), np.int64)
    list_params = params if isinstance(params, faiss.SearchParametersIVF) and not is_filtered(params) else None
    for some, *rest in parts.cut(codes, lists, coarse, D, I):
        pointers = map(faiss.swig_ptr, rest)
        ivf.search_preassigned_c(len(some), faiss.swig_ptr(some), k, *pointers, store_pairs, list_params)
    return D, I


def from_flat(flat: Any, rows: Ids) -> Codes:
    """Return the codes in rows: zeros where a row is negative."""
    addresses = np.where(rows < 0, 0, int(flat.xb.data() or 0) + rows * flat.code_size)  # data() of nothing is None
    return kernels.gather(addresses, flat.code_size)


def from_lists(ivf: Any, places: Ids) -> tuple[Ids, Codes]:
    """Return the ids and the codes at places in an IVF's lists: no direct map is needed."""
    missing = places < 0
    numbers, offsets = np.where(missing, 0, places >> 32), places & 0xFFFFFFFF
    ids_at, codes_at = np.zeros((2, ivf.nlist), dtype=np.int64)
    is_used = np.zeros(ivf.nlist, dtype=bool)
    is_used[numbers[~missing]] = True
    for number in np.flatnonzero(is_used).tolist():
        ids_at[number], codes_at[number] = int(ivf.invlists.get_ids(number)), int(ivf.invlists.get_codes(number))
    ids = kernels.gather(np.where(missing, 0, ids_at[numbers] + 8 * offsets), 8).view(np.int64)[..., 0]
    found = kernels.gather(np.where(missing, 0, codes_at[numbers] + ivf.code_size * offsets), ivf.code_size)
    return np.where(missing, -1, ids), found
