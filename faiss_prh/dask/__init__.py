"""
Training, encoding and searching on a Dask cluster (needs the extra ``dask``).

Everything that a worker holds can be computed again from what the scheduler knows, so a worker may die at any time.
"""

from .arrays import encode, sample, train
from .shards import ShardedIndex

__all__ = ["ShardedIndex", "encode", "sample", "train"]
