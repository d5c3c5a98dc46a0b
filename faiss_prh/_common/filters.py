"""Asking Faiss's filters."""

from __future__ import annotations

from typing import Any

import faiss
import numpy as np

from .types import Ids


def selected(ids: Ids, selector: Any) -> Ids:
    """Return the positions of the ids that an IDSelector selects."""
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
