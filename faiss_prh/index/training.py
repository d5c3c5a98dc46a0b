"""Training as one transaction: if any part of it fails, everything is as untrained as it was."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import faiss

from .binary_ops import storage_of

WayBack = Callable[[], None]


@contextlib.contextmanager
def all_or_nothing(ways_back: Iterable[WayBack]) -> Iterator[None]:
    """Go all the ways back if the block fails."""
    try:
        yield
    except BaseException:
        for go_back in ways_back:
            go_back()
        raise


def way_back(part: Any) -> WayBack:
    """Return what makes a transform or an index untrained again, if it is untrained now, for the next time anew."""
    if part.is_trained:
        return lambda: None
    if isinstance(part, faiss.VectorTransform):
        return _way_back_of_transform(part)
    if isinstance(part, faiss.IndexBinary):
        return _way_back_of_binary(faiss.downcast_IndexBinary(part))
    return lambda: setattr(part, "is_trained", False)


def _way_back_of_transform(transform: Any) -> WayBack:
    # Faiss adds to the means of ITQ and centring that are there, and begins OPQ with the matrix that is there.
    arrays = [getattr(transform, name, None) for name in ("A", "b", "mean")]
    vectors = [array for array in arrays if isinstance(array, faiss.Float32Vector)]
    contents = [faiss.vector_to_array(vector) for vector in vectors]

    def go_back() -> None:
        transform.is_trained = False
        for vector, content in zip(vectors, contents, strict=True):
            faiss.copy_array_to_vector(content, vector)

    return go_back


def _way_back_of_binary(index: Any) -> WayBack:
    if isinstance(index, faiss.IndexBinaryIDMap):
        inside = [way_back(index.index)]
    elif isinstance(index, (faiss.IndexBinaryShards, faiss.IndexBinaryReplicas)):
        inside = [way_back(index.at(number)) for number in range(index.count())]
    elif isinstance(index, faiss.IndexBinaryIVF):
        inside = [_way_back_of_quantizer(faiss.downcast_IndexBinary(index.quantizer))]
    else:
        inside = []

    def go_back() -> None:
        for go_back_inside in inside:
            go_back_inside()
        index.is_trained = False

    return go_back


def _way_back_of_quantizer(quantizer: Any) -> WayBack:
    flat = storage_of(quantizer)
    codes = flat.reconstruct_n(0, flat.ntotal) if flat is not None and flat.ntotal else None

    def go_back() -> None:
        quantizer.reset()
        if codes is not None:
            quantizer.add(codes)

    return go_back
