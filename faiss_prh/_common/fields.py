"""
Fields of Faiss's objects, read where they are in memory.

Faiss's Python module takes up to two microseconds for one, which a single query would spend many times over. Where they
are is found out at import, by looking for values that were put there; a field that is not found is read Faiss's way.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from ctypes import c_int32, c_int64, c_uint8, sizeof
from typing import Any, Protocol

import faiss
import numpy as np
import numpy.typing as npt

FLOATS = (faiss.IndexFlat, faiss.IndexFlatL2, faiss.IndexFlatIP)
"""The indexes that keep vectors as floats, one after the other; those derived from them may not."""
_SEARCHED = 40
"""How many words of an object are searched for a field."""


class Field(Protocol):
    """Something whose value is what a field has at the moment."""

    @property
    def value(self) -> int: ...


class _Slow:
    """A field that is read Faiss's way."""

    def __init__(self, read: Callable[[Any], int], owner: Any) -> None:
        self._read, self._owner = read, owner

    @property
    def value(self) -> int:
        return self._read(self._owner)


_READ: dict[str, Callable[[Any], int]] = {
    "metric_type": lambda index: int(index.metric_type),
    "ntotal": lambda index: int(index.ntotal),
    "nprobe": lambda ivf: int(ivf.nprobe),
    "max_codes": lambda ivf: int(ivf.max_codes),
    "invlists": lambda ivf: int(ivf.invlists.this),
    "quantizer": lambda ivf: int(ivf.quantizer.this),
    "index": lambda id_map: int(id_map.index.this),
    "xb": lambda flat: int(flat.xb.data() or 0),
    "codes": lambda store: int(store.codes.data() or 0),
}


_KINDS: dict[str, Any] = {"metric_type": c_int32}
"""What a field is, if not a number of 64 bits or an address."""


def field(owner: Any, name: str) -> Field:
    """
    Return a field of a binary index or of a float one: one of those in `_READ`.

    Of vectors, the value is the address of the first element, and of objects their address. The owner must live as long
    as the field is read.

    Examples
    --------
    >>> import faiss, numpy as np
    >>> index = faiss.IndexFlatL2(2)
    >>> ntotal = field(index, "ntotal")
    >>> index.add(np.zeros((3, 2), "float32"))
    >>> ntotal.value
    3
    """
    place, kind = _places.get(name), _KINDS.get(name, c_int64)
    return _Slow(_READ[name], owner) if place is None else kind.from_address(int(owner.this) + place)


def memory_at(address: int | None, shape: tuple[int, ...], dtype: npt.DTypeLike) -> Any:
    """
    Return what is at an address, without a copy; nothing if that is 0 or None.

    Examples
    --------
    >>> import numpy as np
    >>> numbers = np.arange(6)
    >>> memory_at(numbers.ctypes.data, (2, 3), numbers.dtype)
    array([[0, 1, 2],
           [3, 4, 5]])
    """
    kind = np.dtype(dtype)
    n_bytes = math.prod(shape) * kind.itemsize
    if not (address and n_bytes):
        return np.zeros((0, *shape[1:]), kind)
    memory: Any = (c_uint8 * n_bytes).from_address(address)
    return np.frombuffer(memory, kind).reshape(shape)


def _place_of(name: str, *owners: Any) -> int | None:
    """Return how many bytes from their beginning on all owners have a field, each with a value of its own."""
    kind = _KINDS.get(name, c_int64)
    found = set(range(0, 8 * _SEARCHED, sizeof(kind)))
    for owner in owners:
        value = _READ[name](owner)
        found = {place for place in found if kind.from_address(int(owner.this) + place).value == value}
    return max(found, default=None)  # the last, if a vector has its address also in the part that owns the memory


def _places_of_fields() -> dict[str, int | None]:
    flat, ivf, id_map = [], [], []
    for n in (1013, 2027):
        flat.append(faiss.IndexBinaryFlat(8))
        flat[-1].add(np.zeros((n, 1), np.uint8))
        ivf.append(faiss.IndexBinaryIVF(flat[-1], 8, 2))
        ivf[-1].nprobe, ivf[-1].max_codes = n + 5, n + 7
        id_map.append(faiss.IndexBinaryIDMap(ivf[-1]))
    store = [faiss.IndexFlatL2(1), faiss.IndexScalarQuantizer(1, faiss.ScalarQuantizer.QT_fp16)]
    for index, vectors in zip(store, (1013, 2027), strict=True):
        index.add(np.zeros((vectors, 1), np.float32))
    metrics = faiss.METRIC_L2, faiss.METRIC_Linf, faiss.METRIC_JensenShannon
    measured = [faiss.IndexFlat(7, metric) for metric in metrics]
    places = {name: _place_of(name, *ivf) for name in ("nprobe", "max_codes", "invlists", "quantizer")}
    places |= {"index": _place_of("index", *id_map), "xb": _place_of("xb", *flat), "codes": _place_of("codes", *store)}
    return {**places, "ntotal": _place_of("ntotal", *flat, *store), "metric_type": _place_of("metric_type", *measured)}


_places = _places_of_fields()
