"""The interface of a rival, and what most of them share: a mean, a matrix and signs."""

from typing import Protocol

import numpy as np


class Encoder(Protocol):
    """Learns from vectors, then makes codes of `bits` bits, packed as in Faiss."""

    bits: int
    is_random: bool

    def train(self, x: np.ndarray) -> None: ...

    def encode(self, x: np.ndarray) -> np.ndarray: ...


def packed_signs(y: np.ndarray) -> np.ndarray:
    return np.packbits(y >= 0, axis=1, bitorder="little")


class Linear:
    """Signs of the centred vectors times a matrix that `learn` returns."""

    is_random = True

    def __init__(self, bits: int, seed: int = 0) -> None:
        self.bits = bits
        self.seed = seed

    def train(self, x: np.ndarray) -> None:
        self.mean = x.mean(axis=0)
        self.matrix = self.learn(x - self.mean).astype(np.float32)

    def learn(self, x: np.ndarray) -> np.ndarray:
        """Return the matrix (d, bits) for centred vectors."""
        raise NotImplementedError

    def project(self, x: np.ndarray) -> np.ndarray:
        return (x - self.mean) @ self.matrix

    def encode(self, x: np.ndarray) -> np.ndarray:
        return packed_signs(self.project(x))


def principal_axes(x: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the variances along the first principal axes of centred vectors, and the axes as columns."""
    variances, axes = np.linalg.eigh(np.cov(x, rowvar=False, bias=True).reshape(x.shape[1], x.shape[1]))
    return variances[::-1][:count], axes[:, ::-1][:, :count]


def random_orthogonal(n: int, rng: np.random.Generator) -> np.ndarray:
    q, r = np.linalg.qr(rng.normal(size=(n, n)))
    return q * np.sign(np.diag(r))
