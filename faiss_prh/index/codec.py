"""Vectors as the codes of a binary index, and codes as vectors."""

from __future__ import annotations

from typing import Any

import faiss
import numpy as np
import numpy.typing as npt

from .._common.arrays import as_vectors
from .._common.numbers import as_int, bytes_of
from .._common.types import Codes, Floats, Ids, Vectors
from . import binary_ops, binary_search, chain
from .arguments import LARGEST_ID, as_ids


class Codec:
    """Transforms and the binary index that keeps the signs of what comes out of them."""

    _vectors_from_codes = True
    """Whether the vectors that come back are made from codes."""

    def __init__(self, transforms: Any, index: Any) -> None:
        transforms = chain.checked_chain(transforms)
        if not isinstance(index, faiss.IndexBinary):
            raise TypeError(f"index must be a faiss.IndexBinary, not {type(index).__name__}")
        d_out = transforms[-1].d_out
        if index.d != 8 * bytes_of(d_out):
            raise ValueError(
                f"transforms to {d_out} dimensions need an index of {8 * bytes_of(d_out)} bits, not {index.d}"
            )
        self.chain = transforms
        self.index = index

    @property
    def d(self) -> int:
        """Dimension of the vectors."""
        return int(self.chain[0].d_in)

    @property
    def ntotal(self) -> int:
        """Number of indexed vectors."""
        return int(self.index.ntotal)

    @property
    def is_trained(self) -> bool:
        """Whether vectors can be added."""
        return bool(self.index.is_trained) and all(transform.is_trained for transform in self.chain)

    def encode(self, x: npt.ArrayLike) -> Codes:
        """Return the codes that the binary index is given for vectors."""
        return chain.encode(self.chain, self._checked(x))

    def sa_code_size(self) -> int:
        """Return how many bytes `sa_encode` makes of a vector: all that is kept of it but its id."""
        return int(self.index.code_size)

    def sa_encode(self, x: npt.ArrayLike) -> Codes:
        """Return all that the index would keep of vectors, as bytes."""
        return self.encode(x)

    def sa_decode(self, codes: npt.ArrayLike) -> Floats:
        """Return the vectors that bytes from `sa_encode` stand for."""
        self._check_transforms_trained()
        return self._from_signs(self._checked_codes(codes))

    def _from_signs(self, codes: Codes, lengths: Floats | float = 1) -> Floats:
        """Return the ±1 of codes, times some lengths, sent back through the transforms."""
        return chain.reverse(self.chain, chain.signs(codes, self.chain[-1].d_out) * np.float32(lengths))

    def reconstruct(self, key: int) -> Floats:
        """Return the vector that is kept under an id, as the description of the class says."""
        vector: Floats = self.reconstruct_batch([_as_id(key, "key")])[0]
        return vector

    def reconstruct_n(self, n0: int = 0, ni: int = -1) -> Floats:
        """Return the vectors of `ni` consecutive ids from `n0` on; -1 means all up to `ntotal`."""
        return self.reconstruct_batch(self._consecutive(n0, ni))

    def reconstruct_batch(self, keys: npt.ArrayLike) -> Floats:
        """Return the vectors that are kept under ids."""
        self._check_transforms_trained()
        rows = binary_ops.rows_of_ids(self._keyed, as_ids(keys, None))
        return self._decoded(rows, self._codes_of(rows) if self._vectors_from_codes else None)

    def reconstruct_code(self, key: int) -> Codes:
        """Return the code stored under an id."""
        code: Codes = self._codes_of(binary_ops.rows_of_ids(self._keyed, as_ids([_as_id(key, "key")], 1)))[0]
        return code

    def reconstruct_codes(self, n0: int = 0, ni: int = -1) -> Codes:
        """Return the codes of `ni` consecutive ids from `n0` on; -1 means all up to `ntotal`."""
        return self._codes_of(binary_ops.rows_of_ids(self._keyed, self._consecutive(n0, ni)))

    def _decoded(self, rows: Ids, codes: Any) -> Floats:
        """Return the vectors kept in rows, whose codes are given if `_vectors_from_codes`."""
        return self._from_signs(codes)

    def _codes_of(self, rows: Ids) -> Codes:
        return binary_search.codes_of_rows(binary_ops.without_id_map(self._keyed)[0], rows)

    def _consecutive(self, n0: int, ni: int) -> Ids:
        n0, ni = _as_id(n0, "n0"), as_int(ni, "ni", -1)
        count = self.ntotal - n0 if ni == -1 else ni
        if not 0 <= count <= self.ntotal:
            raise ValueError(f"n0 = {n0} and ni = {ni}: there are {self.ntotal} vectors")
        return n0 + np.arange(count)

    @property
    def _keyed(self) -> Any:
        """The binary index that knows the caller's ids."""
        return self.index

    def _checked(self, x: npt.ArrayLike) -> Vectors:
        self._check_transforms_trained()
        return as_vectors(x, self.chain[0].d_in, "vectors")

    def _check_transforms_trained(self) -> None:
        for transform in self.chain:
            if not transform.is_trained:
                raise RuntimeError("the transforms are not trained: call train(x) first")

    def _checked_codes(self, codes: npt.ArrayLike) -> Codes:
        array, size = np.asarray(codes), self.sa_code_size()
        if array.dtype != np.uint8 or array.ndim != 2 or array.shape[1] != size:
            raise ValueError(f"codes must be an array of uint8, (n, {size}), not {array.dtype} {array.shape}")
        return np.ascontiguousarray(array)


def _as_id(value: Any, name: str) -> int:
    return as_int(value, name, 0, LARGEST_ID)
