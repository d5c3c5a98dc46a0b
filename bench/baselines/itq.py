"""
Iterative quantization (Gong, Lazebnik, Gordo and Perronnin 2013), twice.

As published, and as in Faiss, whose update multiplies by the wrong transpose and does not raise the objective.
"""

import faiss
import numpy as np

from bench.baselines.encoder import Linear, packed_signs, principal_axes, random_orthogonal

ITERATIONS = 50


class ITQ(Linear):
    """Rotate the principal components towards their signs: take the signs, then the best rotation, in turn."""

    def learn(self, x: np.ndarray) -> np.ndarray:
        # float32, as the vectors are: its learning time is compared, and float64 would double it.
        axes = principal_axes(x, self.bits)[1].astype(np.float32)
        z = x.astype(np.float32) @ axes
        rotation = random_orthogonal(self.bits, np.random.default_rng(self.seed)).astype(np.float32)
        self.objective = []  # the sum of |values|: the larger, the nearer the signs
        for _ in range(ITERATIONS):
            y = z @ rotation
            self.objective.append(float(np.abs(y).sum(dtype=np.float64)))
            u, _, vt = np.linalg.svd(z.T @ np.where(y >= 0, np.float32(1), np.float32(-1)))
            rotation = u @ vt
        self.objective.append(float(np.abs(z @ rotation).sum(dtype=np.float64)))
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
