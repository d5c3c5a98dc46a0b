"""
The inside of an index file: a tree of records.

A record is a length (uint32) and JSON with its type and numbers; arrays, Faiss's own bytes and the records of its parts
follow. What Faiss can write, Faiss writes.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable
from typing import Any

import faiss
import numpy as np

from ..index.asymmetric import IndexBinaryAsymmetric, NormScale
from ..index.binary_ops import mend_tables
from ..index.composites import behind, refined, with_ids
from ..index.pretransform import IndexBinaryPreTransform
from ..index.refine import IndexBinaryRefine
from ..index.reranking import ReRanked
from ..transform import PRHTransform, as_prh
from .binary_formats import binary_index
from .checks import check_binary, check_float, check_transform
from .claims import Claims, Walk
from .container import ChunkReader, ChunkWriter
from .float_formats import float_index
from .formats import transform as any_transform

_LENGTH = struct.Struct("<I")
_LARGEST_RECORD = 1 << 16
_DEEPEST = 10
_ON_DISK = b"ilod"  # how Faiss marks inverted lists in a file of their own


class RecordWriter:
    """Writes the records of an index and its parts."""

    def __init__(self, out: ChunkWriter) -> None:
        self._out = out
        self._depth = 0

    def write(self, thing: Any) -> None:
        if self._depth > _DEEPEST:
            raise ValueError(f"an index in more than {_DEEPEST} others is not written")
        self._depth += 1
        self._write(thing)
        self._depth -= 1

    def _write(self, thing: Any) -> None:
        if isinstance(thing, IndexBinaryPreTransform):
            self._write_ours(thing)
        elif isinstance(thing, faiss.VectorTransform):
            self._write_transform(thing)
        elif isinstance(thing, faiss.IndexBinary):
            self._record("faiss.IndexBinary")
            self._faiss(faiss.write_index_binary, thing)
        elif isinstance(thing, faiss.Index):
            self._write_float(faiss.downcast_index(thing))
        else:
            raise TypeError(f"an index is needed, not {type(thing).__name__}")

    def _write_ours(self, index: IndexBinaryPreTransform) -> None:
        fields: dict[str, Any] = {"transforms": len(index.chain)}
        parts = [*index.chain, index._keyed]
        if isinstance(index, ReRanked):
            fields |= {"k_factor": index.k_factor, "own_id_map": index._has_own_id_map}
            parts.append(index._beside)
        if isinstance(index, IndexBinaryAsymmetric):
            fields["scale"] = index._scale
        self._record(type(index).__name__, **fields)
        for part in parts:
            self.write(part)

    def _write_transform(self, transform: Any) -> None:
        prh = as_prh(transform)
        if prh is None:
            self._record("faiss.VectorTransform")
            self._faiss(faiss.write_VectorTransform, transform)
        else:
            data = prh.to_bytes()
            self._record("PRHTransform", size=len(data))
            self._out.write(data)

    def _write_float(self, index: Any) -> None:
        if not _has_prh(index):
            self._record("faiss.Index")
            self._faiss(faiss.write_index, index)
        elif isinstance(index, faiss.IndexPreTransform):
            chain = [index.chain.at(number) for number in range(index.chain.size())]
            self._record("IndexPreTransform", transforms=len(chain))
            for part in (*chain, index.index):
                self.write(part)
        elif isinstance(index, faiss.IndexIDMap):
            self._record(type(index).__name__, ntotal=index.ntotal)
            self._out.write(faiss.vector_to_array(index.id_map).astype("<i8").tobytes())
            self.write(index.index)
        else:
            self._record("IndexRefine", k_factor=index.k_factor)
            self.write(index.base_index)
            self.write(index.refine_index)

    def _record(self, kind: str, **fields: Any) -> None:
        data = json.dumps({"type": kind, **fields}).encode()
        self._out.write(_LENGTH.pack(len(data)) + data)

    def _faiss(self, write: Callable[[Any, Any], None], thing: Any) -> None:
        def callback(data: bytes) -> None:
            if data == _ON_DISK:
                raise ValueError("inverted lists on disk have a file of their own, and are not written into another")
            self._out.write(data)

        try:
            write(thing, faiss.PyCallbackIOWriter(callback))
        except RuntimeError as error:
            raise ValueError(f"{type(thing).__name__} cannot be written: {error}") from None


class RecordReader:
    """Reads the records that a `RecordWriter` wrote, and trusts none of them; Faiss's own bytes only if told to."""

    def __init__(self, source: ChunkReader, trusted: bool = False) -> None:
        self._source, self._trusted = source, trusted
        self._depth = 0

    def read(self, expected: frozenset[str]) -> Any:
        """Read a thing of one of the expected types."""
        (length,) = _LENGTH.unpack(self._source.read(_LENGTH.size))
        if length > _LARGEST_RECORD or self._depth > _DEEPEST:
            raise ValueError("a damaged index file: a record is too large, or too deep")
        fields = json.loads(self._source.read(length))
        kind = fields.pop("type")
        if kind not in expected:
            raise ValueError(f"a damaged index file: {kind!r} where {' or '.join(sorted(expected))} should be")
        self._depth += 1
        thing = _READERS[kind](self, kind, **fields)
        self._depth -= 1
        return thing

    def faiss_index(self, kind: str) -> Any:
        return self._checked(self._faiss(faiss.read_index, float_index()))

    def faiss_binary_index(self, kind: str) -> Any:
        index = self._faiss(faiss.read_index_binary, binary_index())
        if not self._trusted:
            check_binary(index)
        mend_tables(index)
        return index

    def faiss_transform(self, kind: str) -> Any:
        owner = self._faiss(faiss.read_VectorTransform, any_transform())
        transform = faiss.downcast_VectorTransform(owner)
        transform.owner = owner  # which deletes it in the end
        if not self._trusted:
            check_transform(transform)
        return transform

    def prh_transform(self, kind: str, size: int) -> PRHTransform:
        return PRHTransform.from_bytes(self._source.read(size))

    def ours(
        self, kind: str, transforms: int, k_factor: float = 1.0, own_id_map: bool = False, scale: Any = None
    ) -> Any:
        chain = self._chain(transforms)
        keyed = self.read(frozenset({"faiss.IndexBinary"}))
        if kind == "IndexBinaryPreTransform":
            return IndexBinaryPreTransform(chain, keyed)
        if kind == "IndexBinaryRefine":
            return IndexBinaryRefine._restored(
                chain, keyed, self.read(frozenset({"faiss.Index"})), k_factor, own_id_map
            )
        beside = self.read(frozenset({"faiss.IndexBinary"}))
        index = IndexBinaryAsymmetric._restored(chain, keyed, beside, k_factor, own_id_map)
        index._scale = None if scale is None else _checked_scale(NormScale(*map(_finite, scale)))
        return index

    def pre_transform(self, kind: str, transforms: int) -> Any:
        return self._checked(behind(self._chain(transforms), self.read(_FLOAT_INDEXES)))

    def id_map(self, kind: str, ntotal: int) -> Any:
        ids = np.frombuffer(self._source.read(8 * ntotal), "<i8").astype(np.int64)
        inside = self.read(_FLOAT_INDEXES)
        if inside.ntotal != len(ids):
            raise ValueError(f"a damaged index file: {len(ids)} ids for {inside.ntotal} vectors")
        return self._checked(with_ids(kind, inside, ids))

    def refine(self, kind: str, k_factor: float) -> Any:
        base, store = self.read(_FLOAT_INDEXES), self.read(_FLOAT_INDEXES)
        if (base.d, base.ntotal) != (store.d, store.ntotal):
            raise ValueError("a damaged index file: the two parts of an IndexRefine do not fit")
        return self._checked(refined(base, store, _finite(k_factor)))

    def _checked(self, index: Any) -> Any:
        if not self._trusted:
            check_float(index)
        return index

    def _chain(self, count: int) -> list[Any]:
        if count < 1:
            raise ValueError(f"a damaged index file: {count} transforms")
        return [self.read(frozenset({"PRHTransform", "faiss.VectorTransform"})) for _ in range(count)]

    def _faiss(self, read: Callable[[Any], Any], walk: Walk) -> Any:
        claims = None if self._trusted else Claims(walk, self._source.left)

        def callback(size: int) -> bytes:
            data = self._source.read(size)
            if data == _ON_DISK:
                raise ValueError("a damaged index file: it names inverted lists in another file")
            if claims:
                claims.see(data)
            return data

        return read(faiss.PyCallbackIOReader(callback))


