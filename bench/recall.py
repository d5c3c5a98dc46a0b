"""The paper's measure: how many of the 10 true neighbours are among the R nearest codes."""

import faiss
import numpy as np

NEIGHBOURS = 10
# Rounded before they are cut off: 100 may come out as 99.999….
CUTS = np.unique(np.geomspace(10, 1000, 21).round(6).astype(int))
_BLOCK_DISTANCES = 1 << 25


def recall_curve(
    query_codes: np.ndarray, base_codes: np.ndarray, truth: np.ndarray, cuts: np.ndarray = CUTS
) -> np.ndarray:
    """
    Return the share of the true neighbours among the R nearest codes, for each R of `cuts`.

    Codes at equal distance are in random order, and what is returned is the mean over all orders: no method gains by
    how ties happen to be broken.
    """
    size = -(-query_codes.shape[1] // 8) * 8  # Faiss compares whole words
    query_codes, base_codes = (
        np.pad(codes, ((0, 0), (0, size - codes.shape[1]))) for codes in (query_codes, base_codes)
    )
    n_base, most = len(base_codes), 8 * size + 1
    totals = np.zeros(len(cuts))
    step = max(1, _BLOCK_DISTANCES // n_base)
    for first in range(0, len(query_codes), step):
        queries, near = query_codes[first : first + step], truth[first : first + step]
        distances = np.empty((len(queries), n_base), dtype=np.int32)
        pointers = (faiss.swig_ptr(array) for array in (queries, base_codes))
        faiss.hammings(*pointers, len(queries), n_base, size, faiss.swig_ptr(distances))
        for row, true in zip(distances, near, strict=True):
            at = np.bincount(row, minlength=most)
            before = np.cumsum(at) - at
            near_distances = row[true]
            left = cuts[:, None] - before[near_distances]
            totals += np.clip(left / at[near_distances], 0, 1).mean(axis=1)
    return totals / len(query_codes)
