"""
The one place that knows which code runs. Everyone else imports from here what was chosen, once, at import.

- ``native``: Faiss runs the transforms of the C++ library, and that searches in Faiss's memory.
- ``kernels``: there is the library, but this Faiss has another binary interface, as on Windows. Transforms are stock
  ones of Faiss's with a dense matrix. Encoding and learning are native, searches are in NumPy.
- ``portable``: there is no library. All is in NumPy.
"""

from __future__ import annotations

import os
import sys
import warnings
from typing import TYPE_CHECKING

import faiss

from ._native import LayoutMismatch, LibraryMissing

_VARIABLE = "FAISS_PRH_NATIVE"


def _choose() -> tuple[str, str]:
    """Return what runs, and why."""
    wanted = os.environ.get(_VARIABLE, "")
    if wanted not in ("", "0", "1", "kernels"):
        raise ImportError(f"{_VARIABLE} must be 1 (the default), kernels or 0, not {wanted!r}")
    if wanted == "0":
        return "portable", f"{_VARIABLE}=0"
    try:
        from ._native import search, transforms
    except LibraryMissing as error:
        warnings.warn(
            f"faiss-prh runs without native code, which is many times slower: {error}. Install it again where there is "
            f"a C++ compiler, or set {_VARIABLE}=0 to have no warning.",
            RuntimeWarning,
            stacklevel=2,
        )
        return "portable", str(error)
    if wanted == "kernels":
        return "kernels", f"{_VARIABLE}=kernels"
    if sys.platform == "win32":  # where trying could crash
        return "kernels", "Faiss has another binary interface on Windows"
    try:
        transforms.check_layout()
        search.check_layout()
    except LayoutMismatch as error:
        return "kernels", str(error)
    return "native", f"the library fits Faiss {faiss.__version__}"


BACKEND, REASON = _choose()

if TYPE_CHECKING or BACKEND == "native":
    from ._native import kernels, transforms
    from ._native.library import active_simd_level, simd_levels, use_simd_level
    from ._native.search import Batch, Scan, range_search, rank, rank_by_bytes, rank_by_vectors, search
else:
    from ._portable.search import Batch, Scan, range_search, rank, rank_by_bytes, rank_by_vectors, search
    from ._portable.transforms import Rotating, Transforms

    if BACKEND == "kernels":
        from ._native import kernels
        from ._native.library import active_simd_level, simd_levels, use_simd_level
        from ._native.transforms import Rotating
    else:
        from ._portable import kernels
        from ._portable.levels import active_simd_level, simd_levels, use_simd_level
    transforms = Transforms(Rotating)

__all__ = [
    "BACKEND",
    "REASON",
    "Batch",
    "Scan",
    "active_simd_level",
    "kernels",
    "range_search",
    "rank",
    "rank_by_bytes",
    "rank_by_vectors",
    "search",
    "simd_levels",
    "transforms",
    "use_simd_level",
]
