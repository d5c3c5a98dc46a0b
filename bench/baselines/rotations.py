"""Rotations that learn nothing but a mean: sparse random (SRR), dense random (RR) and Hadamard."""

import faiss
import numpy as np

from bench.baselines.encoder import packed_signs
from faiss_prh import PRHTransform


class Rotated:
    """The signs of centred vectors after a transform that needs no training."""

    is_random = True

    def __init__(self, transform: faiss.VectorTransform) -> None:
        self.transform = transform
        self.bits = transform.d_out

    def train(self, x: np.ndarray) -> None:
        self.mean = x.mean(axis=0)

    def encode(self, x: np.ndarray) -> np.ndarray:
        return packed_signs(self.transform.apply(x - self.mean))


def srr(d: int, seed: int = 0) -> Rotated:
    """Random pairs, random angles: PRH untrained."""
    return Rotated(PRHTransform.random(d, seed=seed))


def rr(d: int, seed: int = 0) -> Rotated:
    """Faiss's random rotation."""
    rotation = faiss.RandomRotationMatrix(d, d)
    rotation.init(seed)
    return Rotated(rotation)


def has_hadamard() -> bool:
    """Return whether this Faiss has a Hadamard rotation: from 1.12 on."""
    return hasattr(faiss, "HadamardRotation")


def hadamard(d: int, seed: int = 0) -> Rotated:
    """Faiss's Hadamard rotation, whose number of bits is the next power of two."""
    return Rotated(faiss.HadamardRotation(d, seed))
