"""PCA hashing: the signs along the principal axes."""

import numpy as np

from bench.baselines.encoder import Linear, principal_axes


class PCAH(Linear):
    is_random = False

    def learn(self, x: np.ndarray) -> np.ndarray:
        return principal_axes(x, self.bits)[1]
