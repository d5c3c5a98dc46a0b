"""Numbers from callers, checked."""

from __future__ import annotations

import math
import sys
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
    if type(value) is not int and (isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, np.integer))):
        raise TypeError(f"{name} must be an integer, not {value!r}")
    if most is None and value < least:
        raise ValueError(f"{name} must be at least {least}, not {value}")
    if most is not None and not least <= value <= most:
        raise ValueError(f"{name} must be from {least} to {most}, not {value}")
    return int(value)


def as_float(value: Any, name: str, least: float, most: float = math.inf) -> float:
    """
    Return a number from `least` to `most` as a float, or raise an error that says what is wrong.

    Examples
    --------
    >>> as_float(2, "k_factor", 1, 1e9)
    2.0
    >>> as_float(0.5, "k_factor", 1, 1e9)
    Traceback (most recent call last):
    ValueError: k_factor must be from 1 to 1e+09, not 0.5
    """
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, float, np.integer, np.floating)):
        raise TypeError(f"{name} must be a number, not {value!r}")
    is_huge = isinstance(value, int) and abs(value) > sys.float_info.max  # of which Python makes no float
    number = (math.inf if value > 0 else -math.inf) if is_huge else float(value)
    if not least <= number <= most:
        allowed = f"at least {least:g}" if most == math.inf else f"from {least:g} to {most:g}"
        raise ValueError(f"{name} must be {allowed}, not {number:g}")
    return number


def bytes_of(bits: int) -> int:
    """
    Return the number of bytes that hold `bits` bits.

    Examples
    --------
    >>> bytes_of(13)
    2
    """
    return (bits + 7) // 8
