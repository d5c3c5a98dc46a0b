"""
What Faiss's formats have in common, as far as the indexes of this package and their nearest relatives need them.

Each walk names the bytes in the order in which Faiss reads them (1.8 to 1.15), for `_claims` to compare with what there
is.
"""

from __future__ import annotations

import struct
from collections.abc import Generator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from .._common.types import Ids
from ..index.limits import MOST_LISTS
from ..rotation import MAX_DIMENSIONS
from .claims import UnknownError, Walk, Wish

MOST_UNTRAINED_LISTS = 1 << 16
"""Of an IVF: an untrained one is small in a file, whatever their number, but not in memory."""
MOST_CANDIDATES = 1 << 16
"""That the search of a graph keeps: for each of them it looks at all of them."""
LARGEST_VALUE = 1e18
Kinds = frozenset[bytes]


class Header(NamedTuple):
    """What an index says of itself first."""

    d: int
    ntotal: int
    trained: bool
    metric: int

    def checked(self) -> Header:
        if not 0 < self.d <= MAX_DIMENSIONS or self.ntotal < 0:
            refuse(f"{self.ntotal} vectors of {self.d} dimensions")
        return self


class InvertedFile(NamedTuple):
    """What an IVF says of its lists before them: their number, and a direct map from ids to places in them."""

    nlist: int
    has_array: bool
    ids: Ids
    places: Ids


def fields(fmt: str) -> Generator[Wish, bytes, tuple[Any, ...]]:
    layout = struct.Struct("<" + fmt)
    return layout.unpack((yield Wish(layout.size, True)))


def skip(size: int) -> Walk:
    if size:
        yield Wish(size, False)


def vector(item_size: int, expected: int = 0) -> Generator[Wish, bytes, int]:
    """Walk over values, and return their number. Faiss may make room for those it expects before it reads it."""
    count: int
    (count,) = struct.unpack("<Q", (yield Wish(8, True, expected * item_size)))
    yield from skip(count * item_size)
    return count


def values(dtype: str, columns: int = 1, expected: int = 0) -> Generator[Wish, bytes, Any]:
    """Walk over values, in pairs or the like and their number, and return them."""
    (count,) = struct.unpack("<Q", (yield Wish(8, True, expected * np.dtype(dtype).itemsize)))
    size = count * columns * np.dtype(dtype).itemsize
    return np.frombuffer((yield Wish(size, True)) if size else b"", dtype)


def check_values(numbers: npt.NDArray[np.floating[Any]]) -> None:
    """Refuse values whose products may be no numbers: Faiss 1.8 never ends a search of a graph of such."""
    if not (np.abs(numbers) <= LARGEST_VALUE).all():
        refuse("values that are not finite, or nearly so")


def refuse(what: str) -> None:
    raise ValueError(f"a damaged index file: {what}")


def transform() -> Walk:
    """Walk over a VectorTransform."""
    kind = yield Wish(4, True)
    if kind in (b"rrot", b"LTra", b"PCAm", b"PcAm", b"Pcam", b"Viqm"):
        if kind.lower() == b"pcam":
            yield from skip({b"PCAm": 5, b"PcAm": 9, b"Pcam": 13}[kind])
            for _ in range(3):
                yield from vector(4)
        yield from skip(9 if kind == b"Viqm" else 1)
        for _ in range(2):
            yield from vector(4)
    elif kind in (b"RmDT", b"VCnt"):
        yield from vector(4)
    elif kind in (b"VNrm", b"HRot"):
        yield from skip(4)
    elif kind == b"Viqt":
        yield from vector(4)
        yield from skip(1)
        for _ in range(2):
            yield from transform()
    else:
        raise UnknownError(kind)
    d_in, d_out, _ = yield from fields("iiB")
    if not (0 <= d_in <= MAX_DIMENSIONS and 0 <= d_out <= MAX_DIMENSIONS):
        refuse(f"a transform from {d_in} to {d_out} dimensions")


def inverted_file(header: Header, quantizer: Generator[Wish, bytes, Header]) -> Generator[Wish, bytes, InvertedFile]:
    nlist, _ = yield from fields("QQ")
    centroids = yield from quantizer
    is_new = not (header.trained or header.ntotal or centroids.ntotal)
    if nlist > MOST_LISTS or (nlist != centroids.ntotal and not is_new):
        refuse(f"{nlist} lists of {centroids.ntotal} centroids")
    if is_new and nlist > MOST_UNTRAINED_LISTS:
        raise UnknownError(f"of {nlist} lists without training")
    if centroids.d != header.d:
        refuse(f"centroids of {centroids.d} dimensions instead of {header.d}")
    (direct_map,) = yield from fields("B")
    places = yield from values("<i8")
    ids = np.arange(len(places))
    if direct_map == 2:
        pairs = yield from values("<i8", columns=2)
        ids, places = pairs[::2], pairs[1::2]
    return InvertedFile(nlist, direct_map == 1, ids, places)


