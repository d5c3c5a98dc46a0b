"""
Training through Faiss's indexes, where their C++ cannot call back into Python.

Faiss's Python classes of indexes that may hold transforms then train those of this package first, and leave the rest to
Faiss. They take none without a matrix, which Faiss could not run, and would write as if it were trained.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Iterable
from typing import Any

import faiss
import numpy as np

from .._common.types import Floats

_ours: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
"""By address, what has a function `train`, of an address and vectors."""


def register(stock: Any) -> None:
    """Train a transform when Faiss trains an index with it inside."""
    _ours[int(stock.proxy.this)] = stock


def ours(transform: Any) -> Any:
    """Return what was registered for a transform, or None."""
    return _ours.get(int(transform.this))


def _inside(index: Any) -> list[Any]:
    """Return the indexes that an index gives its training vectors to, as they are."""
    if isinstance(index, faiss.IndexIDMap):
        return [index.index]
    if isinstance(index, faiss.IndexRefine):
        return [index.base_index]
    if isinstance(index, (faiss.IndexShards, faiss.IndexReplicas)):
        return [index.at(number) for number in range(index.count())]
    return []


def _chain(index: Any) -> list[Any]:
    """Return the transforms that an index gives its training vectors to, one after the other."""
    if isinstance(index, faiss.IndexPreTransform):
        return [index.chain.at(number) for number in range(index.chain.size())]
    return [index.vt] if isinstance(index, faiss.IndexIVFSpectralHash) else []


def _check_matrices(things: Iterable[Any]) -> None:
    """Raise an error if one of the transforms among some things is ours, and without a matrix."""
    transforms = (thing for thing in things if isinstance(thing, faiss.VectorTransform))
    for stock in filter(None, map(ours, transforms)):
        if not stock.is_linear:
            d_in, d_out = stock.proxy.d_in, stock.proxy.d_out
            raise RuntimeError(
                f"without native code, Faiss needs the dense matrix of PRHTransform({d_in}, {d_out}): make it with "
                f"max_dense_bytes={4 * d_in * d_out} or more, or use it in front of a binary index"
            )


def _with_matrices(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def checked(*arguments: Any) -> Any:
        _check_matrices(arguments)
        return function(*arguments)

    return checked


def _train_ours(index: Any, x: Floats) -> None:
    index = faiss.downcast_index(index)
    for inside in _inside(index):
        _train_ours(inside, x)
    chain = _chain(index)
    _check_matrices(chain)
    untrained = [number for number, one in enumerate(chain) if not one.is_trained and int(one.this) in _ours]
    for number, transform in enumerate(chain[: untrained[-1] + 1] if untrained else ()):
        if number in untrained:
            _train_one(transform, x)
        elif not transform.is_trained:
            transform.train(x)
        if number < untrained[-1]:
            x = transform.apply(x)


def _train_one(transform: Any, x: Floats) -> None:
    address = int(transform.this)
    try:
        _ours[address].train(address, x)
    except BaseException as error:  # as in native code, where it has gone through C++
        raise RuntimeError(f"{type(error).__name__}: {error}") from error


def _training_ours(train: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(train)
    def train_all(self: Any, x: Any, *more: Any, **named: Any) -> None:
        vectors = np.ascontiguousarray(x, dtype=np.float32)
        if vectors.ndim == 2 and vectors.shape[1] == self.d:  # else Faiss has its own error
            _train_ours(self, vectors)
        train(self, x, *more, **named)

    return train_all


def _training_itself(train: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(train)
    def train_it(self: Any, x: Any) -> None:
        if ours(self) is None:
            train(self, x)
        else:
            _train_one(self, np.ascontiguousarray(x, dtype=np.float32))

    return train_it


_INDEXES = (
    "Index", "IndexPreTransform", "IndexIDMap", "IndexIDMap2", "IndexRefine", "IndexRefineFlat", "IndexShards",
    "IndexReplicas", "IndexIVFSpectralHash",
)  # fmt: skip


def install() -> None:
    """Let Faiss's classes train what is registered, and refuse what has no matrix."""
    for owner, name in (
        (faiss.IndexPreTransform, "__init__"), (faiss.IndexPreTransform, "prepend_transform"),
        (faiss, "write_VectorTransform"),
    ):  # fmt: skip
        setattr(owner, name, _with_matrices(getattr(owner, name)))
    for kind in (getattr(faiss, name) for name in _INDEXES):
        kind.train = _training_ours(kind.train)
    for kind in (faiss.VectorTransform, faiss.LinearTransform):
        kind.train = _training_itself(kind.train)
