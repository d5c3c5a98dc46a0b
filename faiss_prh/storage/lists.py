"""The inside of an IVF as arrays: the sizes of its lists, then all ids, then all codes."""

from __future__ import annotations

from typing import Any, NamedTuple

import faiss
import numpy as np

from .._common.types import Ids
from .limits import Flaw
from .records import RecordReader, RecordWriter


def list_sizes(ivf: Any) -> list[int]:
    """Return how many vectors each list of an IVF has."""
    return [ivf.invlists.list_size(number) for number in range(ivf.nlist)]


def write_lists(out: RecordWriter, ivf: Any, sizes: list[int]) -> None:
    """Write the lists of an IVF, whose sizes are given, from where they are."""
    out.array(np.array(sizes), "<u8")
    used = [number for number, size in enumerate(sizes) if size]
    for number in used:
        out.array(faiss.rev_swig_ptr(ivf.invlists.get_ids(number), sizes[number]), "<i8")
    for number in used:
        out.array(faiss.rev_swig_ptr(ivf.invlists.get_codes(number), sizes[number] * ivf.code_size), "u1")


class Lists(NamedTuple):
    """What was read of lists before their codes."""

    sizes: list[int]
    ids: Ids

    @classmethod
    def read(cls, source: RecordReader, nlist: int, code_size: int) -> Lists:
        """Return the lists that come next. The codes follow."""
        sizes = source.array("<u8", nlist).tolist()
        total = sum(sizes)
        source.claim(total * (8 + code_size))
        return cls(sizes, source.array("<i8", total))

    def fill(self, source: RecordReader, ivf: Any, direct_map: int) -> None:
        """Give an IVF these lists, with the codes that come next."""
        ivf.ntotal = len(self.ids)
        first = 0
        for number, size in enumerate(self.sizes):
            if size:
                codes, ids = source.array("u1", size * ivf.code_size), self.ids[first : first + size]
                ivf.invlists.add_entries(number, size, faiss.swig_ptr(ids), faiss.swig_ptr(codes))
                first += size
        if direct_map:
            ivf.set_direct_map_type(direct_map)


def check_centroids(nlist: int, quantizer: Any, is_used: bool) -> None:
    """Raise a Flaw if lists lack centroids, or have too many; before training there may be none."""
    if quantizer.ntotal != nlist and (is_used or quantizer.ntotal):
        raise Flaw(f"{nlist} lists of {quantizer.ntotal} centroids")
