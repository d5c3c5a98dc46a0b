"""Bilinear projection-based binary codes (Gong, Kumar, Rowley and Lazebnik 2013): a folded vector, rotated twice."""

import numpy as np

from bench.baselines.encoder import packed_signs, random_orthogonal

ITERATIONS = 50
BLOCK = 500


class BPBC:
    """A vector folded into a d1 × d2 matrix X, and the signs of R1ᵀ X R2; R1 and R2 learned in turn."""

    is_random = True

    def __init__(self, d: int, d1: int = 128, seed: int = 0, iterations: int = ITERATIONS) -> None:
        if d % d1:
            raise ValueError(f"BPBC folds vectors into rows of d / {d1}: {d} dimensions are no multiple of {d1}")
        self.bits = d
        self.shape = (d1, d // d1)
        self.seed = seed
        self.iterations = iterations

    def train(self, x: np.ndarray) -> None:
        self.mean = x.mean(axis=0)
        folded = (x - self.mean).reshape(-1, *self.shape)
        rng = np.random.default_rng(self.seed)
        self.left, self.right = (random_orthogonal(n, rng).astype(np.float32) for n in self.shape)
        self.objective = []  # the sum of |values|
        for _ in range(self.iterations):
            self.left, total = _best_left(folded, self.left, self.right)
            self.objective.append(total)
            transposed = folded.transpose(0, 2, 1)
            self.right, total = _best_left(transposed, self.right, self.left)
            self.objective.append(total)
        self.objective.append(float(np.abs(self.project(x)).sum(dtype=np.float64)))

    def project(self, x: np.ndarray) -> np.ndarray:
        folded = ((x - self.mean).reshape(-1, self.shape[1]) @ self.right).reshape(len(x), *self.shape)
        return (self.left.T @ folded).reshape(len(x), self.bits)

    def encode(self, x: np.ndarray) -> np.ndarray:
        return packed_signs(self.project(x))


def _best_left(folded: np.ndarray, left: np.ndarray, right: np.ndarray) -> tuple[np.ndarray, float]:
    """Return the rotation that brings X R2 nearest to its present signs, and the objective before."""
    products, total = np.zeros((len(left), len(left))), 0.0
    for first in range(0, len(folded), BLOCK):
        half = folded[first : first + BLOCK] @ right
        y = left.T @ half
        total += float(np.abs(y).sum(dtype=np.float64))
        signs = np.where(y >= 0, np.float32(1), np.float32(-1))
        products += half.transpose(1, 0, 2).reshape(len(left), -1) @ signs.transpose(1, 0, 2).reshape(len(left), -1).T
    u, _, vt = np.linalg.svd(products)
    return (u @ vt).astype(np.float32), total
