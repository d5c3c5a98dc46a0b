"""Faiss's formats of binary indexes: Flat, IVF, HNSW, Hash, MultiHash and IDMap."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator

import numpy as np

from .._common.numbers import bytes_of
from .._common.types import Codes
from .claims import UnknownError, Walk, Wish
from .formats import (
    Header,
    Kinds,
    codes,
    fields,
    graph,
    ids_of,
    inverted_file,
    lists,
    refuse,
    same,
    values,
    vector,
)

MOST_LOOKUPS = 1 << 20
"""Of a hash, for each query: the codes with up to `nflip` bits flipped."""
_FLAT = frozenset({b"IBxF"})
_ROWS = _FLAT | {b"IBHf"}
"""What finds rows: other indexes may have any ids, and an IVF would take those for lists."""
_COUNT_BYTES = 8
_MOST_ID_BITS = 48


def binary_index(expected: Kinds | None = None, in_id_map: bool = False) -> Generator[Wish, bytes, Header]:
    """Walk over a binary index, perhaps one of certain kinds."""
    kind = yield Wish(4, True)
    if kind not in (expected or _WALKS):
        raise UnknownError(kind)
    d, code_size, ntotal, trained, metric = yield from fields("iiqBi")
    if d != 8 * code_size:
        refuse(f"{d} bits in {code_size} bytes")
    header = Header(d, ntotal, bool(trained), metric).checked()
    yield from _WALKS[kind](header, in_id_map)
    return header


def _flat(header: Header, in_id_map: bool) -> Walk:
    yield from codes(header, header.d // 8)


def _id_map(header: Header, in_id_map: bool) -> Walk:
    same(header, (yield from binary_index(_WITHOUT_IDS, in_id_map=True)))
    yield from ids_of(header)


def _ivf(header: Header, in_id_map: bool) -> Walk:
    ivf = yield from inverted_file(header, binary_index(_ROWS))
    yield from lists(ivf, header, header.d // 8)


def _hnsw(header: Header, in_id_map: bool) -> Walk:
    yield from graph()
    same(header, (yield from binary_index(_FLAT)))


def _hash(header: Header, in_id_map: bool) -> Walk:
    b, nflip = yield from fields("ii")
    _check_lookups(header, b, nflip)
    n_lists, size_bits = yield from fields("Qi")
    if not 0 <= size_bits <= 64:
        refuse(f"a hash with sizes of {size_bits} bits")
    least = n_lists * 2 * _COUNT_BYTES  # for which Faiss makes room before it reads them
    if (yield from vector(1, expected=least)) < bytes_of((b + size_bits) * n_lists):
        refuse(f"a hash without its {n_lists} lists")
    for _ in range(n_lists):
        ids = yield from values("<u8")
        if in_id_map and (ids >= header.ntotal).any():
            refuse("ids that the IDMap does not know")
        if (yield from vector(1)) != len(ids) * (header.d // 8):
            refuse("ids without their codes")


def _multi_hash(header: Header, in_id_map: bool) -> Walk:
    same(header, (yield from binary_index(_FLAT)))
    b, n_tables, nflip = yield from fields("iii")
    _check_lookups(header, b, nflip)
    if not 0 < n_tables * b <= header.d:
        refuse(f"{n_tables} hashes of {b} bits")
    for _ in range(n_tables):
        id_bits, n_lists = yield from fields("iQ")
        data = yield from values("u1")
        expected = bytes_of((b + id_bits) * n_lists + id_bits * header.ntotal)
        if not 0 <= id_bits <= _MOST_ID_BITS or len(data) != expected or n_lists > header.ntotal:
            refuse(f"{len(data)} bytes for {n_lists} lists of ids of {id_bits} bits")
        _check_table(data, n_lists, b, id_bits, header.ntotal)


def _check_table(data: Codes, n_lists: int, b: int, id_bits: int, ntotal: int) -> None:
    """
    Refuse a table of a MultiHash with other ids than those of its vectors, which Faiss before 1.14.3 would follow.

    A list is its hash, its size and its ids, in b and twice `id_bits` bits, one after the other.
    """
    content = data.tobytes()
    starts, sizes = np.empty(n_lists, np.int64), np.empty(n_lists, np.int64)
    place, left = 0, ntotal
    for number in range(n_lists):
        end = place + b + id_bits
        head = int.from_bytes(content[place >> 3 : bytes_of(end)], "little") >> (place & 7)
        starts[number], sizes[number] = end, head >> b & ((1 << id_bits) - 1)
        left -= int(sizes[number])
        if left < 0:
            refuse("a hash with more ids than vectors")
        place = end + int(sizes[number]) * id_bits
    within = np.arange(ntotal - left) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    places = np.repeat(starts, sizes) + within * id_bits
    padded = np.append(data, np.zeros(8, np.uint8))
    words = sum(padded[(places >> 3) + byte].astype(np.int64) << 8 * byte for byte in range(7))
    if ((words >> (places & 7) & ((1 << id_bits) - 1)) >= ntotal).any():
        refuse("a hash with an id of no vector")


def _check_lookups(header: Header, b: int, nflip: int) -> None:
    """Refuse hashes that take too long, or of bits that a code has not: Faiss 1.8 reads beyond it."""
    if not (
        0 < b <= min(64, header.d)
        and 0 <= nflip <= b
        and sum(math.comb(b, n) for n in range(nflip + 1)) <= MOST_LOOKUPS
    ):
        refuse(f"a hash of {b} bits with nflip = {nflip}")


_WALKS: dict[bytes, Callable[[Header, bool], Walk]] = {
    b"IBxF": _flat,
    b"IBwF": _ivf,
    b"IBHf": _hnsw,
    b"IBHh": _hash,
    b"IBHm": _multi_hash,
    b"IBMp": _id_map,
    b"IBM2": _id_map,
}
_WITHOUT_IDS = frozenset(_WALKS) - {b"IBMp", b"IBM2"}
