"""Isotropic hashing (Kong and Li 2012) by lift and projection: principal components rotated to equal variances."""

import numpy as np

from bench.baselines.encoder import Linear, principal_axes, random_orthogonal

TOLERANCE = 1e-3
MOST_ITERATIONS = 2000


class ISO(Linear):
    """
    Go to and fro between matrices with the right eigenvalues and matrices with an equal diagonal.

    The covariance of the rotated components is Qᵀ diag(variances) Q. Lift: of all such matrices take the one nearest to
    the current matrix, which has its eigenvectors. Project: set the diagonal of that to the mean variance.
    """

    def learn(self, x: np.ndarray) -> np.ndarray:
        variances, axes = principal_axes(x, self.bits)
        mean = variances.mean()
        rotation = random_orthogonal(self.bits, np.random.default_rng(self.seed))
        for _ in range(MOST_ITERATIONS):
            lifted = (rotation.T * variances) @ rotation
            if np.abs(np.diag(lifted) - mean).max() <= TOLERANCE * mean / 2:
                break
            np.fill_diagonal(lifted, mean)
            rotation = np.linalg.eigh(lifted)[1][:, ::-1].T
        return axes @ rotation
