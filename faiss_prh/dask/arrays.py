"""Training from Dask arrays, and encoding them."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import dask
import dask.array as da
import numpy as np

from .._common.numbers import bytes_of
from .._common.types import AnyArray, Codes, Floats
from ..learning.moments import MAX_COVARIANCE
from ..learning.sampling import Sample
from ..learning.train import sample_rows
from ..transform import PRHTransform

_BRANCHES = 8  # parts merged at once in each node of the tree


def train(prh: PRHTransform, x: da.Array, *, max_train_bytes: int = 1 << 30) -> None:
    """
    Train a transform from a Dask array.

    Up to 4096 dimensions it learns from the exact moments of all vectors, as `faiss_prh.PRHTransform.partial_train`
    and ``merge`` do, which are summed as a tree. Beyond, it learns from a uniform sample.

    Parameters
    ----------
    prh : PRHTransform
    x : dask.array.Array of shape (m, d)
    max_train_bytes : int, optional
        Memory for the sample, beyond 4096 dimensions.

    Examples
    --------
    >>> import dask.array as da, numpy as np
    >>> from faiss_prh import PRHTransform
    >>> import faiss_prh.dask
    >>> x = np.random.default_rng(0).normal(size=(1000, 32)).astype("float32")
    >>> prh, alone = PRHTransform(32, 16), PRHTransform(32, 16)
    >>> faiss_prh.dask.train(prh, da.from_array(x, chunks=(300, 32)))
    >>> alone.train(x)
    >>> prh.rotation == alone.rotation
    True
    """
    x = in_rows(x, prh.d_in)
    if prh.d_in > MAX_COVARIANCE:
        prh.train(sample(x, max_train_bytes, prh.parameters.seed), max_train_bytes=max_train_bytes)
        return
    like = dask.delayed(prh.to_bytes())
    gathered = _tree(x, lambda block, first: dask.delayed(_gathered)(like, block, first))
    gathered.finish_training()
    prh._set(gathered._trained())


def sample(x: da.Array, n_bytes: int, seed: int = 0) -> Floats:
    """
    Return a uniform sample of the vectors in a Dask array, as many as fit into the given memory.

    Parameters
    ----------
    x : dask.array.Array of shape (m, d)
    n_bytes : int
        Memory for the sample, in single precision.
    seed : int, optional
        Seed of the sample.

    Examples
    --------
    >>> import dask.array as da
    >>> import faiss_prh.dask
    >>> faiss_prh.dask.sample(da.ones((1000, 8), chunks=(100, 8)), 3200).shape
    (100, 8)
    """
    x = in_rows(x)
    size = sample_rows(n_bytes, x.shape[1])
    merged: Sample = _tree(x, lambda block, first: dask.delayed(_sampled)(block, size, seed, first))
    return merged.vectors()


def encode(prh: PRHTransform, x: da.Array) -> da.Array:
    """
    Return the codes of a Dask array, lazily.

    Parameters
    ----------
    prh : PRHTransform
    x : dask.array.Array of shape (m, d)

    Returns
    -------
    dask.array.Array of uint8, shape (m, ⌈d_out / 8⌉)

    Examples
    --------
    >>> import dask.array as da
    >>> from faiss_prh import PRHTransform
    >>> import faiss_prh.dask
    >>> faiss_prh.dask.encode(PRHTransform.random(32), da.ones((1000, 32), chunks=(100, 32))).shape
    (1000, 4)
    """
    if not prh.is_trained:
        raise RuntimeError("this PRHTransform is not trained: call train first")
    x = in_rows(x, prh.d_in)
    n_bytes = bytes_of(prh.d_out)
    shared = dask.delayed(PRHTransform.from_bytes)(prh.to_bytes(), pure=True)  # once per worker, not per block
    return x.map_blocks(_encoded, shared, dtype=np.uint8, chunks=(x.chunks[0], (n_bytes,)), meta=np.empty((0, 0), "u1"))


def in_rows(x: Any, d: int | None = None) -> da.Array:
    """Return a Dask array of vectors as blocks of whole rows whose numbers of rows are known."""
    if not isinstance(x, da.Array):
        raise TypeError(f"a dask.array.Array is needed, not {type(x).__name__}")
    if x.ndim != 2 or (d is not None and x.shape[1] != d):
        raise ValueError(f"the array must have shape (m, {'d' if d is None else d}), not {x.shape}")
    if np.isnan(x.shape[0]):
        x = x.compute_chunk_sizes()
    return x.rechunk({1: -1})


def _tree(x: da.Array, leaf: Callable[[Any, int], Any]) -> Any:
    """Make a leaf of each block and the number of its first row, and merge the leaves as a tree."""
    firsts = np.cumsum([0, *x.chunks[0]])[:-1].tolist()
    level = [leaf(block, first) for block, first in zip(x.to_delayed().ravel(), firsts, strict=True)]
    while len(level) > 1:
        level = [dask.delayed(_merged)(*level[i : i + _BRANCHES]) for i in range(0, len(level), _BRANCHES)]
    return level[0].compute()


def _gathered(like: bytes, block: AnyArray, first: int) -> PRHTransform:
    prh = PRHTransform.from_bytes(like)
    try:
        prh.partial_train(block)
    except ValueError as error:
        raise ValueError(f"{error} (in the block that begins with row {first})") from error
    return prh


def _sampled(block: AnyArray, size: int, seed: int, first: int) -> Sample:
    made = Sample(block.shape[1], size, seed, first)
    made.update(block)
    return made


def _merged(*parts: Any) -> Any:
    total = copy.deepcopy(parts[0])  # a task must not change its inputs: they may be used again
    for part in parts[1:]:
        total.merge(part)
    return total


def _encoded(block: AnyArray, prh: PRHTransform) -> Codes:
    return prh.encode(block)
