"""The transforms in front of a binary index: in turn, to signs, and back."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import faiss
import numpy as np

from .._common.arrays import first_unusable_row, float32_blocks, packed_signs, unusable
from .._common.numbers import bytes_of
from .._common.types import Codes, Floats, Vectors
from ..transform import PRHTransform, as_prh

_AFFINE = tuple(
    getattr(faiss, name)
    for name in ("LinearTransform", "CenteringTransform", "RemapDimensionsTransform", "HadamardRotation")
    if hasattr(faiss, name)  # Faiss 1.8 does not have all
)


def checked_chain(transforms: Any) -> list[Any]:
    """Return a transform, or several that fit together, as a list."""
    if isinstance(transforms, faiss.VectorTransform):
        return [transforms]
    if not isinstance(transforms, Iterable):
        raise TypeError(f"transforms must be faiss.VectorTransform, not {type(transforms).__name__}")
    chain = list(transforms)
    if not chain:
        raise ValueError("at least one transform is needed in front of a binary index")
    for transform in chain:
        if not isinstance(transform, faiss.VectorTransform):
            raise TypeError(f"transforms must be faiss.VectorTransform, not {type(transform).__name__}")
    for before, after in itertools.pairwise(chain):
        if before.d_out != after.d_in:
            raise ValueError(f"a transform to {before.d_out} dimensions stands before one from {after.d_in}")
    return chain


def before_last(chain: Sequence[Any], vectors: Vectors) -> Iterator[tuple[slice, Floats]]:
    """Yield vectors, block by block, as all transforms but the last leave them, and which ones they are."""
    first = 0
    for block in float32_blocks(vectors):
        bad = first_unusable_row(block)
        if bad is not None:
            raise unusable(block[bad], f"vector {first + bad}")
        for transform in chain[:-1]:
            block = transform.apply(block)
        yield slice(first, first + len(block)), block
        first += len(block)


def apply(chain: Sequence[Any], vectors: Vectors) -> Floats:
    """Return what the transforms make of vectors."""
    z = np.empty((len(vectors), chain[-1].d_out), dtype=np.float32)
    for part, block in before_last(chain, vectors):
        z[part] = chain[-1].apply(block)
    return z


def train(chain: Sequence[Any], vectors: Vectors) -> None:
    """Train what is untrained, each transform on what those before it make of the vectors."""
    transformed = vectors
    for number, transform in enumerate(chain):
        if not transform.is_trained:
            transform.train(transformed)
        if not all(later.is_trained for later in chain[number + 1 :]):
            transformed = transform.apply(transformed)


def is_affine(chain: Sequence[Any]) -> bool:
    """Whether the transforms are a matrix and an offset, or these behind a normalisation: ITQ is not."""
    transforms = [as_prh(one) or faiss.downcast_VectorTransform(one) for one in chain]
    if isinstance(transforms[0], faiss.NormalizationTransform):  # which leaves zero where it is
        del transforms[0]
    return all(isinstance(one, (PRHTransform, *_AFFINE)) for one in transforms)


def check_affine(chain: Sequence[Any]) -> None:
    """Raise an error if inner products cannot be estimated behind the transforms."""
    if not is_affine(chain):
        names = ", ".join(type(transform).__name__ for transform in chain)
        raise ValueError(f"inner products cannot be estimated behind {names}: only behind linear transforms")


def is_isometric(chain: Sequence[Any]) -> bool:
    """Whether the transforms leave distances as they are, or make them shorter by dropping dimensions."""
    for one in chain:  # a single query would wait for a generator
        if not isinstance(one, PRHTransform) and not _is_orthonormal(faiss.downcast_VectorTransform(one)):
            return False
    return True


def _is_orthonormal(transform: Any) -> bool:
    if isinstance(transform, faiss.LinearTransform):
        return bool(transform.is_orthonormal)
    return isinstance(transform, (faiss.CenteringTransform, faiss.RemapDimensionsTransform))


def offset(chain: Sequence[Any]) -> Floats:
    """Return what the transforms make of zero: what affine ones add to the product with their matrix."""
    zero: Floats = apply(chain, np.zeros((1, chain[0].d_in), dtype=np.float32))[0]
    return zero


def product_codes(z: Floats, offset: Floats) -> Codes:
    """
    Return the codes of queries for inner products, from what affine transforms make of them.

    Centring the base vectors changes all inner products with a query alike. So the query need not be centred, and on
    some data must not be: ⟨Aq, Ax + b⟩ = ⟨q, x⟩ + ⟨Aq, b⟩. But where vectors are equally long, the largest products are
    the nearest vectors, which two centred codes find best. Halfway is a compromise between the two, and not the best on
    every data set; docs/performance.md says how it was chosen.
    """
    return packed_signs(z - offset * np.float32(0.5))


def encode(chain: Sequence[Any], vectors: Vectors) -> Codes:
    """Return the signs of what the transforms make of vectors, which have as many values as the first one takes."""
    last = chain[-1]
    if len(chain) == 1 and isinstance(last, PRHTransform):
        return last._encode(vectors)
    codes = np.empty((len(vectors), bytes_of(last.d_out)), dtype=np.uint8)
    for part, block in before_last(chain, vectors):
        codes[part] = last.encode(block) if isinstance(last, PRHTransform) else packed_signs(last.apply(block))
    return codes


def encode_with_norms(chain: Sequence[Any], vectors: Vectors) -> tuple[Codes, Floats]:
    """Return the signs and the norms of what the transforms make of vectors."""
    last = chain[-1]
    if len(chain) == 1 and isinstance(last, PRHTransform):
        return last._encode_with_norms(vectors)
    codes = np.empty((len(vectors), bytes_of(last.d_out)), dtype=np.uint8)
    norms = np.empty(len(vectors), dtype=np.float32)
    for part, block in before_last(chain, vectors):
        if isinstance(last, PRHTransform):
            codes[part], norms[part] = last._encode_with_norms(block)
        else:
            z = last.apply(block)
            codes[part], norms[part] = packed_signs(z), np.linalg.norm(z, axis=1)
    return codes, norms


def signs(codes: Codes, d: int) -> Floats:
    """
    Return the first d bits of codes as ±1.

    Examples
    --------
    >>> import numpy as np
    >>> signs(np.array([[5]], dtype=np.uint8), 4)
    array([[ 1., -1.,  1., -1.]], dtype=float32)
    """
    bits = np.unpackbits(codes, axis=1, count=d, bitorder="little")
    return bits.astype(np.float32) * 2 - 1


def reverse(chain: Sequence[Any], z: Floats) -> Floats:
    """Return vectors from what the transforms made of them; what was dropped does not come back."""
    for transform in reversed(chain):
        try:
            z = transform.reverse_transform(z)
        except RuntimeError:
            kind = type(faiss.downcast_VectorTransform(transform)).__name__
            raise RuntimeError(
                f"{kind} cannot be reversed, so that codes do not become vectors again: "
                "codes themselves come from reconstruct_code, reconstruct_codes and search_and_return_codes"
            ) from None
    return z
