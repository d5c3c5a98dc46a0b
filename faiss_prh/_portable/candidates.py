"""What is searched, list by list, and the nearest codes in it."""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple

import faiss
import numpy as np
import numpy.typing as npt

from .._common.arrays import packed_signs
from .._common.fields import memory_at
from .._common.filters import selected
from .._common.numbers import bytes_of
from .._common.types import AnyArray, Codes, Floats, Ids

_MOST_BITS = 1 << 24
"""Bits of codes that are kept as floats from one query to the next."""


class Candidates(NamedTuple):
    """Some of what is searched: what ranks them, where they are, and their codes if they are still needed."""

    distances: AnyArray
    rows: Ids
    places: Ids
    codes: Codes | None

    def only(self, which: AnyArray) -> Candidates:
        """Return some of them."""
        distances, rows, places, codes = self
        return Candidates(distances[which], rows[which], places[which], None if codes is None else codes[which])


class List(NamedTuple):
    """A list of codes, of which a filter may have left some out."""

    codes: Codes
    words: npt.NDArray[np.uint64]  # the signs, filled up with zeros
    rows: Ids
    places: Ids
    size: int  # before the filter


def hamming(words: npt.NDArray[np.uint64], others: npt.NDArray[np.uint64]) -> Ids:
    """
    Return in how many bits rows of words differ.

    Examples
    --------
    >>> import numpy as np
    >>> hamming(np.array([[3, 0], [0, 1]], np.uint64), np.array([1, 0], np.uint64)).tolist()
    [1, 2]
    """
    counts = _bit_counts(words ^ others)
    total = counts[:, 0].astype(np.int64)
    for column in counts.T[1:]:
        total += column
    return total


def _counts_by_table(words: npt.NDArray[np.uint64]) -> Codes:
    counts: Codes = _BITS[words.view(np.uint8)]
    return counts


_bit_counts = getattr(np, "bitwise_count", _counts_by_table)  # from NumPy 2 on
_BITS = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1).sum(axis=1, dtype=np.uint8)


