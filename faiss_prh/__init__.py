"""Pairwise Rotation Hashing for Faiss."""

from .factory import index_factory
from .index import IndexBinaryPreTransform
from .learning import Parameters
from .rotation import PairwiseRotation
from .transform import PRHTransform

__all__ = ["IndexBinaryPreTransform", "PRHTransform", "PairwiseRotation", "Parameters", "index_factory"]
