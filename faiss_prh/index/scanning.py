"""What native code is told of Faiss's indexes, to search the codes in them."""

from __future__ import annotations

from typing import Any

import faiss
import numpy as np

from .._common.types import AnyArray, Codes, Ids
from .._scan import Scan
from . import binary_search
from .binary_ops import storage_of
from .parameters import inner_params, is_filtered


def of_codes(rows_index: Any, id_map: Any, codes: Codes, params: Any) -> tuple[Scan, dict[str, AnyArray]]:
    """Return what to scan in a flat index or an IVF of codes, and for an IVF which lists for each query."""
    if isinstance(rows_index, faiss.IndexBinaryFlat):
        scan = of_rows(rows_index)
        scan.n_lists = 1
        set_filter(scan, id_map, params)
        return scan, {}
    nprobe, max_codes, quantizer_params = of_lists(rows_index, params)
    _, lists = binary_search.search(rows_index.quantizer, codes, nprobe, quantizer_params)
    scan = lists_of(rows_index, id_map, params)
    scan.max_codes, scan.bits = max_codes, rows_index.d
    return scan, {"probes": lists}


def of_rows(rows_index: Any) -> Scan:
    """Return what to scan if codes stand row by row, or if there are none to be had."""
    flat = storage_of(rows_index)
    if flat is None:
        return Scan(bits=rows_index.d)
    return Scan(codes=int(flat.xb.data() or 0), n_codes=flat.ntotal, code_size=flat.code_size, bits=flat.d)


def lists_of(ivf: Any, id_map: Any, params: Any) -> Scan:
    """Return what to scan in the lists of an IVF."""
    scan = Scan(lists=int(ivf.invlists.this), n_lists=ivf.nlist, code_size=ivf.code_size)
    set_filter(scan, id_map, params)
    return scan


def set_filter(scan: Scan, id_map: Any, params: Any) -> None:
    """Let only what parameters select be found."""
    if is_filtered(params):
        scan.selector = int(params.sel.this)
        scan.keep(params)
        if id_map is not None:
            scan.ids, scan.n_ids = int(id_map.id_map.data() or 0), id_map.id_map.size()


def of_lists(ivf: Any, params: Any) -> tuple[int, int, Any]:
    """Return how many lists to search, after how many codes to stop, and the parameters of the quantizer."""
    nprobe, max_codes, quantizer_params = ivf.nprobe, ivf.max_codes, None
    if isinstance(params, faiss.SearchParametersIVF):
        nprobe, max_codes = params.nprobe, params.max_codes
        quantizer_params = inner_params(params, "quantizer_params")
    if nprobe < 1:
        raise ValueError("nprobe must be at least 1")
    return min(nprobe, ivf.nlist), max_codes, quantizer_params


def rows_and_codes(rows_index: Any, places: Ids, with_codes: bool) -> tuple[Ids, Codes]:
    """Return the rows at places, which they are already if no codes are wanted, and the codes."""
    if with_codes and isinstance(rows_index, faiss.IndexBinaryIVF):
        return binary_search.from_lists(rows_index, places)
    return places, codes_of_rows(rows_index, places, with_codes)


def codes_of_rows(rows_index: Any, rows: Ids, with_codes: bool) -> Codes:
    """Return the codes in rows, zeros for negative ones; none if they are not wanted."""
    if not with_codes:
        return np.empty((*rows.shape, 0), np.uint8)
    flat = storage_of(rows_index)
    if flat is None:
        raise ValueError(f"{type(rows_index).__name__} does not give its codes back")
    return binary_search.from_flat(flat, rows)
