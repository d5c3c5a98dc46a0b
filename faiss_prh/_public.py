"""The public names of the package, which `faiss_prh` gives out on first use."""

from .config import show_config
from .index.asymmetric import IndexBinaryAsymmetric
from .index.factory import index_factory
from .index.parameters import SearchParametersIVFSigns
from .index.pretransform import IndexBinaryPreTransform
from .index.refine import IndexBinaryRefine
from .index.signs import IndexIVFSigns
from .index.signs_refine import IndexIVFSignsRefine
from .learning.parameters import Parameters
from .patch import install, uninstall
from .rotation import PairwiseRotation
from .storage.files import clone_index, deserialize_index, read_index, serialize_index, write_index
from .storage.stock import to_faiss
from .transform import PRHTransform

__all__ = [
    "IndexBinaryAsymmetric",
    "IndexBinaryPreTransform",
    "IndexBinaryRefine",
    "IndexIVFSigns",
    "IndexIVFSignsRefine",
    "PRHTransform",
    "PairwiseRotation",
    "Parameters",
    "SearchParametersIVFSigns",
    "clone_index",
    "deserialize_index",
    "index_factory",
    "install",
    "read_index",
    "serialize_index",
    "show_config",
    "to_faiss",
    "uninstall",
    "write_index",
]
