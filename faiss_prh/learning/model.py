"""What training learns, and what it costs to use."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from .._common.types import Doubles, Floats, Indices
from ..rotation import PairwiseRotation


class Model(NamedTuple):
    """A learned transform: subtract the mean, rotate, keep some dimensions, and multiply them with the tail, if any."""

    rotation: PairwiseRotation
    mean: Floats
    kept: Indices
    variance_kept: float = math.nan
    variance_spread: float = math.nan
    tail: Floats | None = None

    @property
    def d_out(self) -> int:
        """Number of outputs."""
        return len(self.kept if self.tail is None else self.tail)

    @classmethod
    def learned(
        cls,
        rotation: PairwiseRotation,
        mean: Floats,
        kept: Indices,
        variances: Doubles,
        total: float,
        tail: Floats | None = None,
    ) -> Model:
        """
        Return the model of a rotation, without what makes no difference to its outputs.

        Parameters
        ----------
        rotation, mean, kept, tail
            What was learned.
        variances : ndarray
            Variances of the outputs.
        total : float
            Sum of the variances of all dimensions.
        """
        pruned = without_idle_rotations(rotation, len(mean), kept)
        if not total:
            return cls(pruned, mean, kept, tail=tail)
        return cls(pruned, mean, kept, float(variances.sum() / total), float(variances.std() / variances.mean()), tail)


def spread_of(variances: Doubles) -> float:
    """Return the standard deviation of variances divided by their mean."""
    return float(variances.std() / variances.mean())


class Description(NamedTuple):
    """
    What a learned transform is and what it costs. Printed, it is a short table.

    Attributes
    ----------
    d_in, d_out : int
        Dimension of the vectors, and number of bits.
    variance_kept : float
        Share of the training vectors' variance that the outputs have; nan if it is not known, or there was none.
    variance_spread : float
        Standard deviation of the outputs' variances divided by their mean: 0 if all are equal.
    layers, rotations : int
        Number of layers, and of 2-D rotations in them.
    tail : int
        Number of dimensions that a dense matrix then takes to the bits; 0 if there is none.
    multiplications, dense_multiplications : int
        Multiplications for one vector, and those of a dense matrix of the same size.
    n_bytes, dense_bytes : int
        Size of the model, and of such a matrix.
    """

    d_in: int
    d_out: int
    variance_kept: float
    variance_spread: float
    layers: int
    rotations: int
    tail: int
    multiplications: int
    dense_multiplications: int
    n_bytes: int
    dense_bytes: int

    @classmethod
    def of(cls, model: Model, n_bytes: int) -> Description:
        """Return the description of a model that takes some bytes."""
        d_in, d_out, rotations = len(model.mean), model.d_out, model.rotation.n_rotations
        tail = 0 if model.tail is None else len(model.kept)
        return cls(
            d_in=d_in,
            d_out=d_out,
            variance_kept=model.variance_kept,
            variance_spread=model.variance_spread,
            layers=len(model.rotation.layers),
            rotations=rotations,
            tail=tail,
            multiplications=2 * rotations + (tail or 1) * d_out,
            dense_multiplications=d_in * d_out,
            n_bytes=n_bytes,
            dense_bytes=4 * d_in * d_out,
        )

    def __str__(self) -> str:
        variance = f"{self.variance_kept:.1%} kept, spread {self.variance_spread:.2f}"
        return "\n".join(
            [
                f"{self.d_in} dimensions to {self.d_out} bits",
                f"variance: {'unknown' if math.isnan(self.variance_kept) else variance}",
                f"rotations: {self.rotations} in {self.layers} layers",
                *([f"dense tail: {self.tail} dimensions to {self.d_out}"] if self.tail else []),
                f"multiplications per vector: {self.multiplications} (dense: {self.dense_multiplications})",
                f"bytes: {self.n_bytes} (dense: {self.dense_bytes})",
            ]
        )


def without_idle_rotations(rotation: PairwiseRotation, d_in: int, kept: Indices) -> PairwiseRotation:
    """
    Return a rotation without the 2-D rotations that no output depends on, or that turn only zeros, or by nothing.

    Parameters
    ----------
    rotation : PairwiseRotation
    d_in : int
        The first dimensions are the input, the others zero.
    kept : ndarray of int32
        The dimensions that are the output.

    Examples
    --------
    >>> import numpy as np
    >>> rotation = PairwiseRotation(4, [([0, 2], [1, 3], [0.1, 0.2]), ([0], [2], [0.3])])
    >>> without_idle_rotations(rotation, d_in=4, kept=np.array([1]))
    <PairwiseRotation: d=4, 1 layers, 1 rotations>
    """
    filled = np.arange(rotation.d) < d_in
    turning = []
    for i, j, theta in rotation.layers:
        turns = (theta != 0) & (filled[i] | filled[j])
        filled[i[turns]] = filled[j[turns]] = True
        turning.append(turns)
    wanted = np.zeros(rotation.d, dtype=bool)
    wanted[kept] = True
    layers = []
    for (i, j, theta), turns in zip(reversed(rotation.layers), reversed(turning), strict=True):
        useful = turns & (wanted[i] | wanted[j])
        if useful.any():
            i, j = i[useful], j[useful]
            wanted[i] = wanted[j] = True
            layers.append((i, j, theta[useful]))
    return PairwiseRotation(rotation.d, layers[::-1])
