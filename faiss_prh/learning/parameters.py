"""What a user may choose about learning."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from .._common.numbers import as_float, as_int

MOST_CHOSEN_LAYERS = 100
"""Most layers that n_iso and n_pca may ask for together. Reducing dimensions adds layers of its own."""


@dataclass(frozen=True)
class Parameters:
    """
    What to learn: PRH(n_iso, n_pca, tilt) in the paper's notation.

    Parameters
    ----------
    n_iso : int
        Layers of isotropic rotations.
    n_pca : int
        Layers, after those, of random pairs that are rotated to their principal axes.
    tilt : float
        How far the isotropic layers are turned towards the principal axes, from 0 to 1.
    seed : int
        Seed of the random pairs.
    tune : bool
        Whether the angles of all those layers are then learned together from neighbours in the sample.
    center : bool
        Whether the mean of the training vectors is subtracted first.
    """

    n_iso: int
    n_pca: int
    tilt: float
    seed: int
    tune: bool
    center: bool

    def __post_init__(self) -> None:
        for name, most in (("n_iso", MOST_CHOSEN_LAYERS), ("n_pca", MOST_CHOSEN_LAYERS), ("seed", 2**63 - 1)):
            object.__setattr__(self, name, as_int(getattr(self, name), name, 0, most))
        chosen = self.n_iso + self.n_pca
        if chosen > MOST_CHOSEN_LAYERS:
            raise ValueError(f"n_iso and n_pca must add up to at most {MOST_CHOSEN_LAYERS}, not {chosen}")
        object.__setattr__(self, "tilt", as_float(self.tilt, "tilt", 0, 1))
        for name in ("tune", "center"):
            value = getattr(self, name)
            if not isinstance(value, (bool, np.bool_)):
                raise TypeError(f"{name} must be True or False, not {value!r}")
            object.__setattr__(self, name, bool(value))


def layers_for(d: int) -> int:
    """Return ⌈log2 d⌉, the number of isotropic layers that make the variances (nearly) equal."""
    return math.ceil(math.log2(d))
