"""Searching codes where Faiss keeps them: what native code is told, and the checks that it finds its way in Faiss."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from ctypes import POINTER, byref, c_char_p, c_float, c_int, c_int32, c_int64, c_void_p
from typing import Any

import faiss
import numpy as np
import numpy.typing as npt

from .._common.arrays import unusable
from .._common.fields import FLOATS
from .._common.parts import cut
from .._common.types import Floats, Ids
from .library import at, check, library
from .transforms import does_not_fit

QUERIES_OF_A_THREAD = 16
"""How many queries native code gives a thread at a time."""


class Scan(ctypes.Structure):
    """What to search, and how results are ranked; `native/prh.h` explains the fields."""

    _fields_ = (
        ("transform", c_void_p),
        ("d", c_int64),
        *((name, c_void_p) for name in ("lists", "codes")),
        *((name, c_int64) for name in ("n_lists", "n_codes", "code_size", "bits")),
        ("coarse", c_void_p),
        ("max_codes", c_int64),
        *((name, c_void_p) for name in ("selector", "ids")),
        ("n_ids", c_int64),
        ("centroids", c_void_p),
        *((name, c_float) for name in ("low", "step", "reach", "margin")),
        *((name, c_int32) for name in ("is_product", "is_isometric", "wants_places")),
        *((name, c_int64) for name in ("n_rows", "shortlist")),
        ("beside", c_void_p),
        ("beside_size", c_int64),
        *((name, c_void_p) for name in ("norms", "products", "offset", "vectors", "computers")),
        ("vector_size", c_int64),
    )

    def set_offset(self, offset: Floats) -> None:
        """Say what the transforms make of zero, for inner products."""
        self.offset = at(offset)
        self.keep(offset)

    def transform_by(self, transform: Any) -> bool:
        """Let queries be transformed on the way, and return whether that is possible."""
        self.transform = transform
        return True

    def filter_by(self, params: Any) -> None:
        """Leave out what the filter of search parameters does not allow."""
        self.selector = int(params.sel.this)
        self.keep(params)

    def keep(self, *things: Any) -> None:
        """Keep alive what fields point to."""
        self.kept = getattr(self, "kept", None), things


class Queries(ctypes.Structure):
    """Some queries; `native/prh.h` explains the fields."""

    _fields_ = (
        ("n", c_int64),
        ("n_probes", c_int64),
        *((name, c_void_p) for name in ("x", "z", "probes")),
        ("unusable", c_int64),
    )


def _declare(name: str, *arguments: Any) -> None:
    function = getattr(library, f"prh_{name}")
    function.restype, function.argtypes = c_char_p, [POINTER(Scan), POINTER(Queries), *arguments]


_declare("search", c_int64, c_void_p, c_void_p)
_declare("rank", c_int64, c_void_p, c_int64, c_void_p, c_void_p)
_declare("range_search", c_float, c_void_p, POINTER(c_void_p), POINTER(c_void_p))
library.prh_set_slots.argtypes = [c_int, c_int, c_int]
library.prh_free.argtypes = [c_void_p]


def search(scan: Scan, k: int, queries: Batch) -> tuple[Floats, Ids]:
    """Return the k best of each query: distances, and rows or places."""
    n = len(queries.arrays[0])
    D, I = np.empty((n, k), np.float32), np.empty((n, k), np.int64)
    for x, z, probes, distances, found in cut(*queries.arrays, D, I):
        queries.run(x, z, probes, library.prh_search, scan, k, at(distances), at(found))
    return D, I


def rank(scan: Scan, k: int, rows: Ids, queries: Batch) -> tuple[Floats, Ids]:
    """Return the k best among some rows for each query."""
    n, n_rows = rows.shape
    D, I = np.empty((n, k), np.float32), np.empty((n, k), np.int64)
    for x, z, probes, among, distances, found in cut(*queries.arrays, rows, D, I):
        queries.run(x, z, probes, library.prh_rank, scan, n_rows, at(among), k, at(distances), at(found))
    return D, I


def range_search(scan: Scan, radius: float, queries: Batch) -> Iterator[tuple[Ids, Floats, Ids]]:
    """Yield limits, distances and rows of all that is within a radius, for some queries at a time."""
    for x, z, probes in cut(*queries.arrays):
        limits, D, I = np.empty(len(x) + 1, np.int64), c_void_p(), c_void_p()
        queries.run(x, z, probes, library.prh_range_search, scan, radius, at(limits), byref(D), byref(I))
        try:
            found = int(limits[-1])
            yield limits, _copied(D, found, np.float32), _copied(I, found, np.int64)
        finally:
            library.prh_free(D)
            library.prh_free(I)


class Batch:
    """
    Queries in the forms that a scan takes.

    Parameters
    ----------
    x : ndarray of float32, shape (n, d)
    z : ndarray of float32, optional
        What the transforms make of them, if native code does not transform them itself.
    probes : ndarray of int64, optional
        The numbers of the lists to search, if native code does not look for them itself.
    n_probes : int
        How many lists there are to search.
    """

    def __init__(self, x: Floats, z: Floats | None = None, probes: Ids | None = None, n_probes: int = 1) -> None:
        self.arrays, self.n_probes = (x, z, probes), n_probes

    def run(self, x: Floats, z: Floats | None, probes: Ids | None, native: Any, scan: Scan, *arguments: Any) -> None:
        """Call a native function with some of the queries, and raise the error that it reports."""
        some = Queries()
        some.n, some.n_probes, some.x, some.unusable = len(x), self.n_probes, at(x), -1
        if z is not None:
            some.z = at(z)
        if probes is not None:
            some.probes = at(probes)
        try:
            message = native(scan, some, *arguments)
        except SystemError as error:  # ctypes finds what a filter in Python raised when the function is back
            if error.__cause__ is None:
                raise
            raise error.__cause__ from None
        if message is not None:
            if some.unusable >= 0:
                first = (some.x - at(self.arrays[0])) // x.strides[0]
                raise unusable(x[some.unusable], f"vector {first + some.unusable}")
            check(message)


def _copied(memory: c_void_p, n: int, dtype: npt.DTypeLike) -> Any:
    array = np.empty(n, dtype)
    ctypes.memmove(array.ctypes.data, memory, array.nbytes)
    return array


def rank_by_vectors(scan: Scan, store: Any, size: int, n: int) -> None:
    """Let n queries be ranked by what an index stores of each vector, `size` bytes, from `scan.vectors` on."""
    scan.vector_size, is_floats = size, type(store) in FLOATS
    d = size // 4 if is_floats else store.d
    if d != scan.d:
        raise ValueError(f"transforms of {scan.d} dimensions do not fit stored vectors of {d}")
    if is_floats:
        return
    n_threads = min(faiss.omp_get_max_threads(), -(-n // QUERIES_OF_A_THREAD))
    computers = [store.get_distance_computer() for _ in range(n_threads)]
    addresses = (c_void_p * n_threads)(*[int(computer.this) for computer in computers])
    scan.computers = ctypes.addressof(addresses)
    scan.keep(computers, addresses)


def rank_by_bytes(scan: Scan, size: int, tables: Floats) -> None:
    """Let queries be ranked by `size` bytes beside each code, which stand for norms, and products with the offset."""
    norms = at(tables)
    scan.beside_size, scan.norms, scan.products = size, norms, norms + tables.itemsize * 256
    scan.keep(tables)


def check_layout() -> None:
    """Raise a LayoutMismatch unless native code finds its way in this Faiss."""
    _find_functions_of_lists()
    _check_search()


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
        library.prh_set_slots(2, 3, 4)
    elif size == len(ids) and third == at_codes and call(5) == at_ids:
        library.prh_set_slots(2, 4, 5)
    else:
        raise does_not_fit("InvertedLists")


def _check_search() -> None:
    """Search two codes with a filter and with a store of vectors, both of Faiss's own."""
    codes = np.array([[1], [3]], np.uint8)
    selector = faiss.IDSelectorRange(1, 2)
    sizes = {"n_lists": 1, "n_codes": 2, "code_size": 1, "bits": 2, "n_rows": 2, "shortlist": 2, "d": 2}
    scan = Scan(codes=at(codes), **sizes)
    scan.filter_by(faiss.SearchParameters(sel=selector))
    x = np.zeros((1, 2), np.float32)
    if search(scan, 2, Batch(x, x))[1].tolist() != [[1, -1]]:
        raise does_not_fit("IDSelector")
    store = faiss.IndexScalarQuantizer(2, faiss.ScalarQuantizer.QT_fp16)
    store.add(np.array([[3, 4], [0, 2]], np.float32))
    scan = Scan(codes=at(codes), vectors=int(store.codes.data()), **sizes)
    rank_by_vectors(scan, store, store.code_size, 1)
    if search(scan, 2, Batch(x, x))[0].tolist() != [[4, 25]]:
        raise does_not_fit("DistanceComputer")
