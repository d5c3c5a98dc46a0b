"""Pairwise Rotation Hashing for Faiss."""

from .asymmetric import IndexBinaryAsymmetric
from .factory import index_factory
from .index import IndexBinaryPreTransform
from .learning import Parameters
from .refine import IndexBinaryRefine
from .rotation import PairwiseRotation
from .stock import to_faiss
from .storage import clone_index, deserialize_index, read_index, serialize_index, write_index
from .transform import PRHTransform

__all__ = [
    "IndexBinaryAsymmetric",
    "IndexBinaryPreTransform",
    "IndexBinaryRefine",
    "PRHTransform",
    "PairwiseRotation",
    "Parameters",
    "clone_index",
    "deserialize_index",
    "index_factory",
    "read_index",
    "serialize_index",
    "to_faiss",
    "write_index",
]
