"""What was learned."""

from __future__ import annotations

from typing import NamedTuple

from .._common.types import Floats, Indices
from ..rotation import PairwiseRotation


class Model(NamedTuple):
    """What a transform does: subtract the mean, rotate, and keep some dimensions."""

    rotation: PairwiseRotation
    mean: Floats
    kept: Indices
    variance_kept: float = float("nan")
    variance_spread: float = float("nan")
