"""Pairwise Rotation Hashing for Faiss."""

from .learning import Parameters
from .rotation import PairwiseRotation
from .transform import PRHTransform

__all__ = ["PRHTransform", "PairwiseRotation", "Parameters"]
