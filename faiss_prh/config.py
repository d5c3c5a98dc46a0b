"""show_config: what runs here, for bug reports."""

from __future__ import annotations

import importlib.metadata
import platform
from typing import Any, Literal

import faiss
import numpy as np

from . import _backend


def show_config(mode: Literal["stdout", "dicts"] = "stdout") -> dict[str, Any] | None:
    """
    Tell what runs here: versions, whether native code does, SIMD level, threads. Put it into bug reports.

    Parameters
    ----------
    mode : {"stdout", "dicts"}, optional
        Whether to print it, or to return it as a dict, as ``numpy.show_config`` does.

    Returns
    -------
    dict or None
        ``backend`` is ``native``; or ``kernels``, where Faiss cannot be given native transforms (as on Windows), so
        that only encoding and learning are native; or ``portable``, without native code. ``reason`` says why.

    Examples
    --------
    >>> import faiss_prh
    >>> config = faiss_prh.show_config("dicts")
    >>> config["backend"] in ("native", "kernels", "portable"), config["threads"] >= 1
    (True, True)
    """
    if mode not in ("stdout", "dicts"):
        raise ValueError(f'mode must be "stdout" or "dicts", not {mode!r}')
    config = {
        "faiss-prh": importlib.metadata.version("faiss-prh"),
        "backend": _backend.BACKEND,
        "reason": _backend.REASON,
        "simd_level": _backend.active_simd_level(),
        "simd_levels": _backend.simd_levels(),
        "threads": int(faiss.omp_get_max_threads()),
        "faiss": faiss.__version__,
        "faiss_options": faiss.get_compile_options().split(),
        "numpy": np.__version__,
        "scipy": importlib.metadata.version("scipy"),
        "python": platform.python_version(),
        "platform": platform.platform(),
    }
    if mode == "dicts":
        return config
    print(as_text(config))
    return None


def as_text(config: dict[str, Any]) -> str:
    """Return what `show_config` prints."""
    return "\n".join(
        f"{name.replace('_', ' ')}: {' '.join(value) if isinstance(value, list) else value}"
        for name, value in config.items()
    )
