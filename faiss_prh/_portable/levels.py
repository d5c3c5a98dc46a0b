"""SIMD levels, of which NumPy chooses its own."""

from __future__ import annotations


def simd_levels() -> list[str]:
    """Return the only level there is."""
    return ["numpy"]


def use_simd_level(name: str) -> None:
    """Go on with the only level there is."""
    if name != "numpy":
        raise ValueError(f"no SIMD level {name!r} without native code; there is numpy")


def active_simd_level() -> str:
    """Return the only level there is."""
    return "numpy"
