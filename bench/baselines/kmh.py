"""
K-means hashing (He, Wen and Sun 2013): codewords in small subspaces whose distances follow their indices' Hamming ones.

In each subspace of b bits, 2^b codewords minimise the quantisation error plus λ times the affinity error: the
squared difference, over pairs of codewords, of their distance and s·√(Hamming distance of their indices).
"""

import numpy as np
from scipy.optimize import minimize

from bench.baselines.encoder import principal_axes

ITERATIONS = 50
AFFINITY_WEIGHT = 10.0
SUBSPACE_BITS = 4


class KMH:
    is_random = False

    def __init__(self, bits: int, iterations: int = ITERATIONS) -> None:
        if bits % SUBSPACE_BITS:
            raise ValueError(f"KMH makes {SUBSPACE_BITS} bits a subspace: {bits} is no multiple of 4")
        self.bits = bits
        self.iterations = iterations

    def train(self, x: np.ndarray) -> None:
        self.mean = x.mean(axis=0)
        n_subspaces = self.bits // SUBSPACE_BITS
        size = x.shape[1] // n_subspaces
        variances, axes = principal_axes(x - self.mean, n_subspaces * size)
        self.axes = axes[:, _balanced(variances, n_subspaces)].astype(np.float32)
        parts = np.split((x - self.mean) @ self.axes, n_subspaces, axis=1)
        self.subspaces = [_Subspace(part, self.iterations) for part in parts]

    @property
    def objective(self) -> np.ndarray:
        """What is minimised, all subspaces together, after each iteration."""
        return np.sum([subspace.objective for subspace in self.subspaces], axis=0)

    def encode(self, x: np.ndarray) -> np.ndarray:
        parts = np.split((x - self.mean) @ self.axes, len(self.subspaces), axis=1)
        indices = [subspace.assign(part) for subspace, part in zip(self.subspaces, parts, strict=True)]
        bits = [index[:, None] >> np.arange(SUBSPACE_BITS) & 1 for index in indices]
        return np.packbits(np.concatenate(bits, axis=1).astype(bool), axis=1, bitorder="little")


def _balanced(variances: np.ndarray, n_subspaces: int) -> np.ndarray:
    """Return the axes of each subspace in turn: each axis, by variance, goes to the smallest product of variances."""
    members: list[list[int]] = [[] for _ in range(n_subspaces)]
    logs, size = np.zeros(n_subspaces), len(variances) // n_subspaces
    for axis, variance in enumerate(np.maximum(variances, 1e-12 * variances.max())):
        open_ones = [number for number, member in enumerate(members) if len(member) < size]
        chosen = min(open_ones, key=lambda number: logs[number])
        members[chosen].append(axis)
        logs[chosen] += np.log(variance / variances.max() * 1e12)
    return np.concatenate(members).astype(int)


class _Subspace:
    """2^b codewords; the index of each is its binary code."""

    def __init__(self, x: np.ndarray, iterations: int) -> None:
        n_codewords = 1 << SUBSPACE_BITS
        indices = np.arange(n_codewords)
        bits = indices[:, None] >> np.arange(SUBSPACE_BITS) & 1
        self._roots = np.sqrt((bits[:, None] != bits[None]).sum(axis=2))
        # PCA hashing to begin with: the corners of a box, along the axes of the largest variance.
        self.codewords = np.zeros((n_codewords, x.shape[1]))
        used = min(SUBSPACE_BITS, x.shape[1])
        self.codewords[:, :used] = (2 * bits[:, :used] - 1) * x.std(axis=0)[:used]
        distances = np.linalg.norm(self.codewords[:, None] - self.codewords[None], axis=2)
        self._scale = (distances * self._roots).sum() / (self._roots**2).sum()
        self.objective = []
        for _ in range(iterations):
            assigned = self.assign(x)
            counts = np.bincount(assigned, minlength=n_codewords)
            sums = np.stack([np.bincount(assigned, x[:, k], n_codewords) for k in range(x.shape[1])], axis=1)
            squares = float((x.astype(np.float64) ** 2).sum())
            found = minimize(
                self._error, self.codewords.ravel(), (counts, sums, squares, len(x)), "L-BFGS-B", jac=True,
                options={"maxiter": 20},
            )  # fmt: skip
            self.codewords = found.x.reshape(self.codewords.shape)
            self.objective.append(float(found.fun))

    def assign(self, x: np.ndarray) -> np.ndarray:
        """Return the index of the nearest codeword of each vector."""
        codewords = self.codewords.astype(x.dtype)
        return np.argmin((codewords**2).sum(axis=1) - 2 * x @ codewords.T, axis=1)

    def _error(
        self, flat: np.ndarray, counts: np.ndarray, sums: np.ndarray, squares: float, n: int
    ) -> tuple[float, np.ndarray]:
        """Return the objective at given codewords, and its gradient."""
        c = flat.reshape(self.codewords.shape)
        quantisation = (squares - 2 * (c * sums).sum() + (counts * (c**2).sum(axis=1)).sum()) / n
        gradient = 2 * (counts[:, None] * c - sums) / n
        weights = np.outer(counts, counts) / n**2
        differences = c[:, None] - c[None]
        distances = np.linalg.norm(differences, axis=2)
        off = distances - self._scale * self._roots
        with np.errstate(invalid="ignore", divide="ignore"):
            directions = np.where(distances[..., None] > 0, differences / distances[..., None], 0)
        gradient += AFFINITY_WEIGHT * 4 * ((weights * off)[..., None] * directions).sum(axis=1)
        return quantisation + AFFINITY_WEIGHT * float((weights * off**2).sum()), gradient.ravel()