_READERS: dict[str, Callable[..., Any]] = {
    "faiss.Index": RecordReader.faiss_index,
    "faiss.IndexBinary": RecordReader.faiss_binary_index,
    "faiss.VectorTransform": RecordReader.faiss_transform,
    "PRHTransform": RecordReader.prh_transform,
    "IndexBinaryPreTransform": RecordReader.ours,
    "IndexBinaryRefine": RecordReader.ours,
    "IndexBinaryAsymmetric": RecordReader.ours,
    "IndexPreTransform": RecordReader.pre_transform,
    "IndexIDMap": RecordReader.id_map,
    "IndexIDMap2": RecordReader.id_map,
    "IndexRefine": RecordReader.refine,
}
INDEXES = frozenset(_READERS) - {"faiss.VectorTransform", "PRHTransform"}
_FLOAT_INDEXES = frozenset(name for name in INDEXES if "Binary" not in name)


def _has_prh(index: Any) -> bool:
    """Whether a Faiss index has a PRHTransform where this module looks for it."""
    index = faiss.downcast_index(index)
    if isinstance(index, faiss.IndexPreTransform):
        return any(as_prh(index.chain.at(number)) for number in range(index.chain.size())) or _has_prh(index.index)
    if isinstance(index, faiss.IndexIDMap):
        return _has_prh(index.index)
    return isinstance(index, faiss.IndexRefine) and _has_prh(index.base_index)


def _checked_scale(scale: NormScale) -> NormScale:
    """Refuse norms that are not finite in single precision."""
    largest = math.log(scale.low) + 255 * scale.step if scale.low > 0 else math.inf
    if not (largest < math.log(np.finfo(np.float32).max) and scale.step >= 0 and 0 <= scale.reach <= 1):
        raise ValueError(f"a damaged index file: {scale}")
    return scale


def _finite(value: Any) -> float:
    if not isinstance(value, (int, float)) or not math.isfinite(value):
        raise ValueError(f"a damaged index file: {value!r} is no finite number")
    return float(value)
