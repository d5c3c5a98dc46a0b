"""Asking Faiss's filters."""

from __future__ import annotations

from typing import Any

import faiss
import numpy as np

from .types import Ids


def selected(ids: Ids, selector: Any) -> Ids:
    """Return the positions of the ids that an IDSelector selects."""
    if _calls_python(selector):  # what it raises would end the process below
        return np.flatnonzero([selector.is_member(number) for number in ids.tolist()])
    # Only C++ can ask a selector. A range search among equal vectors returns its answers, with any version of Faiss.
    zeros = faiss.IndexFlatL2(1)
    zeros.add(np.zeros((len(ids), 1), dtype=np.float32))
    vector = faiss.Int64Vector()
    faiss.copy_array_to_vector(ids, vector)
    translated = faiss.IDSelectorTranslated(vector, selector)
    _, _, positions = zeros.range_search(
        np.zeros((1, 1), np.float32), 1.0, params=faiss.SearchParameters(sel=translated)
    )
    return np.sort(positions)


def filter_of(params: Any) -> Any:
    """Return the filter of search parameters, as the object that was put there: Faiss would show no more of it."""
    address = int(params.sel.this)
    # Where Faiss keeps what its parameters refer to, in older and in newer versions.
    kept = [*getattr(params, "referenced_objects", ()), *getattr(params, "_sp_field_refs", {}).values()]
    for one in kept:
        if isinstance(one, faiss.IDSelector) and int(one.this) == address:
            return one
    return params.sel


def _calls_python(selector: Any) -> bool:
    parts = getattr(selector, "referenced_objects", ())
    return isinstance(selector, faiss.PyCallbackIDSelector) or any(map(_calls_python, parts))