def check_code_size(size: int, expected: int) -> None:
    if size != expected:
        refuse(f"codes of {size} bytes instead of {expected}")


def codes(header: Header, code_size: int, unit: int = 1) -> Walk:
    """Walk over the codes of all vectors, which are counted in some unit."""
    n_units = yield from vector(unit)
    if n_units * unit != header.ntotal * code_size:
        refuse(f"{n_units * unit} bytes of codes instead of {header.ntotal * code_size}")


def lists(ivf: InvertedFile, header: Header, expected_size: int) -> Walk:
    kind = yield Wish(4, True)
    if kind == b"il00":
        refuse("an IVF without its lists")
    if kind != b"ilar":
        raise UnknownError(kind)
    n_lists, code_size = yield from fields("QQ")
    check_code_size(code_size, expected_size)
    if n_lists != ivf.nlist:
        refuse(f"{n_lists} lists instead of {ivf.nlist}")
    is_sparse = (yield Wish(4, True)) == b"sprs"
    sizes = yield from values("<u8")
    if is_sparse:
        numbers, sizes = sizes[::2], sizes[1::2]
        if len(numbers) != len(sizes) or len(np.unique(numbers)) != len(numbers) or (numbers >= n_lists).any():
            refuse("a list without its size, or with two")
        sparse_sizes, sizes = sizes, np.zeros(n_lists, "<u8")
        sizes[numbers] = sparse_sizes
    held = sum(sizes.tolist())
    if held > header.ntotal or len(sizes) != n_lists:  # fewer: Faiss counts vectors that are not finite, and drops them
        refuse(f"lists that do not hold {header.ntotal} vectors")
    _check_places(ivf.places, sizes)
    if not ivf.has_array and not len(ivf.places):
        yield from skip(held * (8 + code_size))
        return
    ids = []
    for size in sizes.tolist():
        yield from skip(size * code_size)
        ids.append(np.frombuffer((yield Wish(8 * size, True)) if size else b"", "<i8"))
    _check_direct_map(ivf, np.concatenate(ids), sizes.astype(np.int64))


def _check_places(places: Ids, sizes: npt.NDArray[np.uint64]) -> None:
    """Refuse a direct map to where no vector is. Places are a list and a place in it, or -1: an update follows that."""
    numbers, offsets = places >> 32, places & 0xFFFFFFFF
    if (numbers < 0).any() or (numbers >= len(sizes)).any() or (offsets >= sizes[numbers].astype(np.int64)).any():
        refuse("a direct map to where no vector is")


def _check_direct_map(ivf: InvertedFile, ids: Ids, sizes: Ids) -> None:
    """Refuse a direct map to another vector, or an array without place for one: Faiss follows ids back to it."""
    rows = (np.cumsum(sizes) - sizes)[ivf.places >> 32] + (ivf.places & 0xFFFFFFFF)
    if (ids[rows] != ivf.ids).any():
        refuse("a direct map to another vector")
    if ivf.has_array and ((ids < 0) | (ids >= len(ivf.places))).any():
        refuse("ids that the direct map does not know")


def ids_of(header: Header) -> Walk:
    """Walk over the ids of an IDMap."""
    if (yield from vector(8)) != header.ntotal:
        refuse(f"an IDMap without ids for {header.ntotal} vectors")


def same(header: Header, inside: Header) -> None:
    """Refuse an index of other vectors inside."""
    if (header.d, header.ntotal) != (inside.d, inside.ntotal):
        refuse(f"{header.ntotal} vectors of {header.d} dimensions around {inside.ntotal} of {inside.d}")


def graph() -> Walk:
    for item_size in (8, 4, 4, 8, 4):
        yield from vector(item_size)
    _, _, *widths = yield from fields("5i")
    for name, width in zip(("efConstruction", "efSearch", "upper_beam"), widths, strict=True):
        if width < 1:
            refuse(f"{name} = {width}")
        if width > MOST_CANDIDATES:
            raise UnknownError(f"with {name} = {width}")
