"""What callers give an index, checked: ids, selectors, radii."""

from __future__ import annotations

import math
from typing import Any

import faiss
import numpy as np
import numpy.typing as npt

from .._common.numbers import as_float
from .._common.types import Ids

LARGEST_ID = np.iinfo(np.int64).max


def as_ids(ids: npt.ArrayLike, n: int | None) -> Ids:
    """Return `n` ids, any number of them if it is None, as an array of int64."""
    array = np.asarray(ids)
    if array.dtype.kind not in "iu" and array.size:
        raise TypeError(f"ids must be integers, not {array.dtype}")
    if array.ndim != 1 or (n is not None and len(array) != n):
        raise ValueError(f"ids must have shape ({'n' if n is None else n},), not {array.shape}")
    if array.dtype == np.uint64 and array.size and array.max() > LARGEST_ID:
        raise ValueError(f"ids must be below 2**63: {array.max()}")
    return np.ascontiguousarray(array, dtype=np.int64)


def as_new_ids(ids: npt.ArrayLike, n: int) -> Ids:
    """Return `n` ids to add: none negative, since -1 says that there is no result."""
    array = as_ids(ids, n)
    if len(array) and array.min() < 0:
        raise ValueError(f"ids must not be negative: {array.min()}")
    return array


def as_selector(ids: Any) -> Any:
    """Return an array of ids as an IDSelector. An IDSelector is returned unchanged."""
    return ids if isinstance(ids, faiss.IDSelector) else faiss.IDSelectorBatch(as_ids(ids, None))


def as_radius(radius: Any, bits: int) -> int:
    """
    Return the radius, for codes of so many bits, that Faiss takes: an integer, and the distances found are below it.

    Examples
    --------
    >>> as_radius(20.5, 64), as_radius(2**40, 64)
    (21, 65)
    """
    return math.ceil(min(as_float(radius, "radius", 0), bits + 1))
