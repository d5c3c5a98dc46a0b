"""What native code is told of Faiss's indexes, to search the codes in them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import faiss

from .._backend import Scan
from .._common.fields import field
from .._common.numbers import bytes_of
from .._common.types import Codes, Floats, Ids
from ..transform import PRHTransform
from . import binary_search, chain
from .binary_ops import storage_of, without_id_map
from .parameters import inner_params, is_filtered


class Scanned:
    """
    A binary index to scan, and what does not change as long as it lives.

    Parameters
    ----------
    keyed : faiss.IndexBinary
        It may be in an IDMap, whose ids are those that a filter is asked about.

    Attributes
    ----------
    keyed, rows_index, id_map : faiss.IndexBinary
    is_known : bool
        Whether native code finds its way in it: in a flat index, and in an IVF.
    """

    def __init__(self, keyed: Any) -> None:
        self.keyed = keyed
        self.rows_index, self.id_map = without_id_map(keyed)
        self._parts = [] if self.id_map is None else [(field(self.id_map, "index"), int(self.rows_index.this))]
        self.is_lists = isinstance(self.rows_index, faiss.IndexBinaryIVF)
        self.is_known = self.is_lists or isinstance(self.rows_index, faiss.IndexBinaryFlat)
        self.ntotal = field(self.rows_index, "ntotal")
        self._code_size = self.rows_index.code_size
        self._flat = storage_of(self.rows_index)
        if self._flat is not None:
            self._codes, self._n_codes = field(self._flat, "xb"), field(self._flat, "ntotal")
        if self.is_lists:
            self.nlist = self.rows_index.nlist
            self._lists, self._nprobe, self._max_codes = (
                field(self.rows_index, name) for name in ("invlists", "nprobe", "max_codes")
            )
            quantizer = faiss.downcast_IndexBinary(self.rows_index.quantizer)
            self._parts.append((field(self.rows_index, "quantizer"), int(quantizer.this)))
            self._has_codes_of_lists = type(quantizer) is faiss.IndexBinaryFlat
            if self._has_codes_of_lists:
                self._coarse, self._n_coarse = field(quantizer, "xb"), field(quantizer, "ntotal")

    def is_of(self, keyed: Any) -> bool:
        """Whether this is still what an index consists of: Faiss lets its parts be replaced."""
        if keyed is not self.keyed:
            return False
        for part, address in self._parts:  # noqa: SIM110 - a single query would wait for a generator
            if part.value != address:
                return False
        return True

    def scan(self, params: Any) -> Scan:
        """Return what to scan, with the filter of parameters."""
        scan = Scan()
        if self.is_lists:
            scan.lists, scan.n_lists, scan.code_size = self._lists.value, self.nlist, self._code_size
        elif self._flat is not None:
            scan.codes, scan.n_codes = self._codes.value, self._n_codes.value
            scan.n_lists, scan.code_size = 1, self._code_size
        if is_filtered(params):
            scan.filter_by(params)
            if self.id_map is not None:
                scan.ids, scan.n_ids = int(self.id_map.id_map.data() or 0), self.id_map.id_map.size()
        return scan

    def set_lists(self, scan: Scan, params: Any) -> tuple[int, Any]:
        """
        Set which lists to scan. Return how many, and the parameters of the quantizer.

        If `coarse` is not set afterwards, native code cannot look for them in the codes of the quantizer.
        """
        if not self.is_lists:
            return 1, None
        nprobe, scan.max_codes, quantizer_params = self._nprobe.value, self._max_codes.value, None
        if isinstance(params, faiss.SearchParametersIVF):
            nprobe, scan.max_codes = params.nprobe, params.max_codes
            quantizer_params = inner_params(params, "quantizer_params")
        if nprobe < 1:
            raise ValueError("nprobe must be at least 1")
        if self._has_codes_of_lists and quantizer_params is None and self._n_coarse.value == self.nlist:
            scan.coarse = self._coarse.value
        return min(nprobe, self.nlist), quantizer_params

    def rows_and_codes(self, places: Ids) -> tuple[Ids, Codes]:
        """Return the rows at places, and the codes."""
        if self.is_lists:
            return binary_search.from_lists(self.rows_index, places)
        if self._flat is None:
            raise ValueError(f"{type(self.rows_index).__name__} does not give its codes back")
        return places, binary_search.from_flat(self._flat, places)


def let_transform(scan: Scan, transforms: Sequence[Any], vectors: Floats) -> Floats | None:
    """Let native code transform queries by itself, or return what the transforms make of them."""
    first = transforms[0]
    if len(transforms) != 1 or not isinstance(first, PRHTransform) or not scan.transform_by(first._handle):
        return transformed(scan, transforms, vectors)
    _set_sizes(scan, first.d_in, first.d_out)
    return None


def transformed(scan: Scan, transforms: Sequence[Any], vectors: Floats) -> Floats:
    """Return what the transforms make of queries."""
    _set_sizes(scan, transforms[0].d_in, transforms[-1].d_out)
    return chain.apply(transforms, vectors)


def _set_sizes(scan: Scan, d: int, bits: int) -> None:
    """Set how long queries and their codes are, unless the transforms were replaced by others that do not fit."""
    scan.d, scan.bits, code_size = d, bits, scan.code_size
    if code_size and code_size != bytes_of(bits) + (scan.centroids is not None):
        raise ValueError(f"transforms to {bits} dimensions do not fit codes of {code_size} bytes")
