"""The OpenBLAS inside Faiss, on which the speed of rivals depends."""

import os
import sys

import faiss  # noqa: F401 - so that both are loaded
import numpy  # noqa: F401
from threadpoolctl import threadpool_info

UNKNOWN = "Prescott"
"""What an OpenBLAS takes a CPU for that is newer than itself: it then does without AVX."""
KNOWN = ("SkylakeX", "Haswell", "Zen")
"""The kernels that an OpenBLAS of some years ago has."""


def architecture(package: str) -> str | None:
    """Return the CPU for which the OpenBLAS in the wheel of a package has chosen its kernels, if there is one."""
    found = [library for library in threadpool_info() if f"{package}.libs" in library["filepath"]]
    return next((library["architecture"] for library in found if library["internal_api"] == "openblas"), None)


def core_type() -> str | None:
    """Return what OPENBLAS_CORETYPE must say for Faiss to use this CPU, or None if it does, or nobody knows."""
    known = architecture("numpy")
    if architecture("faiss_cpu") != UNKNOWN or known in (None, UNKNOWN):
        return None
    return known if known in KNOWN else KNOWN[0]


def begin_again_with_the_right_kernels() -> None:
    """Start this program again if the OpenBLAS of Faiss does not know the CPU, or rivals would be needlessly slow."""
    wanted = core_type()
    if wanted and "OPENBLAS_CORETYPE" not in os.environ:
        arguments = [sys.executable, "-m", "bench", *sys.argv[1:]]
        os.execve(sys.executable, arguments, {**os.environ, "OPENBLAS_CORETYPE": wanted})
