"""Numbers from callers, checked."""

from __future__ import annotations

from typing import Any

import numpy as np


def as_int(value: Any, name: str, least: int, most: int | None = None) -> int:
    """
    Return an integer from `least` to `most`, or raise an error that says what is wrong.

    Examples
    --------
    >>> as_int(3, "k", 1)
    3
    >>> as_int(True, "k", 1)
    Traceback (most recent call last):
    TypeError: k must be an integer, not True
    """
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, np.integer)):
        raise TypeError(f"{name} must be an integer, not {value!r}")
    if most is None and value < least:
        raise ValueError(f"{name} must be at least {least}, not {value}")
    if most is not None and not least <= value <= most:
        raise ValueError(f"{name} must be from {least} to {most}, not {value}")
    return int(value)


def bytes_of(bits: int) -> int:
    """
    Return how many bytes hold so many bits.

    Examples
    --------
    >>> bytes_of(13)
    2
    """
    return (bits + 7) // 8
