"""L-BFGS: a minimum of a smooth function, from its values and derivatives."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import numpy as np

from .._common.types import Doubles
from .progress import tell

_MEMORY = 20
_SUFFICIENT = 1e-4
"""Least share of the decrease that the slope promises."""
_SHORTER = 20
"""How often a step is made shorter before it is given up."""
_LEAST_DECREASE = 1e-9
"""Relative decrease of a step after which no other is made."""


def descend(evaluate: Callable[[Doubles], tuple[float, Doubles]], start: Doubles, steps: int) -> Doubles:
    """
    Return where a function is least, as far as some steps of L-BFGS (Nocedal, 1980) find it.

    SciPy has the same, but importing it takes longer than all these steps, and its sums depend on threads.

    Parameters
    ----------
    evaluate : callable
        Returns the function's value and derivative.
    start : ndarray
        Where to begin.
    steps : int
        Most steps.

    Examples
    --------
    >>> import numpy as np
    >>> valley = lambda x: (float((x**4).sum() + x[0] * x[1]), 4 * x**3 + x[::-1])
    >>> descend(valley, np.array([0.3, -0.1]), steps=30).round(3)
    array([ 0.5, -0.5])
    """
    at = start.astype(np.float64)
    value, slope = evaluate(at)
    last: deque[tuple[Doubles, Doubles, float]] = deque(maxlen=_MEMORY)
    for number in range(steps):
        tell("turning all angles together", number / steps)
        direction = _direction(slope, last)
        promised = _dot(direction, slope)
        if not promised < 0:
            break
        length = 1.0
        for _ in range(_SHORTER):
            ahead = at + length * direction
            ahead_value, ahead_slope = evaluate(ahead)
            if ahead_value <= value + _SUFFICIENT * length * promised:
                break
            # Where a parabola through the two values and the slope is least.
            least = promised * length**2 / (2 * (promised * length + value - ahead_value))
            length = min(max(least, 0.1 * length), 0.5 * length)
        else:
            break
        step, bend = ahead - at, ahead_slope - slope
        if _dot(step, bend) > 1e-10 * _dot(bend, bend):
            last.append((step, bend, _dot(step, bend)))
        decrease = value - ahead_value
        at, value, slope = ahead, ahead_value, ahead_slope
        if decrease <= _LEAST_DECREASE * max(abs(value), 1.0):
            break
    return at


def _direction(slope: Doubles, last: deque[tuple[Doubles, Doubles, float]]) -> Doubles:
    """Return minus the slope, times the inverse of what the last steps tell about the second derivatives."""
    direction: Doubles = -slope
    if not last:
        direction /= max(np.sqrt(_dot(slope, slope)), np.finfo(np.float64).tiny)
        return direction
    shares = []
    for step, bend, product in reversed(last):
        shares.append(_dot(step, direction) / product)
        direction -= shares[-1] * bend
    _, bend, product = last[-1]
    direction *= product / _dot(bend, bend)
    for (step, bend, product), share in zip(last, reversed(shares), strict=True):
        direction += (share - _dot(bend, direction) / product) * step
    return direction


def _dot(a: Doubles, b: Doubles) -> float:
    return float(np.sum(a * b))  # not by BLAS, whose sums depend on the number of threads
