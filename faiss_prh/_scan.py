"""Searching codes where Faiss keeps them: what native code is told, and the checks that it finds its way in Faiss."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from ctypes import POINTER, byref, c_char_p, c_float, c_int, c_int32, c_int64, c_void_p
from typing import Any

import faiss
import numpy as np
import numpy.typing as npt

from ._common.parts import parts
from ._common.types import AnyArray, Codes, Floats, Ids
from ._native import _at, _check, _library

_QUERIES_OF_A_THREAD = 16
"""How many queries native code gives a thread at a time."""


class Scan(ctypes.Structure):
    """What to search, and how results are ranked; `native/prh.h` explains the fields."""

    _fields_ = (
        *((name, c_void_p) for name in ("lists", "codes")),
        *((name, c_int64) for name in ("n_lists", "n_codes", "code_size", "bits", "max_codes")),
        *((name, c_void_p) for name in ("selector", "ids")),
        ("n_ids", c_int64),
        ("centroids", c_void_p),
        *((name, c_float) for name in ("low", "step", "reach", "margin")),
        *((name, c_int32) for name in ("is_product", "is_isometric", "wants_places")),
        *((name, c_int64) for name in ("n_rows", "shortlist")),
        ("beside", c_void_p),
        ("beside_size", c_int64),
        *((name, c_void_p) for name in ("norms", "products", "offset", "computers", "vectors")),
        *((name, c_int64) for name in ("vector_size", "d")),
    )

    def keep(self, *things: Any) -> None:
        """Keep alive what fields point to."""
        self.kept = (*getattr(self, "kept", ()), *things)


class Queries(ctypes.Structure):
    """Some queries, in the forms that a scan needs; null for those it does not."""

    _fields_ = (
        ("n", c_int64),
        ("n_probes", c_int64),
        *((name, c_void_p) for name in ("z", "codes", "x", "probes")),
    )


def _declare(name: str, *arguments: Any) -> None:
    function = getattr(_library, f"prh_{name}")
    function.restype, function.argtypes = c_char_p, [POINTER(Scan), POINTER(Queries), *arguments]


_declare("search", c_int64, c_void_p, c_void_p)
_declare("rank", c_int64, c_void_p, c_int64, c_void_p, c_void_p)
_declare("range_search", c_float, c_void_p, POINTER(c_void_p), POINTER(c_void_p))
_library.prh_set_slots.argtypes = [c_int, c_int, c_int]
_library.prh_free.argtypes = [c_void_p]


def search(scan: Scan, k: int, n: int, **forms: AnyArray) -> tuple[Floats, Ids]:
    """Return the k best of each of n queries, given in some forms: distances, and rows or places."""
    D, I = np.empty((n, k), np.float32), np.empty((n, k), np.int64)
    for part in parts(n):
        queries = _queries(part, forms)
        _check(_library.prh_search(byref(scan), byref(queries), k, _at(D[part]), _at(I[part])))
    return D, I


def rank(scan: Scan, k: int, rows: Ids, **forms: AnyArray) -> tuple[Floats, Ids]:
    """Return the k best among some rows for each query."""
    n, n_rows = rows.shape
    D, I = np.empty((n, k), np.float32), np.empty((n, k), np.int64)
    for part in parts(n):
        queries = _queries(part, forms)
        _check(_library.prh_rank(byref(scan), byref(queries), n_rows, _at(rows[part]), k, _at(D[part]), _at(I[part])))
    return D, I


def range_search(scan: Scan, radius: float, n: int, **forms: AnyArray) -> Iterator[tuple[Ids, Floats, Ids]]:
    """Yield limits, distances and rows of all that is within a radius, for some queries at a time."""
    for part in parts(n):
        limits, D, I = np.empty(part.stop - part.start + 1, np.int64), c_void_p(), c_void_p()
        queries = _queries(part, forms)
        _check(_library.prh_range_search(byref(scan), byref(queries), radius, _at(limits), byref(D), byref(I)))
        try:
            found = int(limits[-1])
            yield limits, _copied(D, found, np.float32), _copied(I, found, np.int64)
        finally:
            _library.prh_free(D)
            _library.prh_free(I)


def _queries(part: slice, forms: dict[str, AnyArray]) -> Queries:
    queries = Queries(part.stop - part.start)
    for name, array in forms.items():
        setattr(queries, name, _at(array[part]))
    if "probes" in forms:
        queries.n_probes = forms["probes"].shape[1]
    else:
        queries.n_probes = 1
    return queries


def _copied(memory: c_void_p, n: int, dtype: npt.DTypeLike) -> Any:
    array = np.empty(n, dtype)
    ctypes.memmove(array.ctypes.data, memory, array.nbytes)
    return array


def rank_by_vectors(scan: Scan, store: Any, n: int) -> None:
    """Let n queries be ranked by what an index stores, row by row, of the vectors."""
    n_threads = min(faiss.omp_get_max_threads(), -(-n // _QUERIES_OF_A_THREAD))
    computers = [store.get_distance_computer() for _ in range(n_threads)]
    addresses = (c_void_p * n_threads)(*(int(computer.this) for computer in computers))
    scan.computers = ctypes.addressof(addresses)
    scan.vectors, scan.vector_size, scan.d = int(store.codes.data()), store.code_size, store.d
    scan.keep(store, computers, addresses)


def rank_by_bytes(scan: Scan, beside: Codes, norms: Floats, products: Floats, offset: Floats) -> None:
    """Let queries be ranked by the bytes beside codes, which stand for norms, and for products with the offset."""
    scan.beside, scan.beside_size = _at(beside), beside.shape[1]
    scan.norms, scan.products, scan.offset = _at(norms), _at(products), _at(offset)
    scan.keep(beside, norms, products, offset)


def _find_functions_of_lists() -> None:
    """
    Tell native code where Faiss has its inverted lists' virtual functions.

    There are two orders: list_size, get_codes, get_ids (from 1.9 on at the latest), and with one more before get_codes.
    The third of these functions is get_ids in the one and get_codes in the other, so that calling it tells them apart.
    """
    lists = faiss.ArrayInvertedLists(2, 3)
    ids, codes = np.arange(5), np.zeros((5, 3), np.uint8)
    lists.add_entries(1, len(ids), faiss.swig_ptr(ids), faiss.swig_ptr(codes))
    table = c_void_p.from_address(int(lists.this)).value
    assert table is not None

    def call(slot: int) -> int:
        address = c_void_p.from_address(table + slot * ctypes.sizeof(c_void_p)).value or 0
        function = ctypes.CFUNCTYPE(ctypes.c_size_t, c_void_p, ctypes.c_size_t)(address)
        return int(function(int(lists.this), 1))

    at_codes, at_ids = int(lists.get_codes(1)), int(lists.get_ids(1))
    size, third = call(2), call(4)
    if size == len(ids) and third == at_ids and call(3) == at_codes:
        _library.prh_set_slots(2, 3, 4)
    elif size == len(ids) and third == at_codes and call(5) == at_ids:
        _library.prh_set_slots(2, 4, 5)
    else:
        raise _does_not_fit("InvertedLists")


def _check_search() -> None:
    """Search two codes with a filter and with a store of vectors, both of Faiss's own."""
    codes = np.array([[1], [3]], np.uint8)
    scan = Scan(codes=_at(codes), n_lists=1, n_codes=2, code_size=1, bits=8, n_rows=2, shortlist=2)
    selector = faiss.IDSelectorRange(1, 2)
    scan.selector = int(selector.this)
    query = np.array([[1]], np.uint8)
    if search(scan, 2, 1, codes=query)[1].tolist() != [[1, -1]]:
        raise _does_not_fit("IDSelector")
    store = faiss.IndexFlatL2(2)
    store.add(np.array([[3, 4], [0, 2]], np.float32))
    scan.selector = None
    rank_by_vectors(scan, store, 1)
    if search(scan, 2, 1, codes=query, x=np.zeros((1, 2), np.float32))[0].tolist() != [[4, 25]]:
        raise _does_not_fit("DistanceComputer")


def _does_not_fit(name: str) -> ImportError:
    return ImportError(
        f"faiss-prh does not fit this Faiss ({faiss.__version__}): its {name} has another layout than that of "
        "faiss-cpu 1.8 to 1.15"
    )


_find_functions_of_lists()
_check_search()
