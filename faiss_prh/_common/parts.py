"""Long calls in parts, so that an interrupt (Ctrl-C) does not wait for the end."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import faiss
import numpy as np

from .types import AnyArray

_FIRST = 16
"""Number of queries in the first part, for each thread."""
_SECONDS = 0.2
"""How long each part should take."""


def parts(n: int) -> Iterator[slice]:
    """
    Cut n queries into slices. The time that one slice takes decides the size of the next.

    Examples
    --------
    >>> from faiss_prh._common.parts import parts
    >>> sum(part.stop - part.start for part in parts(1000))
    1000
    """
    first, count = 0, _FIRST * faiss.omp_get_max_threads()
    while first < n:
        begun = time.monotonic()
        yield slice(first, min(first + count, n))
        first += count
        count = max(1, int(count * min(8, _SECONDS / max(time.monotonic() - begun, 1e-9))))


def cut(*arrays: Any) -> Iterable[Sequence[Any]]:
    """
    Cut arrays, each with a row for every query, into the same parts. None stays.

    Examples
    --------
    >>> import numpy as np
    >>> from faiss_prh._common.parts import cut
    >>> x = np.arange(100)
    >>> sum(len(some) for some, _ in cut(x, None))
    100
    """
    n = len(arrays[0])
    if 0 < n <= _FIRST:  # a single query must not wait for what follows
        return (arrays,)
    return ([None if array is None else array[part] for array in arrays] for part in parts(n))


def search(index: Any, queries: AnyArray, k: int, params: Any = None) -> tuple[Any, Any]:
    """Return the distances and ids that an index of Faiss's finds, searching part after part."""
    (n, width), is_binary, swig_ptr = queries.shape, queries.dtype == np.uint8, faiss.swig_ptr
    expected = index.code_size if is_binary else index.d
    if width != expected:  # as when a transform was replaced by another: Faiss would read beyond the end
        unit = "bytes" if is_binary else "dimensions"
        raise ValueError(f"queries of {width} {unit} do not fit an index of {expected}")
    D, I = np.empty((n, k), np.int32 if is_binary else np.float32), np.empty((n, k), np.int64)
    for x, distances, ids in cut(queries, D, I):
        index.search_c(len(x), swig_ptr(x), k, swig_ptr(distances), swig_ptr(ids), params)
    return D, I


def range_search(call: Callable[[Any], Any], queries: AnyArray) -> tuple[Any, Any, Any]:
    """Return the limits, distances and ids that a range search finds, searching part after part."""
    found = [call(part) for (part,) in cut(queries)] or [call(queries)]
    if len(found) == 1:
        return found[0][0], found[0][1], found[0][2]
    counts = np.concatenate([np.diff(limits) for limits, _, _ in found])
    limits = np.concatenate([[0], np.cumsum(counts)]).astype(found[0][0].dtype)
    return limits, np.concatenate([D for _, D, _ in found]), np.concatenate([I for _, _, I in found])