def as_words(codes: Codes, n_bytes: int) -> npt.NDArray[np.uint64]:
    """Return the first bytes of codes as words, where they are if that is possible."""
    if codes.shape[1] == n_bytes and n_bytes % 8 == 0 and codes.flags.c_contiguous and codes.ctypes.data % 8 == 0:
        return codes.view(np.uint64)
    filled = np.zeros((len(codes), -(-n_bytes // 8) * 8), np.uint8)
    filled[:, :n_bytes] = codes[:, :n_bytes]
    return filled.view(np.uint64)


def least(distances: Ids, k: int) -> Ids:
    """Return which k are the least of whole numbers, and of equal ones the first, in their order."""
    if len(distances) <= k:
        return np.arange(len(distances))
    worst = int(np.searchsorted(np.cumsum(np.bincount(distances)), k))
    is_found = distances < worst
    is_found[np.flatnonzero(distances == worst)[: k - np.count_nonzero(is_found)]] = True
    return np.flatnonzero(is_found)


class Searched:
    """
    What a scan looks through, for some queries.

    Parameters
    ----------
    scan : Scan
        Of `_portable.search`.
    """

    def __init__(self, scan: Any) -> None:
        self.scan = scan
        self.n_bytes = bytes_of(scan.bits)
        self._known: dict[int, List] = {}
        self._bits: dict[int, Floats] = {}
        self._room = _MOST_BITS
        self._inverted = _proxy_of_lists(scan.lists) if scan.lists else None
        no_rows = np.empty(0, np.int64)
        self.nothing = Candidates(np.empty(0, np.float32), no_rows, no_rows, np.empty((0, scan.code_size), np.uint8))

    def lists(self, z: Floats | None, probes: Ids | None, n_probes: int) -> Ids:
        """Return which lists to look through for each query: those of the nearest codes, or centroids."""
        scan = self.scan
        if probes is not None:
            return probes
        if z is None or not scan.lists:
            return np.zeros((0 if z is None else len(z), 1), np.int64)
        if scan.centroids:
            return self._lists_of_centroids(z, n_probes)
        coarse = as_words(memory_at(scan.coarse, (scan.n_lists, self.n_bytes), np.uint8), self.n_bytes)
        numbers = np.full((len(z), n_probes), -1)
        for own, vector in zip(numbers, z, strict=True):
            distances = hamming(coarse, as_words(self.code_of(vector), self.n_bytes)[0])
            near = least(distances, n_probes)
            own[: len(near)] = near[np.argsort(distances[near], kind="stable")]
        return numbers

    def _lists_of_centroids(self, z: Floats, n_probes: int) -> Ids:
        scan = self.scan
        centroids = memory_at(scan.centroids, (scan.n_lists, scan.bits), np.float32)
        if scan.is_product:
            keys = -((z - self.offset()) @ centroids.T)
        else:
            keys = np.einsum("ld,ld->l", centroids, centroids) - 2 * (z @ centroids.T)
        bounds = np.partition(keys, n_probes - 1, axis=1)[:, n_probes - 1]
        numbers = np.empty((len(z), n_probes), np.int64)
        for own, row, bound in zip(numbers, keys, bounds, strict=True):
            near = np.flatnonzero(~(row > bound))  # more than are needed if some are equal, or no numbers
            own[:] = near[np.argsort(row[near], kind="stable")[:n_probes]]
        return numbers

    def offset(self) -> Floats:
        """Return what the transforms make of zero."""
        offset: Floats = memory_at(self.scan.offset, (self.scan.bits,), np.float32)
        return offset

    def code_of(self, z: Floats) -> Codes:
        """Return the signs of a query; for inner products, halfway between the query centred and not."""
        is_moved = self.scan.is_product and self.scan.offset
        return packed_signs((z - self.offset() * np.float32(0.5) if is_moved else z)[None])

    def probed(self, numbers: Ids) -> list[tuple[int, List]]:
        """Return the lists to look through, up to the one with which there are enough codes."""
        found, n_scanned, most = [], 0, self.scan.max_codes
        for number in numbers.tolist():
            if 0 <= number < max(1, self.scan.n_lists):
                if number not in self._known:
                    self._known[number] = self._list(number)
                found.append((number, self._known[number]))
                n_scanned += found[-1][1].size
            if most and n_scanned >= most:
                break
        return found

    def _list(self, number: int) -> List:
        scan, lists = self.scan, self._inverted
        if lists is None:
            size, at = scan.n_codes, scan.codes
            rows = np.arange(size)
        else:
            size = int(lists.list_size(number))
            at = int(lists.get_codes(number)) if size else None
            rows = memory_at(int(lists.get_ids(number)) if size else None, (size,), np.int64)
        codes, places = memory_at(at, (size, scan.code_size), np.uint8), number << 32 | np.arange(size)
        if scan.selector is not None:
            allowed = self._allowed(rows)
            codes, rows, places = codes[allowed], rows[allowed], places[allowed]
        return List(codes, as_words(codes, self.n_bytes), rows, places, size)

    def _allowed(self, rows: Ids) -> Ids:
        scan = self.scan
        if not scan.ids:
            return selected(rows, scan.selector)
        there = np.flatnonzero((rows >= 0) & (rows < scan.n_ids))
        return there[selected(memory_at(scan.ids, (scan.n_ids,), np.int64)[rows[there]], scan.selector)]

    def nearest(self, z: Floats, numbers: Ids, k: int) -> Candidates:
        """Return the k nearest codes, of equally near ones the first, in the order in which they are found."""
        query = as_words(self.code_of(z), self.n_bytes)[0]
        lists = [one for _, one in self.probed(numbers)]
        found = [Candidates(hamming(one.words, query), one.rows, one.places, one.codes) for one in lists]
        if len(found) != 1:
            found = [Candidates(*(np.concatenate(part) for part in zip(self.nothing, *found, strict=True)))]
        return found[0].only(least(found[0].distances.astype(np.int64), k))

    def bits_of(self, number: int) -> Floats:
        """Return the codes of a list as zeros and ones."""
        bits = self._bits.get(number)
        if bits is None:
            codes = self._known[number].codes[:, : self.n_bytes]
            bits = np.unpackbits(codes, axis=1, count=self.scan.bits, bitorder="little").astype(np.float32)
            if self._room >= bits.size:
                self._room -= bits.size
                self._bits[number] = bits
        return bits


def _proxy_of_lists(address: int) -> Any:
    """Return Faiss's proxy of inverted lists, of which a vector of Faiss's makes one from whatever is in it."""
    vector = faiss.InvertedListsPtrVector()
    vector.resize(1)
    ctypes.c_void_p.from_address(int(vector.data())).value = address
    return vector.at(0)
