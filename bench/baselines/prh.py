"""PRH as an `Encoder`, and PCA in front of encoders that keep the dimension."""

import faiss
import numpy as np

from bench.baselines.encoder import Encoder
from faiss_prh import PRHTransform


class PRH(PRHTransform):
    """PRH(n_iso, n_pca, tilt): the paper's settings."""

    @property
    def bits(self) -> int:
        return self.d_out

    @property
    def is_random(self) -> bool:
        return self.parameters.n_pca > 0 or self.parameters.tune


class Reduced:
    """The first `kept` principal components, then another encoder."""

    def __init__(self, d: int, kept: int, encoder: Encoder) -> None:
        self.encoder = encoder
        self.bits = encoder.bits
        self.is_random = encoder.is_random
        self.d, self.kept = d, kept

    def train(self, x: np.ndarray) -> None:
        self.pca = faiss.PCAMatrix(self.d, self.kept)
        self.pca.train(x)
        self.encoder.train(self.pca.apply(x))

    def encode(self, x: np.ndarray) -> np.ndarray:
        return self.encoder.encode(self.pca.apply(x))
