"""Faiss's float indexes of indexes: taken apart, and put together around parts that already hold vectors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import faiss
import numpy as np

from .._common.types import Ids
from ..transform import as_prh


class Composite(NamedTuple):
    """What an index of indexes is made of."""

    kind: str  # "IndexPreTransform", "IndexIDMap", "IndexIDMap2" or "IndexRefine"
    inside: Any
    transforms: Sequence[Any] = ()
    ids: Ids | None = None
    store: Any = None
    k_factor: float = 1.0


def taken_apart(index: Any) -> Composite | None:
    """
    Return the parts of a float index, or None if it is none of these.

    The parts are those of the index, and live as long as it does; the ids as well, which are not copied.

    Examples
    --------
    >>> import faiss
    >>> from faiss_prh import PRHTransform
    >>> index = faiss.IndexPreTransform(PRHTransform(8), faiss.IndexFlatL2(8))
    >>> composite = taken_apart(index)
    >>> composite.kind, type(composite.transforms[0]).__name__, type(composite.inside).__name__
    ('IndexPreTransform', 'PRHTransform', 'IndexFlatL2')
    """
    known = faiss.downcast_index(index)
    if isinstance(known, faiss.IndexPreTransform):
        chain = [known.chain.at(number) for number in range(known.chain.size())]
        transforms = [as_prh(transform) or faiss.downcast_VectorTransform(transform) for transform in chain]
        return Composite("IndexPreTransform", faiss.downcast_index(known.index), transforms=transforms)
    if isinstance(known, faiss.IndexIDMap):
        kind = "IndexIDMap2" if isinstance(known, faiss.IndexIDMap2) else "IndexIDMap"
        n = known.id_map.size()
        ids = faiss.rev_swig_ptr(known.id_map.data(), n) if n else np.empty(0, dtype=np.int64)
        return Composite(kind, faiss.downcast_index(known.index), ids=ids)
    if isinstance(known, faiss.IndexRefine):
        base, store = faiss.downcast_index(known.base_index), faiss.downcast_index(known.refine_index)
        return Composite("IndexRefine", base, store=store, k_factor=known.k_factor)
    return None


def put_together(composite: Composite) -> Any:
    """
    Return an index around its parts, which it keeps alive.

    Examples
    --------
    >>> import faiss, numpy as np
    >>> inside = faiss.IndexFlatL2(8)
    >>> inside.add(np.eye(2, 8, dtype="float32"))
    >>> put_together(Composite("IndexIDMap", inside, ids=np.array([7, 9]))).search(np.eye(2, 8), 1)[1].ravel()
    array([7, 9])
    """
    if composite.kind == "IndexPreTransform":
        return behind(composite.transforms, composite.inside)
    if composite.kind == "IndexRefine":
        return refined(composite.inside, composite.store, composite.k_factor)
    assert composite.ids is not None
    return with_ids(composite.kind, composite.inside, composite.ids)


def behind(chain: Sequence[Any], inside: Any) -> Any:
    """Return an IndexPreTransform of transforms, in the order in which they are applied, and an index."""
    index = faiss.IndexPreTransform(inside)
    for transform in reversed(chain):
        index.prepend_transform(transform)
    return index


def with_ids(kind: str, inside: Any, ids: Ids) -> Any:
    """Return an IDMap (of the class that `kind` names) that gives ids to the rows of an index."""
    is_binary = isinstance(inside, faiss.IndexBinary)
    empty = faiss.IndexBinaryFlat(inside.d) if is_binary else faiss.IndexFlat(inside.d, inside.metric_type)
    index = getattr(faiss, kind)(empty)  # Faiss makes one only around an empty one
    _set_part(index, "index", inside)
    index.ntotal, index.is_trained = inside.ntotal, inside.is_trained
    index.referenced_objects = [inside]
    faiss.copy_array_to_vector(ids, index.id_map)
    if kind.endswith("2"):
        index.construct_rev_map()
    return index


def refined(base: Any, store: Any, k_factor: float) -> Any:
    """Return an IndexRefineFlat if the store is an IndexFlat, else an IndexRefine."""
    if isinstance(store, faiss.IndexFlat):
        # Faiss makes one only with an empty store of its own.
        index = faiss.IndexRefineFlat(faiss.IndexFlat(base.d, base.metric_type))
        unused, index.own_refine_index = index.refine_index, False
        _set_part(index, "base_index", base)
        _set_part(index, "refine_index", store)
        faiss.Index.__swig_destroy__(unused)  # and not by owning it, which SWIG's count of its owners would not know
        index.ntotal, index.is_trained = base.ntotal, base.is_trained
        index.referenced_objects = [base, store]
    else:
        index = faiss.IndexRefine(base, store)
    index.k_factor = k_factor
    return index


def _set_part(index: Any, name: str, part: Any) -> None:
    """Let an index point to a part that Python goes on owning: SWIG would take it away, and no one would delete it."""
    is_pythons = part.this.own()
    setattr(index, name, part)
    part.this.own(is_pythons)
