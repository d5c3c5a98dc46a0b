"""What a learned transform is and costs."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from .._common.types import Indices
from ..rotation import PairwiseRotation


class Description(NamedTuple):
    """
    What a learned transform is and costs; printed, a short table.

    Attributes
    ----------
    d_in, d_out : int
        Dimension of the vectors, and number of bits.
    variance_kept : float
        Share of the training vectors' variance that is in the outputs; nan if it was not trained, or there was none.
    variance_spread : float
        Standard deviation of the outputs' variances over their mean: 0 if all are equal.
    layers, rotations : int
        How many there are; of the rotations, those that an output depends on.
    multiplications, dense_multiplications : int
        A vector; and what a dense matrix of the same size would take.
    n_bytes, dense_bytes : int
        Size of the model, and of such a matrix.
    """

    d_in: int
    d_out: int
    variance_kept: float
    variance_spread: float
    layers: int
    rotations: int
    multiplications: int
    dense_multiplications: int
    n_bytes: int
    dense_bytes: int

    def __str__(self) -> str:
        variance = f"{self.variance_kept:.1%} kept, spread {self.variance_spread:.2f}"
        return "\n".join(
            [
                f"{self.d_in} dimensions to {self.d_out} bits",
                f"variance: {'not known' if math.isnan(self.variance_kept) else variance}",
                f"rotations: {self.rotations} in {self.layers} layers",
                f"multiplications a vector: {self.multiplications}, dense {self.dense_multiplications}",
                f"bytes: {self.n_bytes}, dense {self.dense_bytes}",
            ]
        )


def useful_rotations(rotation: PairwiseRotation, d_in: int, kept: Indices) -> int:
    """
    Return how many rotations turn something that is not zero, and that an output depends on.

    Native code runs these only.

    Examples
    --------
    >>> import numpy as np
    >>> rotation = PairwiseRotation(4, [([0, 2], [1, 3], [0.1, 0.2]), ([0], [2], [0.3])])
    >>> useful_rotations(rotation, d_in=4, kept=np.array([1]))
    1
    """
    filled = np.arange(rotation.d) < d_in
    turning = []
    for i, j, theta in rotation.layers:
        turns = (theta != 0) & (filled[i] | filled[j])
        filled[i[turns]] = filled[j[turns]] = True
        turning.append(turns)
    wanted = np.zeros(rotation.d, dtype=bool)
    wanted[kept] = True
    count = 0
    for (i, j, _), turns in zip(reversed(rotation.layers), reversed(turning), strict=True):
        useful = turns & (wanted[i] | wanted[j])
        wanted[i[useful]] = wanted[j[useful]] = True
        count += int(useful.sum())
    return count
