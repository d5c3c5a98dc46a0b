"""What native code is told of Faiss's indexes, to search the codes in them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import faiss
import numpy as np

from .._common.fields import field
from .._common.numbers import bytes_of
from .._common.types import Codes, Floats, Ids
from .._scan import Scan
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
            self._has_codes_of_lists = type(quantizer) is faiss.IndexBinaryFlat
            if self._has_codes_of_lists:
                self._quantizer, self._coarse, self._n_coarse = (
                    quantizer,
                    field(quantizer, "xb"),
                    field(quantizer, "ntotal"),
                )

    def scan(self, params: Any) -> Scan:
        """Return what to scan, with the filter of parameters."""
        if self.is_lists:
            scan = Scan(lists=self._lists.value, n_lists=self.nlist, code_size=self._code_size)
        elif self._flat is not None:
            scan = Scan(codes=self._codes.value, n_codes=self._n_codes.value, n_lists=1, code_size=self._code_size)
        else:
            scan = Scan()
        if is_filtered(params):
            scan.selector = int(params.sel.this)
            scan.keep(params)
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

    def rows_and_codes(self, places: Ids, with_codes: bool) -> tuple[Ids, Codes]:
        """Return the rows at places, which they are already if no codes are wanted, and the codes."""
        if not with_codes:
            return places, np.empty((*places.shape, 0), np.uint8)
        if self.is_lists:
            return binary_search.from_lists(self.rows_index, places)
        if self._flat is None:
            raise ValueError(f"{type(self.rows_index).__name__} does not give its codes back")
        return places, binary_search.from_flat(self._flat, places)


def let_transform(scan: Scan, transforms: Sequence[Any], vectors: Floats) -> Floats | None:
    """Let native code transform queries by itself, or return what the transforms make of them."""
    if len(transforms) == 1 and isinstance(transforms[0], PRHTransform):
        _set_sizes(scan, transforms)
        scan.transform = int(transforms[0].this)
        return None
    return transformed(scan, transforms, vectors)


def transformed(scan: Scan, transforms: Sequence[Any], vectors: Floats) -> Floats:
    """Return what the transforms make of queries."""
    _set_sizes(scan, transforms)
    return chain.apply(transforms, vectors)


def _set_sizes(scan: Scan, transforms: Sequence[Any]) -> None:
    """Set how long queries and their codes are, unless the transforms were replaced by others that do not fit."""
    scan.d, scan.bits = transforms[0].d_in, transforms[-1].d_out
    expected = bytes_of(scan.bits) + bool(scan.centroids)
    if scan.code_size and scan.code_size != expected:
        raise ValueError(f"transforms to {scan.bits} dimensions do not fit codes of {scan.code_size} bytes")
