"""Any index as a tree of records: those of this package, and Faiss's indexes of indexes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import faiss

from .._common.arrays import LARGEST_NORM
from ..index.asymmetric import IndexBinaryAsymmetric, Scales, bytes_beside
from ..index.composites import Composite, put_together, taken_apart
from ..index.pretransform import IndexBinaryPreTransform
from ..index.refine import IndexBinaryRefine
from ..index.reranking import ReRanked
from ..index.signs import IndexIVFSigns
from .binary import BINARY_INDEXES, BINARY_READERS, write_binary
from .limits import Flaw
from .records import Fields, RecordReader, RecordWriter
from .signs import SIGNS, SIGNS_READERS, check_rows, write_signs
from .stores import STORE_READERS, STORES, write_store
from .transforms import TRANSFORM_READERS, read_chain, write_transform

_OURS = ("IndexBinaryPreTransform", "IndexBinaryRefine", "IndexBinaryAsymmetric")
_FLOAT_INDEXES = ("IndexPreTransform", "IndexIDMap", "IndexIDMap2", "IndexRefine", "faiss.Index")
INDEXES = (*_OURS, *SIGNS, *_FLOAT_INDEXES, *BINARY_INDEXES)


def write_thing(out: RecordWriter, thing: Any) -> None:
    """Write the records of an index or a transform."""
    if isinstance(thing, IndexIVFSigns):
        write_signs(out, thing)
    elif isinstance(thing, IndexBinaryPreTransform):
        _write_ours(out, thing)
    elif isinstance(thing, faiss.VectorTransform):
        write_transform(out, thing)
    elif isinstance(thing, faiss.IndexBinary):
        write_binary(out, thing)
    elif isinstance(thing, faiss.Index):
        _write_float(out, thing)
    else:
        raise TypeError(f"an index is needed, not {type(thing).__name__}")


def _write_ours(out: RecordWriter, index: IndexBinaryPreTransform) -> None:
    fields: dict[str, Any] = {"n_transforms": len(index.chain)}
    if isinstance(index, ReRanked):
        fields |= {"k_factor": index.k_factor, "own_id_map": index._has_own_id_map}
        check_rows(index)
    if isinstance(index, IndexBinaryAsymmetric):
        scale = index._scale or Scales(1.0, 0.0, 0.0)
        _check_scale(scale)
        fields |= {"metric": index.metric_type, "has_scale": index._scale is not None, **scale._asdict()}
    out.record(type(index).__name__, **fields)
    for transform in index.chain:
        out.write(transform)
    out.write(index._keyed)
    if isinstance(index, IndexBinaryRefine):
        write_store(out, index.refine_index)
    elif isinstance(index, IndexBinaryAsymmetric) and index.ntotal:
        out.array(index._bytes_beside.ravel(), "u1")


def _read_ours(source: RecordReader, kind: str, fields: Fields) -> Any:
    chain = read_chain(source, fields)
    keyed = source.read(BINARY_INDEXES)
    if kind == "IndexBinaryPreTransform":
        return IndexBinaryPreTransform(chain, keyed)
    if kind == "IndexBinaryRefine":
        store = source.read(STORES)
        return IndexBinaryRefine._restored(chain, keyed, store, fields["k_factor"], fields["own_id_map"])
    size = bytes_beside(fields["metric"])
    beside = faiss.IndexBinaryFlat(8 * size)
    for block in source.rows(keyed.ntotal, size):
        beside.add(block)
    index = IndexBinaryAsymmetric._restored(chain, keyed, beside, fields["k_factor"], fields["own_id_map"])
    scale = Scales(*(fields[name] for name in Scales._fields))
    _check_scale(scale)
    index._scale = scale if fields["has_scale"] else None
    return index


def _check_scale(scale: Scales) -> None:
    if scale.low <= 0 or math.log(scale.low) + 255 * scale.step > math.log(2 * LARGEST_NORM):
        raise Flaw(f"{scale}, which stands for norms that cannot be")
    if max(-scale.least, scale.least + 255 * scale.width) > 2 * LARGEST_NORM**2:
        raise Flaw(f"{scale}, which stands for products that cannot be")


def _write_float(out: RecordWriter, index: Any) -> None:
    composite = taken_apart(index)
    if composite is None:
        index = faiss.downcast_index(index)
        before = list(_sizes(index))
        out.record("faiss.Index", **{"class": type(index).__name__})
        out.faiss_bytes(faiss.write_index, index)
        if list(_sizes(index)) != before:
            raise Flaw("it changed meanwhile")
    elif composite.kind == "IndexPreTransform":
        out.record(composite.kind, n_transforms=len(composite.transforms))
        for transform in composite.transforms:
            out.write(transform)
        out.write(composite.inside)
    elif composite.ids is not None:
        out.record(composite.kind, ntotal=len(composite.ids))
        out.array(composite.ids, "<i8")
        out.write(composite.inside)
    else:
        out.record(composite.kind, k_factor=composite.k_factor)
        out.write(composite.inside)
        out.write(composite.store)


def _sizes(index: Any) -> Iterator[int]:
    """Yield how much a float index holds, so that what another thread adds meanwhile is seen."""
    index = faiss.downcast_index(index)
    yield index.ntotal
    if isinstance(index, faiss.IndexFlatCodes):
        yield index.codes.size()
        if index.codes.size() != index.ntotal * index.code_size:
            raise Flaw("another thread is adding to it")
    if hasattr(index, "invlists"):
        yield index.invlists.compute_ntotal()
    if hasattr(index, "storage"):
        yield from _sizes(index.storage)
    composite = taken_apart(index)
    for part in (composite.inside, composite.store) if composite else ():
        if part is not None:
            yield from _sizes(part)


def _read_pre_transform(source: RecordReader, kind: str, fields: Fields) -> Any:
    chain = read_chain(source, fields)
    return put_together(Composite(kind, source.read(_FLOAT_INDEXES), transforms=chain))


def _read_id_map(source: RecordReader, kind: str, fields: Fields) -> Any:
    ids = source.array("<i8", fields["ntotal"])
    inside = source.read(_FLOAT_INDEXES)
    if inside.ntotal != len(ids):
        raise Flaw(f"{len(ids)} ids for {inside.ntotal} vectors")
    return put_together(Composite(kind, inside, ids=ids))


def _read_refine(source: RecordReader, kind: str, fields: Fields) -> Any:
    base, store = source.read(_FLOAT_INDEXES), source.read(_FLOAT_INDEXES)
    if (base.d, base.ntotal) != (store.d, store.ntotal):
        raise Flaw("an IndexRefine of two indexes that do not fit together")
    return put_together(Composite(kind, base, store=store, k_factor=fields["k_factor"]))


def _read_faiss(source: RecordReader, kind: str, fields: Fields) -> Any:
    index = source.faiss_bytes(faiss.read_index, fields["class"])
    # Faiss reads an IndexFlat back as an IndexFlatL2, which it then does not merge with the other.
    if fields["class"] == "IndexFlat" and type(index) is not faiss.IndexFlat and isinstance(index, faiss.IndexFlat):
        plain = faiss.IndexFlat(index.d, index.metric_type)
        plain.metric_arg = index.metric_arg
        plain.add(index.reconstruct_n(0, index.ntotal))
        return plain
    return index


READERS: dict[str, Callable[[RecordReader, str, Fields], Any]] = {
    **dict.fromkeys(_OURS, _read_ours),
    "IndexPreTransform": _read_pre_transform,
    "IndexIDMap": _read_id_map,
    "IndexIDMap2": _read_id_map,
    "IndexRefine": _read_refine,
    "faiss.Index": _read_faiss,
    **SIGNS_READERS,
    **BINARY_READERS,
    **STORE_READERS,
    **TRANSFORM_READERS,
}
