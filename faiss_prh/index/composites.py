"""Faiss's indexes of indexes, made around parts that already hold vectors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import faiss

from .._common.types import Ids


def behind(chain: Sequence[Any], inside: Any) -> Any:
    """Return an IndexPreTransform of transforms, in the order in which they are applied, and an index."""
    index = faiss.IndexPreTransform(inside)
    for transform in reversed(chain):
        index.prepend_transform(transform)
    return index


def with_ids(kind: str, inside: Any, ids: Ids) -> Any:
    """Return an IndexIDMap or IndexIDMap2 that gives ids to the vectors of an index."""
    index = _around(getattr(faiss, kind)(faiss.IndexFlat(inside.d, inside.metric_type)), inside, ids)
    if isinstance(index, faiss.IndexIDMap2):
        index.construct_rev_map()
    return index


def binary_with_ids(inside: Any, ids: Ids) -> Any:
    """Return an IndexBinaryIDMap that gives ids to the codes of an index."""
    return _around(faiss.IndexBinaryIDMap(faiss.IndexBinaryFlat(inside.d)), inside, ids)


def _around(index: Any, inside: Any, ids: Ids) -> Any:
    """Put an IDMap around another index. Faiss makes one only around an empty one."""
    index.index, index.ntotal, index.is_trained = inside, inside.ntotal, inside.is_trained
    index.referenced_objects = [inside]
    faiss.copy_array_to_vector(ids, index.id_map)
    return index


def refined(base: Any, store: Any, k_factor: float) -> Any:
    """Return an IndexRefineFlat if the store is an IndexFlat, else an IndexRefine."""
    if isinstance(store, faiss.IndexFlat):
        # Faiss makes one only with an empty store of its own.
        index = faiss.IndexRefineFlat(faiss.IndexFlat(base.d, base.metric_type))
        index.base_index, index.refine_index, index.own_refine_index = base, store, False
        index.ntotal, index.is_trained = base.ntotal, base.is_trained
        index.referenced_objects = [base, store]
    else:
        index = faiss.IndexRefine(base, store)
    index.k_factor = k_factor
    return index
