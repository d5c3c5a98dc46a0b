"""The parts of an index: those inside it, and the transforms in front."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import faiss

from .composites import Composite, taken_apart
from .pretransform import IndexBinaryPreTransform
from .signs import IndexIVFSigns


def nested(index: Any) -> Iterator[Any]:
    """
    Yield an index and those inside it, the outermost first. Proxies of what is inside live as long as the outermost.

    Examples
    --------
    >>> from faiss_prh import index_factory
    >>> [type(part).__name__ for part in nested(index_factory(16, "PRH,BIVF4"))]
    ['IndexBinaryPreTransform', 'IndexBinaryIVF']
    """
    part = index  # `index` itself stays: it owns what is inside
    while part is not None:
        if isinstance(part, faiss.Index):
            part = faiss.downcast_index(part)
        elif isinstance(part, faiss.IndexBinary):
            part = faiss.downcast_IndexBinary(part)
        yield part
        composite = _taken_apart(part)
        part = composite.inside if composite else None


def transforms_of(index: Any) -> list[Any]:
    """
    Return the transforms in front of an index, in the order in which they are applied.

    Examples
    --------
    >>> from faiss_prh import index_factory
    >>> [type(part).__name__ for part in transforms_of(index_factory(16, "PCA8,PRH,LSH"))]
    ['PCAMatrix', 'PRHTransform']
    """
    composites = map(_taken_apart, nested(index))
    return [transform for composite in composites if composite for transform in composite.transforms]


def _taken_apart(index: Any) -> Composite | None:
    """Return the parts of an index of any kind, or None if it has none."""
    if isinstance(index, IndexIVFSigns):
        return Composite(type(index).__name__, None, transforms=index.chain)  # its lists are of no use alone
    if isinstance(index, IndexBinaryPreTransform):
        return Composite(type(index).__name__, index._keyed, transforms=index.chain)
    if isinstance(index, faiss.IndexBinaryIDMap):
        return Composite(type(index).__name__, index.index)
    return taken_apart(index) if isinstance(index, faiss.Index) else None
