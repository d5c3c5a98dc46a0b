"""
Faiss's formats, as far as the indexes of this package and their nearest relatives need them.

Each walk names the bytes in the order in which Faiss reads them (1.8 to 1.15), for `_claims` to compare with what there
is.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Generator
from typing import Any

import numpy as np

from ._claims import UnknownError, Walk, Wish
from .rotation import MAX_DIMENSIONS

MOST_LISTS = 1 << 24
"""Of an IVF: an untrained one is small in a file, whatever their number, but not in memory."""
MOST_LOOKUPS = 1 << 20
"""Of a hash, for each query: the codes with up to `nflip` bits flipped."""
MOST_CANDIDATES = 1 << 20
"""That the search of a graph keeps, unless it has more vertices."""


def _fields(fmt: str) -> Generator[Wish, bytes, tuple[Any, ...]]:
    layout = struct.Struct("<" + fmt)
    return layout.unpack((yield Wish(layout.size, True)))


def _skip(size: int) -> Walk:
    if size:
        yield Wish(size, False)


def _vector(item_size: int, expected: int = 0) -> Walk:
    """Walk over values and their number. Faiss may make room for what it expects before it reads that."""
    (count,) = struct.unpack("<Q", (yield Wish(8, True, expected * item_size)))
    yield from _skip(count * item_size)


def _numbers() -> Generator[Wish, bytes, Any]:
    (count,) = yield from _fields("Q")
    return np.frombuffer((yield Wish(8 * count, True)) if count else b"", "<u8")


def _refuse(what: str) -> None:
    raise ValueError(f"a damaged index file: {what}")


def transform() -> Walk:
    """Walk over a VectorTransform."""
    kind = yield Wish(4, True)
    if kind in (b"rrot", b"LTra", b"PCAm", b"PcAm", b"Pcam", b"Viqm"):
        if kind.lower() == b"pcam":
            yield from _skip({b"PCAm": 5, b"PcAm": 9, b"Pcam": 13}[kind])
            for _ in range(3):
                yield from _vector(4)
        yield from _skip(9 if kind == b"Viqm" else 1)
        for _ in range(2):
            yield from _vector(4)
    elif kind in (b"RmDT", b"VCnt"):
        yield from _vector(4)
    elif kind in (b"VNrm", b"HRot"):
        yield from _skip(4)
    elif kind == b"Viqt":
        yield from _vector(4)
        yield from _skip(1)
        for _ in range(2):
            yield from transform()
    else:
        raise UnknownError
    d_in, d_out, _ = yield from _fields("iiB")
    if not (0 <= d_in <= MAX_DIMENSIONS and 0 <= d_out <= MAX_DIMENSIONS):
        _refuse(f"a transform from {d_in} to {d_out} dimensions")


def float_index() -> Walk:
    """Walk over a float index, and return how many vectors it says it has."""
    kind = yield Wish(4, True)
    if kind not in _FLOAT:
        raise UnknownError
    _, ntotal, _, _, trained, metric = yield from _fields("iqqqBi")
    yield from _skip(4 if metric > 1 else 0)
    yield from _FLOAT[kind](ntotal, bool(trained))
    return ntotal


def _vectors(ntotal: int, trained: bool) -> Walk:
    yield from _vector(4)


def _scalar_quantizer(ntotal: int = 0, trained: bool = False) -> Walk:
    yield from _skip(28)
    yield from _vector(4)


def _scalar_quantized(ntotal: int, trained: bool) -> Walk:
    yield from _scalar_quantizer()
    yield from _vector(1)


def _product_quantized(ntotal: int, trained: bool) -> Walk:
    d, _, bits = yield from _fields("QQQ")
    if bits > 24:
        _refuse(f"a product quantizer of {bits} bits")
    yield from _vector(4, expected=d << bits)
    yield from _vector(1)
    yield from _skip(9)


def _lsh(ntotal: int, trained: bool) -> Walk:
    yield from _skip(6)
    yield from _vector(4)
    yield from _skip(4)
    yield from transform()
    yield from _vector(1)


def _float_ivf(ntotal: int, trained: bool) -> Walk:
    nlist = yield from _ivf_header(trained, float_index)
    yield from _lists(nlist, ntotal)


def _scalar_quantized_ivf(ntotal: int, trained: bool) -> Walk:
    nlist = yield from _ivf_header(trained, float_index)
    yield from _scalar_quantizer()
    yield from _skip(9)
    yield from _lists(nlist, ntotal)


def _float_hnsw(ntotal: int, trained: bool) -> Walk:
    yield from _graph(ntotal)
    yield from float_index()


def _pre_transform(ntotal: int, trained: bool) -> Walk:
    (count,) = yield from _fields("i")
    for _ in range(count):
        yield from transform()
    yield from float_index()


def _float_id_map(ntotal: int, trained: bool) -> Walk:
    yield from float_index()
    yield from _vector(8)


def _refine(ntotal: int, trained: bool) -> Walk:
    yield from float_index()
    yield from float_index()
    yield from _skip(4)


def binary_index(id_map: bool = False) -> Walk:
    """Walk over a binary index, in an IDMap or not, and return how many vectors it says it has."""
    kind = yield Wish(4, True)
    if kind not in _BINARY:
        raise UnknownError
    *_, ntotal, trained, _ = yield from _fields("iiqBi")
    yield from _BINARY[kind](ntotal, bool(trained), id_map)
    return ntotal


def _flat(ntotal: int, trained: bool, id_map: bool) -> Walk:
    yield from _vector(1)


def _id_map(ntotal: int, trained: bool, id_map: bool) -> Walk:
    if (yield from binary_index(True)) != ntotal:
        _refuse(f"an IDMap of {ntotal} vectors around others")
    yield from _vector(8)


def _ivf(ntotal: int, trained: bool, id_map: bool) -> Walk:
    nlist = yield from _ivf_header(trained, binary_index)
    yield from _lists(nlist, ntotal)


def _ivf_header(trained: bool, quantizer: Callable[[], Walk]) -> Generator[Wish, bytes, int]:
    nlist: int
    nlist, _ = yield from _fields("QQ")
    centroids = yield from quantizer()
    if nlist > MOST_LISTS or (nlist != centroids and trained):
        _refuse(f"{nlist} lists of {centroids} centroids")
    (direct_map,) = yield from _fields("B")
    yield from _vector(8)
    if direct_map == 2:
        yield from _vector(16)
    return nlist


def _lists(nlist: int, ntotal: int) -> Walk:
    kind = yield Wish(4, True)
    if kind == b"il00":
        _refuse("an IVF without its lists")
    if kind != b"ilar":
        raise UnknownError
    n_lists, code_size = yield from _fields("QQ")
    if n_lists != nlist:
        _refuse(f"{n_lists} lists instead of {nlist}")
    is_sparse = (yield Wish(4, True)) == b"sprs"
    sizes = yield from _numbers()
    if sum((sizes[1::2] if is_sparse else sizes).tolist()) != ntotal:
        _refuse(f"lists that do not hold {ntotal} vectors")
    yield from _skip(ntotal * (8 + code_size))


def _hnsw(ntotal: int, trained: bool, id_map: bool) -> Walk:
    yield from _graph(ntotal)
    yield from binary_index()


def _graph(ntotal: int) -> Walk:
    for item_size in (8, 4, 4, 8, 4):
        yield from _vector(item_size)
    *_, candidates, _ = yield from _fields("5i")
    if not 0 < candidates <= max(MOST_CANDIDATES, ntotal):
        _refuse(f"efSearch = {candidates}")


def _hash(ntotal: int, trained: bool, id_map: bool) -> Walk:
    b, nflip = yield from _fields("ii")
    _check_lookups(b, nflip)
    n_lists, _ = yield from _fields("Qi")
    yield from _vector(1)
    for _ in range(n_lists):
        ids = yield from _numbers()
        if id_map and (ids >= ntotal).any():
            _refuse("ids that the IDMap does not know")
        yield from _vector(1)


def _multi_hash(ntotal: int, trained: bool, id_map: bool) -> Walk:
    yield from binary_index()
    b, n_tables, nflip = yield from _fields("iii")
    _check_lookups(b, nflip)
    for _ in range(n_tables):
        yield from _skip(12)
        yield from _vector(1)


def _check_lookups(b: int, nflip: int) -> None:
    if not (0 < b <= 64 and 0 <= nflip <= b and sum(math.comb(b, n) for n in range(nflip + 1)) <= MOST_LOOKUPS):
        _refuse(f"a hash of {b} bits with nflip = {nflip}")


_BINARY: dict[bytes, Callable[[int, bool, bool], Walk]] = {
    b"IBxF": _flat,
    b"IBwF": _ivf,
    b"IBHf": _hnsw,
    b"IBHh": _hash,
    b"IBHm": _multi_hash,
    b"IBMp": _id_map,
    b"IBM2": _id_map,
}
_FLOAT: dict[bytes, Callable[[int, bool], Walk]] = {
    b"IxF2": _vectors,
    b"IxFI": _vectors,
    b"IxFl": _vectors,
    b"IxSQ": _scalar_quantized,
    b"IxPq": _product_quantized,
    b"IxHe": _lsh,
    b"IwFl": _float_ivf,
    b"IwSq": _scalar_quantized_ivf,
    b"IHNf": _float_hnsw,
    b"IxPT": _pre_transform,
    b"IxMp": _float_id_map,
    b"IxM2": _float_id_map,
    b"IxRF": _refine,
}
