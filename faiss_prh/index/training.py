"""Training as one transaction: if any part of it fails, everything is as untrained as it was."""

from __future__ import annotations

import contextlib
import inspect
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
    """Return a function that restores a transform or an index that is untrained now to the state it is in."""
    if part.is_trained:
        return lambda: None
    if isinstance(part, faiss.VectorTransform):
        return _way_back_of_transform(part)
    if isinstance(part, faiss.IndexBinary):
        known = faiss.downcast_IndexBinary(part) if type(part) is faiss.IndexBinary else part
        return _way_back_of_binary(known)
    return lambda: setattr(part, "is_trained", False)


def _way_back_of_transform(transform: Any) -> WayBack:
    """
    Return what gives a transform all its values back.

    Its flag alone would not do: Faiss adds to the means of ITQ and centring that are there, and begins OPQ with the
    matrix that is there.
    """
    names = [name for name, attribute in inspect.getmembers(type(transform)) if isinstance(attribute, property)]
    values = {name: getattr(transform, name) for name in names if name != "thisown"}
    numbers = {name: value for name, value in values.items() if isinstance(value, (bool, int, float))}
    vectors = [value for value in values.values() if isinstance(value, (faiss.Float32Vector, faiss.Float64Vector))]
    contents = [faiss.vector_to_array(vector) for vector in vectors]
    inside = [_way_back_of_transform(value) for value in values.values() if isinstance(value, faiss.VectorTransform)]

    def go_back() -> None:
        for name, number in numbers.items():
            if getattr(transform, name) != number:
                setattr(transform, name, number)
        for vector, content in zip(vectors, contents, strict=True):
            faiss.copy_array_to_vector(content, vector)
        for go_back_inside in inside:
            go_back_inside()

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
