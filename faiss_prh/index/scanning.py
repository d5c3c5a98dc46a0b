"""What native code is told of Faiss's indexes, to search the codes in them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import faiss
import numpy as np

from .._common.types import Codes, Floats, Ids
from .._scan import Scan
from ..transform import PRHTransform
from . import binary_search, chain
from .binary_ops import storage_of
from .parameters import inner_params, is_filtered


def of_codes(rows_index: Any, id_map: Any, params: Any) -> tuple[Scan, int, Any]:
    """
    Return what to scan in a flat index or an IVF of codes, in how many lists, and the quantizer's parameters.

    If native code cannot find the lists by itself, `coarse` is not set.
    """
    if isinstance(rows_index, faiss.IndexBinaryFlat):
        scan = of_rows(rows_index)
        scan.n_lists = 1
        set_filter(scan, id_map, params)
        return scan, 1, None
    nprobe, max_codes, quantizer_params = of_lists(rows_index, params)
    scan = lists_of(rows_index, id_map, params)
    scan.max_codes = max_codes
    quantizer = faiss.downcast_IndexBinary(rows_index.quantizer)
    if type(quantizer) is faiss.IndexBinaryFlat and quantizer_params is None and quantizer.ntotal == scan.n_lists:
        scan.coarse = int(quantizer.xb.data())
    return scan, nprobe, quantizer_params


def let_transform(scan: Scan, transforms: Sequence[Any], vectors: Floats) -> Floats | None:
    """Let native code transform queries by itself, or return what the transforms make of them."""
    scan.d, scan.bits = vectors.shape[1], transforms[-1].d_out
    if len(transforms) == 1 and isinstance(transforms[0], PRHTransform):
        scan.transform = int(transforms[0].this)
        return None
    return chain.apply(transforms, vectors)


def of_rows(rows_index: Any) -> Scan:
    """Return what to scan if codes stand row by row, or if there are none to be had."""
    flat = storage_of(rows_index)
    if flat is None:
        return Scan()
    return Scan(codes=int(flat.xb.data() or 0), n_codes=flat.ntotal, code_size=flat.code_size)


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
            scan.ids = int(id_map.id_map.data() or 0)


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
