"""Pairwise Rotation Hashing for Faiss."""

from .asymmetric import IndexBinaryAsymmetric
from .factory import index_factory
from .index import IndexBinaryPreTransform
from .learning import Parameters
from .refine import IndexBinaryRefine
from .rotation import PairwiseRotation
from .transform import PRHTransform

__all__ = [
    "IndexBinaryAsymmetric",
    "IndexBinaryPreTransform",
    "IndexBinaryRefine",
    "PRHTransform",
    "PairwiseRotation",
    "Parameters",
    "index_factory",
]
