"""
Iterative quantization (Gong, Lazebnik, Gordo and Perronnin 2013), twice.

As published, and as Faiss has it: its update multiplies by the wrong transpose and does not raise the objective.
"""

import faiss
import numpy as np

from bench.baselines.encoder import Linear, packed_signs, principal_axes, random_orthogonal

ITERATIONS = 50


class ITQ(Linear):
    """Rotate the principal components so that they are near their signs, by turns: signs, then the best rotation."""

    def learn(self, x: np.ndarray) -> np.ndarray:
        axes = principal_axes(x, self.bits)[1]
        z = x @ axes
        rotation = random_orthogonal(self.bits, np.random.default_rng(self.seed))
        self.objective = []  # the sum of |values|: the larger, the nearer the signs
        for _ in range(ITERATIONS):
            y = z @ rotation
            self.objective.append(float(np.abs(y).sum()))
            u, _, vt = np.linalg.svd(z.T @ np.where(y >= 0, 1.0, -1.0).astype(z.dtype))
            rotation = u @ vt
        self.objective.append(float(np.abs(z @ rotation).sum()))
        return axes @ rotation


class FaissITQ:
    """``faiss.ITQTransform``: what users run. Its seed is fixed."""

    is_random = False

    def __init__(self, bits: int, *, pca: bool = False) -> None:
        self.bits = bits
        self.pca = pca

    def train(self, x: np.ndarray) -> None:
        # PCA for fewer bits only, as in factory strings, unless it is asked for.
        self.transform = faiss.ITQTransform(x.shape[1], self.bits, self.pca or self.bits < x.shape[1])
        self.transform.train(x)

    def encode(self, x: np.ndarray) -> np.ndarray:
        return packed_signs(self.transform.apply(x))
