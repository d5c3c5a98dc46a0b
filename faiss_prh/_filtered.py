"""Filtered search of IndexBinaryIVF, which refuses an IDSelector: its probed lists, searched as flat indexes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import faiss
import numpy as np
import numpy.typing as npt
from faiss.contrib.inspect_tools import get_invlist

Codes = npt.NDArray[np.uint8]
Ids = npt.NDArray[np.int64]


def ivf_inside(index: Any) -> Any:
    """Return the IndexBinaryIVF that `index` is or that an IDMap in it holds, or None."""
    index = faiss.downcast_IndexBinary(index)
    if isinstance(index, faiss.IndexBinaryIDMap):
        index = faiss.downcast_IndexBinary(index.index)
    return index if isinstance(index, faiss.IndexBinaryIVF) else None


def _id_map(index: Any) -> Ids | None:
    index = faiss.downcast_IndexBinary(index)
    return faiss.vector_to_array(index.id_map) if isinstance(index, faiss.IndexBinaryIDMap) else None


def filtered_search(index: Any, codes: Codes, k: int, params: Any) -> tuple[npt.NDArray[np.int32], Ids]:
    """Search the lists that an unfiltered search would probe for the k nearest codes that the filter lets through."""
    found = [part.search(code, k, params=only) for code, part, only in _probed(index, codes, params)]
    if not found:
        return np.empty((0, k), np.int32), np.empty((0, k), np.int64)
    return np.concatenate([D for D, _ in found]), np.concatenate([I for _, I in found])


def filtered_range_search(
    index: Any, codes: Codes, radius: int, params: Any
) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.float32], Ids]:
    """Search the lists that an unfiltered search would probe for all near codes that the filter lets through."""
    found = [part.range_search(code, radius, params=only) for code, part, only in _probed(index, codes, params)]
    limits = np.cumsum([0, *(len(I) for _, _, I in found)]).astype(np.uint64)
    D = np.concatenate([np.empty(0, np.float32), *(D for _, D, _ in found)])
    return limits, D, np.concatenate([np.empty(0, np.int64), *(I for _, _, I in found)])


def _probed(index: Any, codes: Codes, params: Any) -> Iterator[tuple[Codes, Any, Any]]:
    """Yield each code, a flat index of the lists probed for it, and the filter as that index takes it."""
    ivf, id_map = ivf_inside(index), _id_map(index)
    nprobe, quantizer_params = ivf.nprobe, None
    if isinstance(params, faiss.SearchParametersIVF):
        nprobe, quantizer_params = params.nprobe, params.quantizer_params
        if params.max_codes:
            raise ValueError("a filter and max_codes do not go together")
    _, lists = ivf.quantizer.search(codes, min(nprobe, ivf.nlist), params=quantizer_params)
    only = faiss.SearchParameters(sel=params.sel)
    contents: dict[int, tuple[Ids, Codes]] = {}
    for number in np.unique(lists[lists >= 0]):
        ids, list_codes = get_invlist(ivf.invlists, int(number))
        contents[int(number)] = ids if id_map is None else id_map[ids], list_codes
    for row, probed in enumerate(lists):
        flat = faiss.IndexBinaryFlat(ivf.d)
        part = faiss.IndexBinaryIDMap(flat)
        for number in probed[probed >= 0]:
            ids, list_codes = contents[int(number)]
            part.add_with_ids(list_codes, ids)
        yield codes[row : row + 1], part, only
